"""Removes nodes whose results nobody reads."""
from __future__ import annotations

from ..ir import Graph, Node
from .tools import Tools


def dead_code(graph: Graph, tools: Tools) -> int:
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.reads())
    removed = len(graph.nodes) - len(kept)
    graph.nodes = kept[::-1]
    return removed
