"""Makes one reshape of a chain of reshape, flatten, squeeze and unsqueeze, and lets them sink below element-wise operators:
there they meet others, and no longer stand between a convolution and its activation."""
from __future__ import annotations

from typing import Optional

from ..ir import Graph, Node, Shape, Value, producers, reshape_to
from ..schema import BY_NAME
from .tools import Tools

VIEWS = ("reshape", "flatten", "squeeze", "unsqueeze")


def views(graph: Graph, tools: Tools) -> int:
    changes = 0
    made_by = producers(graph)
    for node in graph.nodes:
        before = made_by.get(node.x) if node.op in VIEWS else None
        if before is None or before.op not in VIEWS:
            continue
        target = reshape_to(before.x.shape, node.y.shape)
        if target is None:
            continue
        node.op, node.attrs = "reshape", {"shape": target, "allowzero": int(0 in (node.y.shape or ()))}
        node.inputs = [before.x]
        changes += 1
    return changes


def sink_views(graph: Graph, tools: Tools) -> int:
    changes = 0
    made_by = producers(graph)
    for node in list(graph.nodes):
        if BY_NAME[node.op].map and not node.tail and _sink(graph, node, made_by):
            made_by = producers(graph)
            changes += 1
    return changes


def _sink(graph: Graph, node: Node, made_by: dict[Value, Node]) -> bool:
    """Moves the views that make a node's operands behind it, if all of them turn the same shape into the result's."""
    sources = [made_by.get(v) for v in node.inputs if v is not None and v.data is None]
    views_above = [s for s in sources if s is not None and s.op in VIEWS]
    shape = node.y.shape
    if not views_above or len(views_above) < len(sources) or shape is None:
        return False
    x = views_above[0].x
    target = reshape_to(x.shape, shape)
    if target is None or x.shape is None or None in x.shape or None in shape:
        return False
    if any((s.x.shape, s.y.shape) != (x.shape, shape) for s in views_above):
        return False
    inputs: list[Optional[Value]] = []
    for value in node.inputs:
        assert value is not None
        moved = _constant(graph, value, x.shape, shape) if value.data is not None else made_by[value].x
        if moved is None:
            return False
        inputs.append(moved)
    y = node.y
    node.inputs = inputs
    node.outputs = [Value(graph.fresh(f"{y.name}/before"), y.dtype, x.shape)]
    attrs = {"shape": target, "allowzero": int(0 in shape)}
    view = Node("reshape", graph.fresh_node(f"{y.name}/view"), [node.y], [y], attrs)
    graph.nodes.insert(next(i for i, n in enumerate(graph.nodes) if n is node) + 1, view)
    return True


def _constant(graph: Graph, value: Value, source: Shape, target: Shape) -> Optional[Value]:
    """A constant operand as it must be before a view from source to target: one number, or a view that moves ones only."""
    assert value.data is not None
    if value.data.ndim > min(len(source), len(target)) and value.data.size == 1:
        return graph.constant(value.name, value.data.reshape(()))
    if value.data.size == 1:
        return value
    axes = [i for i, d in enumerate(source) if d != 1]
    there = [i for i, d in enumerate(target) if d != 1]
    if [source[i] for i in axes] != [target[i] for i in there] or value.data.ndim > len(target):
        return None
    full = (1,) * (len(target) - value.data.ndim) + value.data.shape
    shape = [1] * len(source)
    for i, j in zip(axes, there):
        shape[i] = full[j]
    return graph.constant(value.name, value.data.reshape(shape))
