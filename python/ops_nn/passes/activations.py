"""Recognises activations that exporters spell out: silu, hard_sigmoid, hard_swish, mish, gelu, clamps as max and min."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import numpy as np

from ..ir import Attrs, Graph, Node, Value, producer, single_consumer
from ..schema import INF
from .tools import Tools


def activations(graph: Graph, tools: Tools) -> int:
    return sum(_clip(node) or _rewrite(graph, node) for node in list(graph.nodes))


def _constant(value: Optional[Value]) -> Optional[float]:
    """A scalar constant's number."""
    if value is None or value.data is None or value.data.size != 1 or value.dtype != "f32":
        return None
    number = float(value.data.reshape(-1)[0])
    return None if np.isnan(number) else number


def _plain(node: Node) -> bool:
    return not node.tail and node.attrs.get("lo", -INF) == -INF and node.attrs.get("hi", INF) == INF


def _operands(node: Node) -> Sequence[tuple[Value, Value]]:
    """The two inputs in both orders."""
    a, b = node.inputs
    assert a is not None and b is not None
    return ((a, b), (b, a))


def _clip(node: Node) -> bool:
    """max(x, constant) and min(x, constant) are clamps."""
    if node.op not in ("min", "max") or not _plain(node):
        return False
    for x, other in _operands(node):
        limit = _constant(other)
        if limit is not None and x.data is None and x.shape is not None and x.shape == node.y.shape:
            node.attrs = {"lo": limit, "hi": INF} if node.op == "max" else {"lo": -INF, "hi": limit}
            node.op, node.inputs = "clip", [x]
            return True
    return False


class _Match:
    """The expression that ends in a node, as factors: a product's, with divisions by constants as factors. Values in between
    that anybody else sees are not looked into."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.scale = graph, 1.0
        self.factors: list[Value] = []
        self._collect(node)

    def _collect(self, node: Node) -> None:
        a, b = node.inputs
        for i, value in enumerate((a, b)):
            assert value is not None
            number = _constant(value)
            if number is not None and not (node.op == "div" and (i == 0 or number == 0)):
                self.scale *= number if node.op == "mul" else 1 / number
                continue
            before = producer(self.graph, value)
            inner = before is not None and before.op in ("mul", "div") and _plain(before) and _factorable(before)
            if before is not None and inner and single_consumer(self.graph, value) is node:
                self._collect(before)
            else:
                self.factors.append(value)


def _factorable(node: Node) -> bool:
    return node.op == "mul" or (node.op == "div" and _constant(node.inputs[1]) not in (None, 0.0))


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-5 * abs(b)


def _inner(graph: Graph, value: Value, node_op: str) -> Optional[Node]:
    """The node that makes a value which one node reads only, if it is that operator without clamp."""
    before = producer(graph, value)
    if before is None or before.op != node_op or single_consumer(graph, value) is None or before.tail:
        return None
    return before if node_op == "clip" or _plain(before) else None


def _plus(graph: Graph, value: Value, number: float) -> Optional[Value]:
    """x, if value is x + number."""
    node = _inner(graph, value, "add")
    if node is None:
        return None
    return next((x for x, c in _operands(node) if _constant(c) is not None and _close(_constant(c) or 0, number)), None)


def _rewrite(graph: Graph, node: Node) -> bool:
    if node.op not in ("mul", "div") or not _plain(node) or not _factorable(node):
        return False
    match = _Match(graph, node)
    found: Optional[tuple[str, Attrs, Value]] = None
    if len(match.factors) == 1:
        x = _relu6_of_plus_3(graph, match.factors[0])
        if x is not None and _close(match.scale, 1 / 6):
            found = "hard_sigmoid", {"alpha": 1 / 6, "beta": 0.5}, x
    elif len(match.factors) == 2:
        for x, gate in (tuple(match.factors), tuple(match.factors[::-1])):
            found = found or _gated(graph, x, gate, match.scale)
    if found is None or found[2].shape is None or found[2].shape != node.y.shape:
        return False
    node.op, node.attrs, node.inputs = found[0], found[1], [found[2]]
    return True


def _relu6_of_plus_3(graph: Graph, value: Value) -> Optional[Value]:
    clip = _inner(graph, value, "clip")
    if clip is None or (clip.attrs["lo"], clip.attrs["hi"]) != (0.0, 6.0):
        return None
    return _plus(graph, clip.x, 3.0)


def _gated(graph: Graph, x: Value, gate: Value, scale: float) -> Optional[tuple[str, Attrs, Value]]:
    """x * gate(x) * scale."""
    if _close(scale, 1):
        node = _inner(graph, gate, "sigmoid")
        if node is not None and node.x is x:
            return "silu", {"alpha": 1.0}, x
        node = _inner(graph, gate, "hard_sigmoid")
        if node is not None and node.x is x and _close(node.attrs["alpha"], 1 / 6) and _close(node.attrs["beta"], 0.5):
            return "hard_swish", {}, x
        node = _inner(graph, gate, "tanh")
        soft = _inner(graph, node.x, "softplus") if node is not None else None
        if soft is not None and soft.x is x:
            return "mish", {}, x
    if _close(scale, 1 / 6) and _relu6_of_plus_3(graph, gate) is x:
        return "hard_swish", {}, x
    if _close(scale, 0.5):
        erf_value = _plus(graph, gate, 1.0)
        erf = _inner(graph, erf_value, "erf") if erf_value is not None else None
        inside = producer(graph, erf.x) if erf is not None else None
        if inside is not None and inside.op in ("mul", "div") and _plain(inside) and _factorable(inside):
            product = _Match(graph, inside)
            if product.factors == [x] and _close(product.scale, 0.5**0.5):
                return "gelu", {"approximate": "none"}, x
    return None
