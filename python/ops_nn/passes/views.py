"""Makes one reshape of a chain of reshape, flatten, squeeze and unsqueeze."""
from __future__ import annotations

from ..ir import Graph, producer, reshape_to
from .tools import Tools

VIEWS = ("reshape", "flatten", "squeeze", "unsqueeze")


def views(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in graph.nodes:
        before = producer(graph, node.x) if node.op in VIEWS else None
        if before is None or before.op not in VIEWS:
            continue
        target = reshape_to(before.x.shape, node.y.shape)
        if target is None:
            continue
        node.op, node.attrs = "reshape", {"shape": target, "allowzero": int(0 in (node.y.shape or ()))}
        node.inputs = [before.x]
        changes += 1
    return changes
