"""Shapes and types of every value of a graph, by the rules of the C library: there is no second set.

The rules want numbers. Open dimensions are therefore bound to two different samples, and what comes out is compared: equal is a
number, a symbol's own pair of samples is that symbol, anything else a dimension that is computed when the model is planned.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional, Protocol

from .errors import OpsNNError, ShapeError
from .ir import Attrs, Dim, Graph, Shape, Value

Typed = tuple[str, tuple[int, ...]]  # type and dimensions
Binding = dict[str, int]
DERIVED = "?"  # begins the names of dimensions that are computed from open ones


class Rules(Protocol):
    """The library's shape rules (lib.py)."""

    def infer(self, op: str, layout: str, attrs: Attrs, inputs: Sequence[Optional[Typed]]) -> list[Typed]:
        """Type and dimensions of each output; an OpsNNError says what does not fit."""
        ...


def samples(shapes: Iterable[Optional[Shape]]) -> list[tuple[Binding, Binding]]:
    """Pairs of bindings for the symbols in shapes, to be tried in order. Batches are small numbers, other open dimensions
    heights, widths and lengths. The first pair tells symbols apart, and rounding down from rounding up; the second has sizes
    that can be halved often; the third suits models in which differently named dimensions must be equal. No symbols: one
    empty pair."""
    first: dict[str, int] = {}  # the axis at which a symbol first stands
    for shape in shapes:
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, str):
                first.setdefault(dim, axis)
    if not first:
        return [({}, {})]

    def binding(batch: int, size: int) -> Binding:
        return {s: batch + 2 * i if axis == 0 else size + 64 * i for i, (s, axis) in enumerate(first.items())}

    alike = dict.fromkeys(first, 192), dict.fromkeys(first, 224)
    return [(binding(2, 193), binding(3, 226)), (binding(2, 192), binding(3, 224)), alike]


def merge(one: Sequence[int], two: Sequence[int], bindings: tuple[Binding, Binding]) -> Optional[Shape]:
    """The shape that is `one` under the first binding and `two` under the second; None where even the ranks differ. A dimension
    that follows open ones is named by its two samples: equal names are equal dimensions. (Should they ever differ, the library
    finds that when it plans, as it checks every shape again.)"""
    if len(one) != len(two):
        return None
    names: dict[tuple[int, int], Dim] = {}
    for symbol in bindings[0]:
        pair = (bindings[0][symbol], bindings[1][symbol])
        names[pair] = None if pair in names else symbol
    return tuple(a if a == b else names.get((a, b), f"{DERIVED}{a}/{b}") for a, b in zip(one, two))


def infer(graph: Graph, rules: Rules) -> None:
    """Sets type and shape of all that nodes make. ShapeError names the node at fault and, for open dimensions, the sample."""
    pairs = samples(v.shape for v in graph.inputs)
    failure: Optional[ShapeError] = None
    for pair in pairs:
        try:
            found = [_run(graph, rules, binding) for binding in (pair if pair[0] else pair[:1])]
        except ShapeError as error:
            failure = failure or error
            continue
        for node in graph.nodes:
            for value in node.outputs:
                value.dtype = found[0][value][0]
                value.shape = merge(found[0][value][1], found[-1][value][1], pair)
        return
    assert failure is not None
    raise failure


def _run(graph: Graph, rules: Rules, binding: Binding) -> dict[Value, Typed]:
    known: dict[Value, Typed] = {}

    def typed(value: Value) -> Typed:
        if value in known:
            return known[value]
        shape = value.shape
        if shape is None or any(d is None for d in shape):
            raise ShapeError(f"'{value.name}' has unknown dimensions and no node makes it: give its shape")
        return value.dtype, tuple(binding[d] if isinstance(d, str) else d for d in shape if d is not None)

    for value in graph.inputs:
        known[value] = typed(value)
    for index, node in enumerate(graph.nodes):
        try:
            made = rules.infer(node.op, node.layout, node.attrs, [None if v is None else typed(v) for v in node.inputs])
        except OpsNNError as error:
            sample = ", ".join(f"{s}={n}" for s, n in binding.items())
            hint = f" (tried with {sample}: fix the shapes if the model needs others)" if sample else ""
            raise ShapeError(f"node '{node.name}' ({node.op}): {error}{hint}", index) from error
        known.update(zip(node.outputs, made))
    return known
