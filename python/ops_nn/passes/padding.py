"""Folds borders of zeros into the convolutions and average pools that read them: these never have padding in memory."""
from __future__ import annotations

from typing import Optional

from ..ir import Attrs, Graph, Node, producer
from .tools import Tools


def padding(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in graph.nodes:
        border = producer(graph, node.x) if node.op in ("conv2d", "average_pool") else None
        pads = _spatial_pads(border, node.layout) if border is not None and border.op == "pad" else None
        if border is None or pads is None or node.attrs["auto_pad"] not in ("notset", "valid"):
            continue
        own = node.attrs["pads"] if node.attrs["auto_pad"] == "notset" else (0, 0, 0, 0)
        attrs: Attrs = {"auto_pad": "notset", "pads": tuple(a + b for a, b in zip(own, pads))}
        if node.op == "average_pool":
            # Its own padding may not count, the border does; and a window may start in its padding only.
            kernel = node.attrs["kernel_shape"]
            if node.attrs["ceil_mode"] or (any(own) and not node.attrs["count_include_pad"]):
                continue
            if any(p >= kernel[i % 2] for i, p in enumerate(attrs["pads"])):
                continue
            attrs["count_include_pad"] = 1
        node.attrs.update(attrs)
        node.inputs[0] = border.x
        changes += 1
    return changes


def _spatial_pads(node: Node, layout: str) -> Optional[tuple[int, int, int, int]]:
    """Top, left, bottom, right of a border of zeros around pictures; None if it is anything else."""
    pads = node.attrs["pads"]
    if node.attrs["mode"] != "constant" or node.attrs["value"] != 0 or len(pads) != 8 or node.tail:
        return None
    h, w = (2, 3) if layout == "nchw" else (1, 2)
    if any(p < 0 for p in pads) or any(pads[a] or pads[a + 4] for a in range(4) if a not in (h, w)):
        return None
    return pads[h], pads[w], pads[h + 4], pads[w + 4]
