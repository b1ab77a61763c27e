"""Computes once what several nodes compute alike."""
from __future__ import annotations

from ..ir import Graph, Node, replace_value
from .tools import Tools


def common_subexpressions(graph: Graph, tools: Tools) -> int:
    seen: dict[object, Node] = {}
    changes = 0
    for node in list(graph.nodes):
        attrs = tuple(sorted((k, repr(v)) for k, v in node.attrs.items()))
        tail = tuple((t.op, repr(sorted(t.attrs.items())), t.other, t.other_first) for t in node.tail)
        first = seen.setdefault((node.op, node.layout, tuple(node.inputs), attrs, tail), node)
        # Outputs of the graph stay apart: each needs a node of its own.
        if first is node or any(o in graph.outputs for o in node.outputs):
            continue
        for mine, theirs in zip(node.outputs, first.outputs):
            replace_value(graph, mine, theirs)
        graph.nodes = [n for n in graph.nodes if n is not node]
        changes += 1
    return changes
