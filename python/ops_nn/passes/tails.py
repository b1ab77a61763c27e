"""Makes element-wise nodes fused steps of the node before them, which applies them while its result is in cache: residual sums,
activations without a clamp of their own, chains of element-wise operators."""
from __future__ import annotations

from typing import Optional

from ..ir import Graph, Node, Tail, Value, producers, remove_nodes, single_consumer, sort, tail_kind
from ..schema import BY_NAME, MAX_TAIL
from .tools import Tools

# Heavy operators first: of two producers of a sum the one whose kernel profits most takes it.
HEAVY = ("conv2d", "matmul")
LIGHT = ("max_pool", "average_pool", "global_average_pool", "global_max_pool", "batch_normalization", "softmax")


def tails(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in list(graph.nodes):
        if not BY_NAME[node.op].map or node.y.shape is None:
            continue
        made_by = producers(graph)
        place = {id(n): i for i, n in enumerate(graph.nodes)}
        able = [n for v in node.inputs if v is not None and (n := _able(graph, made_by.get(v), node)) is not None]
        able.sort(key=lambda n: (n.op in HEAVY, place[id(n)]))
        if able:
            _fuse(graph, able[-1], node)
            changes += 1
    return changes


def _able(graph: Graph, before: Optional[Node], node: Node) -> Optional[Node]:
    """before, if it can take node as its step."""
    if before is None or single_consumer(graph, before.y) is not node or before.y.shape != node.y.shape:
        return None
    if not (before.op in HEAVY or before.op in LIGHT or BY_NAME[before.op].map):
        return None
    if None in (node.y.shape or (None,)) or len(before.tail) + 1 + len(node.tail) > MAX_TAIL:
        return None
    return before if tail_kind(_other(node, before.y), node.y.shape) is not None else None


def _other(node: Node, acc: Value) -> Optional[Value]:
    return next((v for v in node.inputs if v is not acc), None)


def _fuse(graph: Graph, before: Node, node: Node) -> None:
    other = _other(node, before.y)
    before.tail.append(Tail(node.op, node.attrs, other, other is not None and node.x is other))
    before.tail += node.tail
    before.outputs = node.outputs
    remove_nodes(graph, [node])
    # Nobody but node has seen before's result, so what the step reads cannot depend on it: an order exists.
    sort(graph)
