"""The one intermediate representation: what importers make, passes rewrite and the compiler turns into the bytes of a model.

A graph is a list of nodes in execution order. Nodes name operators of schema.py and read and write values; a value that carries
data is a constant. Everything is plain and mutable; `verify` says whether the whole is sound, and runs after every pass.
"""
from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import schema as S

Array = npt.NDArray[Any]
Dim = Union[int, str, None]  # a number, an open dimension's name, or unknown
Shape = tuple[Dim, ...]
Attrs = dict[str, Any]

# numpy's types of the schema's; bfloat16 is kept as its bits.
NUMPY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(np.uint16), "f64": np.dtype(np.float64),
    "s8": np.dtype(np.int8), "s16": np.dtype(np.int16), "s32": np.dtype(np.int32), "s64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}
DTYPE_OF: dict[np.dtype[Any], str] = {t: name for name, t in NUMPY.items() if name != "bf16"}


class GraphError(Exception):
    """A graph is unsound: a fault of the importer or pass that made it, not of the user's model."""


@dataclass(frozen=True, eq=False)
class Quantization:
    """How integers of type dtype stand for numbers: (q - zero_point) * scale; a pair of them, or one for each index of axis."""

    dtype: str
    scale: Array  # [n] float32
    zero_point: Array  # [n] int64
    axis: int = 0

    def dequantize(self, q: Array) -> Array:
        shape = tuple(len(self.scale) if len(self.scale) > 1 and i == self.axis else 1 for i in range(q.ndim))
        scale, zero_point = self.scale.reshape(shape), self.zero_point.reshape(shape)
        return np.asarray((q.astype(np.int64) - zero_point) * scale.astype(np.float64), np.float32)


@dataclass(eq=False)
class Value:
    """A tensor; two values are equal only if they are the same object.

    dtype  a name of schema.DTYPES
    shape  None while the rank is unknown
    data   a constant's elements, logical and row-major: conv2d's weights are [O, C/g, KH, KW] in nchw nodes and
           [O, KH, KW, C/g] in nhwc nodes, whatever `block` is
    block  how the compiler stores a constant: 0 plain, b: the first dimension in blocks of b
    quantization  how the model quantised it, where the graph has it as float; nothing depends on it
    """

    name: str
    dtype: str
    shape: Optional[Shape]
    data: Optional[Array] = None
    block: int = 0
    quantization: Optional[Quantization] = None

    def __repr__(self) -> str:
        kind = "const " if self.data is not None else ""
        dims = "?" if self.shape is None else "x".join(str(d) if d is not None else "?" for d in self.shape)
        return f"<{kind}{self.name}: {self.dtype}[{dims}]>"


@dataclass(eq=False)
class Tail:
    """A fused element-wise step behind a node: acc = op(acc, other), or op(other, acc) if other_first; unary without other."""

    op: str
    attrs: Attrs = field(default_factory=dict)
    other: Optional[Value] = None
    other_first: bool = False

    def __post_init__(self) -> None:
        self.attrs = complete(self.op, self.attrs)


@dataclass(eq=False)
class Node:
    """An operator at work. Attributes that are not given take the schema's defaults, so that `attrs` is always complete.

    layout  'any', or 'nchw' or 'nhwc' where the operator's activations have spatial axes
    tail    element-wise steps applied to the only output, in order, after the operator's own clamp
    """

    op: str
    name: str
    inputs: list[Optional[Value]]
    outputs: list[Value]
    attrs: Attrs = field(default_factory=dict)
    layout: str = "any"
    tail: list[Tail] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attrs = complete(self.op, self.attrs)

    def reads(self) -> Iterator[Value]:
        """Every value the node needs, one for each use, the tail's included."""
        yield from (v for v in self.inputs if v is not None)
        yield from (t.other for t in self.tail if t.other is not None)

    @property
    def x(self) -> Value:
        """The first input, which every operator requires."""
        value = self.inputs[0]
        assert value is not None
        return value

    @property
    def y(self) -> Value:
        """The first output."""
        return self.outputs[0]


