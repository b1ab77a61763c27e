"""Stores weights in blocks of output channels, as the vector kernels read them, so that nothing is rearranged on the board."""
from __future__ import annotations

from typing import Optional

from ..ir import Graph, Node, Value, consumers
from .tools import Tools

BLOCK = 8


def blocking(graph: Graph, tools: Tools) -> int:
    uses = consumers(graph)
    copies: dict[Value, Value] = {}
    changes = 0
    for node in graph.nodes:
        w = _weights(node)
        if w is None or w.data is None or w.block:
            continue
        if all(_weights(n) is w and n.inputs.count(w) == 1 for n in uses[w]):
            w.block = BLOCK
        else:  # somebody wants it plain
            copy = copies.setdefault(w, Value(graph.fresh(w.name), w.dtype, w.shape, w.data, BLOCK))
            node.inputs[1] = copy
        changes += 1
    return changes


def _weights(node: Node) -> Optional[Value]:
    """Constant weights that kernels want in blocks."""
    w = node.inputs[1] if node.op in ("conv2d", "matmul") else None
    if w is None or w.data is None or w.dtype != "f32":
        return None
    if node.op == "matmul":
        return w if w.data.ndim == 2 and node.attrs["trans_b"] else None
    if node.layout != "nhwc":
        return None
    outputs, group = w.data.shape[0], node.attrs["group"]
    depthwise = w.data.shape[3] == 1 and group > 1
    return w if group == 1 or depthwise or outputs // group % BLOCK == 0 else None
