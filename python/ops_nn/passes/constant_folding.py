"""Replaces nodes whose inputs are all constant by their results, computed by the library itself."""
from __future__ import annotations

from ..errors import UnsupportedOperator
from ..ir import Graph, count
from .tools import Tools

LIMIT_ELEMENTS = 64 << 20  # a result may not be larger: a small model must stay small
GROWTH = 4  # ... nor much larger than what it is made of, beyond a few elements
SMALL = 4096


def constant_folding(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in list(graph.nodes):
        inputs = [v for v in node.inputs if v is not None]
        if node.tail or any(v.data is None or v.block for v in inputs) or any(o in graph.outputs for o in node.outputs):
            continue
        sizes = [count(o.shape) for o in node.outputs]
        given = sum(v.data.size for v in inputs if v.data is not None)
        if any(size is None or size > min(LIMIT_ELEMENTS, max(SMALL, GROWTH * given)) for size in sizes):
            continue
        try:
            made = tools.evaluate(node, [None if v is None else v.data for v in node.inputs])
        except UnsupportedOperator:  # no kernel for it as it is now: another layout may come
            continue
        for value, data in zip(node.outputs, made):
            value.shape, value.data = data.shape, data
        graph.nodes = [n for n in graph.nodes if n is not node]
        changes += 1
    return changes
