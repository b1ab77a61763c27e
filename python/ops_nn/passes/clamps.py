"""Folds clamps into the operators that have one of their own: every convolution, matrix product, pool and binary operator."""
from __future__ import annotations

from ..ir import Attrs, Graph, Node, remove_nodes, single_consumer
from .tools import Tools


def clamps(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in list(graph.nodes):
        while True:
            attrs = node.tail[-1].attrs if node.tail else node.attrs
            after = single_consumer(graph, node.y) if "lo" in attrs and len(node.outputs) == 1 else None
            if after is None or after.op != "clip" or after.tail:
                break
            _clamp(attrs, after)
            node.outputs = after.outputs
            remove_nodes(graph, [after])
            changes += 1
    return changes


def _clamp(attrs: Attrs, clip: Node) -> None:
    """First attrs' limits, then the clip's, as one pair: min(max(x, lo), hi)."""
    lo, hi = clip.attrs["lo"], clip.attrs["hi"]
    attrs["lo"], attrs["hi"] = (min(max(attrs[k], lo), hi) for k in ("lo", "hi"))