@dataclass(eq=False)
class Graph:
    """inputs and outputs are the model's own, in order; nodes are in execution order; meta is carried into the model file."""

    name: str
    inputs: list[Value]
    outputs: list[Value]
    nodes: list[Node]
    meta: dict[str, str] = field(default_factory=dict)
    _value_names: Optional[set[str]] = field(default=None, repr=False)
    _node_names: Optional[set[str]] = field(default=None, repr=False)

    def values(self) -> list[Value]:
        """Every value of the graph once: inputs, then what nodes read and write in order, then outputs that nothing makes."""
        seen: dict[Value, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            seen.update(dict.fromkeys(node.reads()))
            seen.update(dict.fromkeys(node.outputs))
        seen.update(dict.fromkeys(self.outputs))
        return list(seen)

    def fresh(self, base: str) -> str:
        """A name that no value has, made of base."""
        if self._value_names is None:
            self._value_names = {v.name for v in self.values()}
        return _fresh(base, self._value_names)

    def fresh_node(self, base: str) -> str:
        """A name that no node has, made of base. Nodes may be called like values: in many models they are."""
        if self._node_names is None:
            self._node_names = {n.name for n in self.nodes}
        return _fresh(base, self._node_names)

    def constant(self, base: str, data: npt.ArrayLike, dtype: Optional[str] = None) -> Value:
        """A new constant; dtype is taken from the data unless given."""
        array = np.asarray(data, NUMPY[dtype] if dtype else None)
        if array.ndim:
            array = np.ascontiguousarray(array)
        return Value(self.fresh(base), dtype or DTYPE_OF[array.dtype], array.shape, array)


def _fresh(base: str, taken: set[str]) -> str:
    base = re.sub(r"~\d+$", "", base)
    name = next(n for n in itertools.chain([base], (f"{base}~{i}" for i in itertools.count(1))) if n not in taken)
    taken.add(name)
    return name


def complete(op: str, attrs: Mapping[str, Any]) -> Attrs:
    """attrs with the schema's defaults for what is not given; an unknown operator's are left for `verify` to report."""
    known = S.BY_NAME.get(op)
    defaults = {a.name: a.default for a in known.attrs if a.default is not None} if known else {}
    return {**defaults, **attrs}


# --- questions -----------------------------------------------------------------------------------------------------------


def consumers(graph: Graph) -> dict[Value, list[Node]]:
    """The nodes that read each value; a node stands there once for every use. Values nobody reads are absent."""
    uses: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.reads():
            uses.setdefault(value, []).append(node)
    return uses


def producers(graph: Graph) -> dict[Value, Node]:
    """The node that makes each value; inputs and constants are absent."""
    return {value: node for node in graph.nodes for value in node.outputs}


def producer(graph: Graph, value: Value) -> Optional[Node]:
    """The node that makes a value; None for inputs and constants."""
    return next((n for n in graph.nodes if any(o is value for o in n.outputs)), None)


def single_consumer(graph: Graph, value: Value) -> Optional[Node]:
    """The only node that sees a value, or None: nobody reads it, it is read twice (also by one node, also by a tail), or it is
    an output of the graph. Every fusion that makes a value disappear asks this first."""
    if any(o is value for o in graph.outputs):
        return None
    found: Optional[Node] = None
    for node in graph.nodes:
        for read in node.reads():
            if read is value:
                if found is not None:
                    return None
                found = node
    return found


def count(shape: Optional[Shape]) -> Optional[int]:
    """Elements of a shape; None while a dimension is open."""
    total = 1
    for dim in shape if shape is not None else (None,):
        if not isinstance(dim, int):
            return None
        total *= dim
    return total


def dims(value: Value) -> Optional[tuple[int, ...]]:
    """A value's shape where all of it is known, else None."""
    if value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return tuple(d for d in value.shape if isinstance(d, int))


def rank(value: Value) -> Optional[int]:
    return None if value.shape is None else len(value.shape)


def tail_kind(other: Optional[Value], shape: Optional[Shape]) -> Optional[str]:
    """How a fused step's other operand relates to the output: 'unary', 'scalar', 'same' or 'channel'; None if it is neither, or
    if the shapes known do not prove it."""
    if other is None:
        return "unary"
    if count(other.shape) == 1 and other.shape is not None and (shape is None or len(other.shape) <= len(shape)):
        return "scalar"
    if shape is None or other.shape is None or None in shape or None in other.shape:
        return None
    if other.shape == shape:
        return "same"
    if shape and 0 < len(other.shape) <= len(shape) and other.shape[-1] == shape[-1] and all(d == 1 for d in other.shape[:-1]):
        return "channel"
    return None


def reshape_to(source: Optional[Shape], target: Optional[Shape]) -> Optional[tuple[int, ...]]:
    """The `shape` attribute of a reshape that turns source into target: open dimensions are copied from the same place or,
    once, computed. None if that is not possible."""
    if source is None or target is None:
        return None
    empty = 0 in target  # a 0 must then mean itself (allowzero), and nothing can be copied
    shape: list[int] = []
    for i, dim in enumerate(target):
        if isinstance(dim, int):
            shape.append(dim)
        elif dim is not None and not empty and i < len(source) and source[i] == dim:
            shape.append(0)
        else:
            shape.append(-1)
    return None if shape.count(-1) > 1 or (empty and -1 in shape) else tuple(shape)


# --- changes -------------------------------------------------------------------------------------------------------------


def replace_value(graph: Graph, old: Value, new: Value) -> None:
    """Everybody who read old reads new. An output of the graph keeps its name: new, if a node makes it, takes old's name."""
    for node in graph.nodes:
        node.inputs = [new if v is old else v for v in node.inputs]
        for tail in node.tail:
            if tail.other is old:
                tail.other = new
    if any(o is old for o in graph.outputs):
        graph.outputs = [new if o is old else o for o in graph.outputs]
        old.name, new.name = new.name, old.name


def remove_nodes(graph: Graph, nodes: Iterable[Node]) -> None:
    gone = {id(n) for n in nodes}
    graph.nodes = [n for n in graph.nodes if id(n) not in gone]


def insert_before(graph: Graph, node: Node, new: Node) -> None:
    graph.nodes.insert(next(i for i, n in enumerate(graph.nodes) if n is node), new)


def insert_after(graph: Graph, node: Node, new: Node) -> None:
    graph.nodes.insert(next(i for i, n in enumerate(graph.nodes) if n is node) + 1, new)


def sort(graph: Graph) -> None:
    """Puts the nodes into an order in which they can run, as close to the present one as possible. GraphError on a cycle."""
    made_by = producers(graph)
    place = {id(n): i for i, n in enumerate(graph.nodes)}
    waits = {id(n): {id(made_by[v]) for v in n.reads() if v in made_by} for n in graph.nodes}
    wakes: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for before in waits[id(node)]:
            wakes.setdefault(before, []).append(node)
    ready = [place[id(n)] for n in graph.nodes if not waits[id(n)]]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = graph.nodes[heapq.heappop(ready)]
        order.append(node)
        for after in wakes.get(id(node), ()):
            waits[id(after)].discard(id(node))
            if not waits[id(after)]:
                heapq.heappush(ready, place[id(after)])
    if len(order) < len(graph.nodes):
        stuck = next(n for n in graph.nodes if waits[id(n)])
        raise GraphError(f"graph '{graph.name}': node '{stuck.name}' ({stuck.op}) waits for its own result")
    graph.nodes = order


# --- soundness -----------------------------------------------------------------------------------------------------------

_I32 = range(-(2**31), 2**31)


def _attr_fault(attr: S.Attr, given: Any) -> Optional[str]:
    """What is wrong with an attribute's value, or None."""
    if attr.type in S.ENUMS:
        return None if given in S.ENUMS[attr.type] else f"is none of {', '.join(S.ENUMS[attr.type])}"
    if attr.type == "f32":
        return None if isinstance(given, (int, float)) and not isinstance(given, bool) else "is no number"
    if attr.type == "bool":
        return None if given in (0, 1) else "is neither 0 nor 1"
    if attr.type == "i32":
        return None if isinstance(given, int) and given in _I32 else "is no 32-bit integer"
    if not isinstance(given, tuple) or not all(isinstance(i, int) and i in _I32 for i in given):
        return "is no tuple of 32-bit integers"
    wanted = re.fullmatch(r"i32\[(\d+)]", attr.type)
    if wanted and len(given) != int(wanted[1]):
        return f"has {len(given)} numbers instead of {wanted[1]}"
    return f"has more than {S.LIST_CAPACITY} numbers" if len(given) > S.LIST_CAPACITY else None


def _attrs_fault(op: S.Op, attrs: Attrs) -> Optional[str]:
    known = {a.name: a for a in op.attrs}
    for name, given in attrs.items():
        if name not in known:
            return f"{op.name} has no attribute '{name}'"
        fault = _attr_fault(known[name], given)
        if fault:
            return f"attribute {name}={given!r} {fault}"
    missing = [name for name in known if name not in attrs]
    return f"attribute '{missing[0]}' is missing" if missing else None


def value_fault(value: Value) -> Optional[str]:
    """What is wrong with a value by itself, or None."""
    if value.dtype not in S.DTYPE_ID:
        return f"has the unknown type '{value.dtype}'"
    if value.shape is not None:
        if not isinstance(value.shape, tuple) or len(value.shape) > S.MAX_RANK:
            return f"has the shape {value.shape}, which is no tuple of at most {S.MAX_RANK} dimensions"
        if any(isinstance(d, int) and not 0 <= d < 2**31 for d in value.shape):
            return f"has the shape {value.shape} with a dimension out of range"
    if value.data is None:
        return "is blocked but no constant" if value.block else None
    if value.shape != value.data.shape:
        return f"is declared as {value.shape} but its data are {value.data.shape}"
    if value.data.dtype != NUMPY[value.dtype]:
        return f"is declared as {value.dtype} but its data are {value.data.dtype}"
    if value.block < 0 or (value.block and not value.shape):
        return f"cannot be stored in blocks of {value.block}"
    return None


def _tail_fault(node: Node) -> Optional[str]:
    if len(node.tail) > S.MAX_TAIL:
        return f"{len(node.tail)} fused steps are more than {S.MAX_TAIL}"
    if node.tail and (len(node.outputs) != 1 or S.BY_NAME[node.op].view):
        return f"{node.op} cannot have fused steps"
    for tail in node.tail:
        op = S.BY_NAME.get(tail.op)
        if op is None or not op.map:
            return f"'{tail.op}' is no element-wise operator and cannot be a fused step"
        fault = _attrs_fault(op, tail.attrs)
        if fault:
            return f"fused step {tail.op}: {fault}"
        if (tail.other is not None) != (op.max_inputs == 2):
            return f"fused step {tail.op} has {'an' if tail.other is not None else 'no'} other operand"
        if tail.other_first and tail.other is None:
            return f"fused step {tail.op} has no other operand to come first"
        if tail_kind(tail.other, node.y.shape) is None:
            assert tail.other is not None
            return f"fused step {tail.op}: '{tail.other.name}' {tail.other.shape} fits neither way to the output {node.y.shape}"
        if tail.other is not None and tail.other.dtype != node.y.dtype:
            return f"fused step {tail.op}: '{tail.other.name}' is {tail.other.dtype}, the output {node.y.dtype}"
        if tail.other is not None and tail.other.block:
            return f"fused step {tail.op}: '{tail.other.name}' is blocked"
    return None


def node_fault(node: Node) -> Optional[str]:
    """What is wrong with a node by itself, or None: whether it fits the schema."""
    op = S.BY_NAME.get(node.op)
    if op is None:
        return "no such operator"
    if not op.min_inputs <= len(node.inputs) <= op.max_inputs:
        return f"{len(node.inputs)} inputs, wants {op.min_inputs} to {op.max_inputs}"
    for i, value in enumerate(node.inputs):
        if value is None and not op.inputs[min(i, len(op.inputs) - 1)].optional:
            return f"input {i} is required"
    if len(node.outputs) != len(op.outputs):
        return f"{len(node.outputs)} outputs, wants {len(op.outputs)}"
    if (node.layout in ("nchw", "nhwc")) != op.layout or node.layout not in S.LAYOUT_ID:
        return f"layout '{node.layout}' is wrong here, wants {'nchw or nhwc' if op.layout else 'any'}"
    return _attrs_fault(op, node.attrs) or _tail_fault(node)


def verify(graph: Graph) -> None:
    """Raises GraphError, naming node and value, unless the graph is sound: every value is made once and before it is read,
    names are unique, nodes fit the schema, constants fit their declarations, and fused steps are legal."""

    def fail(text: str) -> None:
        raise GraphError(f"graph '{graph.name}': {text}")

    ready: set[Value] = set()
    for value in graph.inputs:
        if value in ready or value.data is not None:
            fail(f"input '{value.name}' {'is listed twice' if value in ready else 'is a constant'}")
        ready.add(value)
    for node in graph.nodes:
        where = f"node '{node.name}' ({node.op})"
        fault = node_fault(node)
        if fault:
            fail(f"{where}: {fault}")
        for value in node.reads():
            if value.data is None and value not in ready:
                fail(f"{where} reads '{value.name}', which nothing before it makes")
        for value in node.outputs:
            if value in ready or value.data is not None:
                fail(f"{where} makes '{value.name}', which {'is a constant' if value.data is not None else 'exists already'}")
            ready.add(value)
    if not graph.outputs:
        fail("it has no outputs")
    for i, value in enumerate(graph.outputs):
        if value not in ready or value in graph.inputs:
            fail(f"output '{value.name}' is made by no node")
        if value in graph.outputs[:i]:
            fail(f"output '{value.name}' is listed twice")
    for what, names in (("values", [v.name for v in graph.values()]), ("nodes", [n.name for n in graph.nodes])):
        seen: set[str] = set()
        for name in names:
            if not name or name in seen:
                fail(f"two {what} are named '{name}'" if name else f"one of the {what} has no name")
            seen.add(name)
    for value in graph.values():
        fault = value_fault(value)
        if fault:
            fail(f"value '{value.name}' {fault}")
