"""ONNX models (opsets 7 to the newest) to graphs.

    load("net.onnx", shapes={"input": (1, 3, 224, 224)})

A model is read, its constant parts are folded away (onnx_fold.py), and what is left is converted node by node (onnx_ops.py).
Everything that is wrong with a model is collected and told in one exception.
"""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import external_data_helper, helper, inliner, numpy_helper

from ..errors import FileError, FormatError, ModelError, UnsupportedOperator
from ..ir import DTYPE_OF, Array, Dim, Graph, Node, Shape, Value, node_fault, value_fault
from ..shapes import DERIVED, Binding, merge, samples
from . import onnx_fold

Source = Union[str, "os.PathLike[str]", bytes, onnx.ModelProto]
Shapes = Mapping[str, Union[int, Sequence[int]]]

OLDEST_OPSET = 7
_SHOWN = 6  # nodes named per problem


class Problem(Exception):
    """Why a node cannot be converted. remedy: what would help. unsupported: the model is sound, but beyond this importer."""

    def __init__(self, reason: str, remedy: str = "", unsupported: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.unsupported = reason, remedy, unsupported


@dataclass(frozen=True)
class Varying:
    """A constant that follows an open dimension: what it is under two bindings of the open dimensions."""

    one: Array
    two: Array


@dataclass
class OnnxNode:
    """A NodeProto with checked access."""

    proto: onnx.NodeProto
    opset: int

    @property
    def op(self) -> str:
        return str(self.proto.op_type)

    @property
    def label(self) -> str:
        """The node's name, or one made of its operator and output."""
        return clean(str(self.proto.name) or "_".join([self.op, *self.proto.output[:1]]))

    def given(self, i: int) -> str:
        """Name of input i, '' where it is not given."""
        return str(self.proto.input[i]) if i < len(self.proto.input) else ""

    def output(self, i: int) -> str:
        return str(self.proto.output[i]) if i < len(self.proto.output) else ""

    def attr(self, name: str, default: Any) -> Any:
        """An attribute, of default's type: int, float, str, or a tuple of ints. A default that is a type means: required."""
        found = next((a for a in self.proto.attribute if a.name == name), None)
        kind = default if isinstance(default, type) else type(default)
        if found is None:
            if default is kind:
                raise Problem(f"attribute '{name}' is missing", unsupported=False)
            return default
        value = helper.get_attribute_value(found)
        if kind is str and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if kind is tuple and isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
            return tuple(value)
        if kind in (int, float) and isinstance(value, kind):
            return value
        raise Problem(f"attribute '{name}' is no {'list of integers' if kind is tuple else kind.__name__}", unsupported=False)

    def has(self, name: str) -> bool:
        return any(a.name == name for a in self.proto.attribute)


def clean(name: str) -> str:
    """Names end up as C strings."""
    return name.replace("\0", "")


@dataclass
class Context:
    """A graph in the making. Converters read ONNX values by name and emit nodes."""

    graph: Graph
    folded: tuple[onnx_fold.Folded, onnx_fold.Folded]
    bindings: tuple[Binding, Binding]
    values: dict[str, Value] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)  # values that somebody reads
    node: Optional[OnnxNode] = None  # the one being converted

    # --- what is known of ONNX values ---

    def constant(self, name: str) -> Union[Array, Varying, None]:
        """A constant's data; None if the value is not constant."""
        one, two = (f.constants.get(name) for f in self.folded)
        if one is None or two is None:
            return None
        if one is two:
            return one
        same = one.dtype == two.dtype and np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
        return one if same else Varying(one, two)

    def shape(self, name: str) -> Shape:
        """Dimensions of a value: numbers, names of open ones, or None. Problem if even the rank is unknown."""
        shapes = [f.shapes.get(name) for f in self.folded]
        merged = None if shapes[0] is None or shapes[1] is None else merge(shapes[0], shapes[1], self.bindings)
        if merged is None:
            raise Problem(
                f"the rank of '{name}' is unknown",
                "give the shapes of the inputs (--shape), or see where onnx.shape_inference fails",
            )
        return tuple(None if isinstance(d, str) and d.startswith(DERIVED) else d for d in merged)

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def static(self, name: str) -> tuple[int, ...]:
        """Dimensions that must all be numbers."""
        shape = self.shape(name)
        open_ = [str(d) if d is not None else "?" for d in shape if not isinstance(d, int)]
        if open_:
            raise Problem(f"'{name}' has the open dimension {open_[0]}, a number is needed", "fix it with --shape")
        return tuple(d for d in shape if isinstance(d, int))

    def dtype(self, name: str) -> str:
        """A schema type's name; ONNX's own name in capitals for types that the schema lacks."""
        elem_type = self.folded[0].elem_types.get(name, onnx.TensorProto.UNDEFINED)
        try:
            return DTYPE_OF[helper.tensor_dtype_to_np_dtype(elem_type)]
        except (KeyError, ValueError):
            known = elem_type in onnx.TensorProto.DataType.values()
            return str(onnx.TensorProto.DataType.Name(elem_type)) if known else str(elem_type)

    # --- operands ---

    def value(self, name: str) -> Value:
        """Any value, of any type."""
        if name in self.values:
            return self.values[name]
        data = self.constant(name)
        if isinstance(data, Varying):
            raise Problem(f"'{name}' depends on the open dimension{self._symbols()}", "fix it with --shape")
        if data is None:
            what = f"input '{name}' is made by nothing before this node" if name else "a required input is missing"
            raise Problem(what, unsupported=False)
        if data.dtype not in DTYPE_OF:
            raise Problem(f"'{name}' is of type {self.dtype(name)}", "this version computes in float32: convert the model")
        value = Value(self.graph.fresh(clean(name)), DTYPE_OF[data.dtype], data.shape, np.array(data, order="C"))
        fault = value_fault(value)
        if fault:
            raise Problem(f"'{name}' {fault}", unsupported=False)
        self.values[name] = value
        return value

    def tensor(self, name: str) -> Value:
        """A float32 value: what arithmetic works on."""
        dtype = self.dtype(name) if name else "f32"
        if dtype != "f32" and dtype != "UNDEFINED":
            remedy = "convert the model to float32" if dtype in ("f16", "bf16", "f64", "BFLOAT16") else ""
            raise Problem(f"'{name}' is of type {dtype}, and this version computes in float32 only", remedy)
        return self.value(name)

    def known(self, name: str, what: str) -> Array:
        """A constant's data; Problem if it is computed at run time. what: its role, for the message."""
        data = self.constant(name)
        if isinstance(data, Varying):
            raise Problem(f"{what} ('{name}') depends on the open dimension{self._symbols()}", "fix it with --shape")
        if data is None:
            why = self.folded[0].failed.get(name) or self.folded[1].failed.get(name) or "it is computed from the data"
            raise Problem(f"{what} ('{name}') must be constant: {why}")
        return data

    def ints(self, name: str, what: str) -> tuple[int, ...]:
        data = self.known(name, what)
        if data.dtype.kind not in "iu" or data.ndim > 1:
            raise Problem(f"{what} ('{name}') is no list of integers", unsupported=False)
        return tuple(int(i) for i in data.reshape(-1))

    def scalar(self, name: str, what: str) -> float:
        data = self.known(name, what)
        if data.size != 1:
            raise Problem(f"{what} ('{name}') has {data.size} elements instead of one", unsupported=False)
        return float(data.reshape(-1)[0])

    def _symbols(self) -> str:
        names = ", ".join(self.bindings[0])
        return f"{'s' if len(self.bindings[0]) > 1 else ''} {names}"

    # --- results ---

    def emit(
        self, op: str, inputs: Sequence[Optional[Value]], output: Optional[str] = None, layout: str = "any", **attrs: Any
    ) -> Value:
        """A node. output: the ONNX value that it makes; None for a step in between."""
        assert self.node is not None
        label = self.node.label
        if output is None:
            y = Value(self.graph.fresh(f"{label}/{op}"), "f32", None)
        else:
            shape: Optional[Shape]
            try:
                shape = self.shape(output)
            except Problem:
                shape = None
            dtype = self.dtype(output)
            y = Value(self.graph.fresh(clean(output)), dtype if dtype.islower() else "f32", shape)
            self.values[output] = y
        node = Node(op, self.graph.fresh_node(label), list(inputs), [y], attrs, layout)
        fault = node_fault(node) or value_fault(y)
        if fault:
            raise Problem(fault, unsupported=False)
        self.graph.nodes.append(node)
        return y


def load(source: Source, shapes: Optional[Shapes] = None) -> Graph:
    """Imports a model from a file, its bytes, or a ModelProto.

    shapes  fixes dimensions: by an input's name all of its dimensions, by an open dimension's name just that one. Those that
            stay open become symbols of the graph.

    Raises FileError, FormatError, or, with all problems in one text and in .problems, UnsupportedOperator or ModelError.
    """
    model, name = _read(source)
    opset = _check(model, name)
    if model.functions:
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:
            raise FormatError(f"{name}: its functions cannot be inlined: {error}") from error
    problems = Problems(name)
    constants = _initialisers(model, problems)
    inputs = _inputs(model, constants, dict(shapes or {}), problems)
    problems.throw()
    # onnx's inference does not say where it fails: sizes that suit most networks.
    pair = samples(shape for _, shape in inputs.values())[:2][-1]
    first = onnx_fold.fold(model, inputs, constants, pair[0])
    context = Context(Graph(clean(model.graph.name) or "model", [], [], []), (first, first), pair)
    if pair[0]:
        context.folded = (first, onnx_fold.fold(model, inputs, constants, pair[1]))
    return _convert(model, opset, inputs, context, problems)


class Problems:
    """What is wrong with a model, alike nodes told together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[tuple[str, str], list[str]] = {}  # what, why: nodes
        self.unsupported = False

    def add(self, problem: Problem, node: Optional[OnnxNode] = None) -> None:
        self.unsupported |= problem.unsupported
        why = problem.reason + (f"; {problem.remedy}" if problem.remedy else "")
        what = f"{node.proto.domain + '.' if node.proto.domain else ''}{node.op} (opset {node.opset})" if node else ""
        self.found.setdefault((what, why), []).append(node.label if node else "")

    def lines(self) -> Iterator[str]:
        for (what, why), nodes in self.found.items():
            if not what:
                yield why
                continue
            names = ", ".join(f"'{n}'" for n in nodes[:_SHOWN])
            names += f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
            yield f"node{'s' if len(nodes) > 1 else ''} {names}: {what}: {why}"

    def throw(self) -> None:
        """Raises if there is anything to raise."""
        lines = list(self.lines())
        if lines:
            kind = UnsupportedOperator if self.unsupported else ModelError
            head = [f"{self.name}: {len(lines)} problems"] if len(lines) > 1 else []
            text = "\n  ".join([*head, *lines]) if head else f"{self.name}: {lines[0]}"
            raise kind(text, problems=lines)


# --- reading ---------------------------------------------------------------------------------------------------------------


def _read(source: Source) -> tuple[onnx.ModelProto, str]:
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        _external(model, None, "model")
        return model, "model"
    path: Optional[Path] = None
    if isinstance(source, bytes):
        data, name = source, "model"
    else:
        path = Path(source)
        name = path.name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise FormatError(f"{name}: is no ONNX model") from None
    _external(model, path, name)
    return model, name


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The graph's constants, those of nested graphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)


def _texts(model: onnx.ModelProto) -> Iterator[Any]:
    """The names that a model consists of."""
    graph = model.graph
    yield graph.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
    for info in (*graph.input, *graph.output):
        yield info.name
        yield from (d.dim_param for d in info.type.tensor_type.shape.dim)
    yield from (t.name for t in graph.initializer)
    for prop in model.metadata_props:
        yield from (prop.key, prop.value)
    yield from (i.domain for i in model.opset_import)


def _external(model: onnx.ModelProto, path: Optional[Path], name: str) -> None:
    """Loads constants that are kept in files beside the model's."""
    for tensor in _tensors(model.graph):
        if not external_data_helper.uses_external_data(tensor):
            continue
        location = next((e.value for e in tensor.external_data if e.key == "location"), "")
        if path is None:
            raise ModelError(f"{name}: '{tensor.name}' is kept in the file '{location}': load the model by its path")
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        except Exception as error:  # onnx raises its checker's errors for missing files and for paths that lead elsewhere
            beside = path.parent / location
            why = "does not exist: keep it beside the model" if not beside.exists() else f"cannot be used: {error}"
            raise FileError(f"{name}: '{tensor.name}' is kept in '{location}', which {why}") from error


def _check(model: onnx.ModelProto, name: str) -> int:
    """The opset of the standard operators, if it is one that we know."""
    # protobuf gives text that is no UTF-8 as bytes.
    if not all(isinstance(text, str) for text in _texts(model)):
        raise FormatError(f"{name}: is a damaged ONNX model: one of its names is no text")
    opset = next((i.version for i in model.opset_import if i.domain in onnx_fold.STANDARD), 0)
    newest = onnx.defs.onnx_opset_version()
    if not model.HasField("graph") or not model.opset_import:
        raise FormatError(f"{name}: is no ONNX model, or an empty one")
    if opset and not OLDEST_OPSET <= opset <= newest:
        old = opset < OLDEST_OPSET
        newer = f"pip install -U onnx (this is {onnx.__version__})"
        remedy = "onnx.version_converter brings it to a newer one" if old else newer
        raise UnsupportedOperator(f"{name}: opset {opset} is outside {OLDEST_OPSET} to {newest}; {remedy}")
    return opset or newest


def _initialisers(model: onnx.ModelProto, problems: Problems) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        try:
            constants[tensor.name] = numpy_helper.to_array(tensor)
        except Exception as error:
            problems.add(Problem(f"constant '{tensor.name}' is malformed: {error}", unsupported=False))
    for sparse in model.graph.sparse_initializer:
        problems.add(Problem(f"constant '{sparse.values.name}' is sparse; store it densely"))
    return constants


def _inputs(
    model: onnx.ModelProto, constants: Mapping[str, Array], fixed: dict[str, Union[int, Sequence[int]]], problems: Problems
) -> dict[str, tuple[int, Shape]]:
    """Element type and shape of each true input; open dimensions have names."""
    inputs: dict[str, tuple[int, Shape]] = {}
    unused = set(fixed)
    for info in model.graph.input:
        if info.name in constants:  # before IR version 4 initialisers were listed as inputs, too
            continue
        if not info.type.HasField("tensor_type"):
            problems.add(Problem(f"input '{info.name}' is no tensor"))
            continue
        kind = info.type.tensor_type
        shape: list[Dim] = []
        for axis, dim in enumerate(kind.shape.dim):
            # Some exporters write 0 or -1 for an open dimension.
            number = dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
            symbol = clean(dim.dim_param) or f"{clean(info.name)}_{axis}"
            bound = fixed.get(symbol)
            if number is None and isinstance(bound, int):
                unused.discard(symbol)
                number = bound
            shape.append(symbol if number is None else number)
        wanted = fixed.get(info.name)
        if isinstance(wanted, int) and info.name in unused:  # a vector's only dimension
            wanted = (wanted,)
        if wanted is not None and not isinstance(wanted, int):
            unused.discard(info.name)
            given = tuple(int(d) for d in wanted)
            fits = not kind.HasField("shape") or len(given) == len(shape)
            if not fits or any(isinstance(d, int) and d != g for d, g in zip(shape, given)):
                text = ", ".join(str(d) for d in shape)
                problems.add(Problem(f"input '{info.name}' is ({text}) and cannot be fixed to {given}", unsupported=False))
                continue
            # The same symbol elsewhere is the same dimension.
            fixed.update((s, g) for s, g in zip(shape, given) if isinstance(s, str))
            shape = list(given)
        elif not kind.HasField("shape"):
            problems.add(Problem(f"the rank of input '{info.name}' is open; give its shape (--shape)"))
            continue
        inputs[info.name] = (kind.elem_type, tuple(shape))
    for known in sorted(unused):
        what = f"a shape is given for '{known}', which is neither an input ({', '.join(inputs)}) nor an open dimension"
        problems.add(Problem(what, unsupported=False))
    # An input may have been read before another fixed its symbol.
    numbers: dict[Dim, Dim] = {s: n for s, n in fixed.items() if isinstance(n, int)}
    return {name: (elem_type, tuple(numbers.get(d, d) for d in shape)) for name, (elem_type, shape) in inputs.items()}


# --- converting ------------------------------------------------------------------------------------------------------------


def _live(model: onnx.ModelProto, context: Context) -> tuple[list[onnx.NodeProto], set[str]]:
    """Nodes that the outputs need and that are not constant, in order, and all values that are needed."""
    needed = {o.name for o in model.graph.output}
    live: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        wanted = [o for o in node.output if o in needed and context.constant(o) is None]
        if wanted:
            live.append(node)
            needed.update(node.input)
            for attribute in node.attribute:  # what nested graphs read
                for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                    needed.update(name for n in inner.node for name in n.input)
    return live[::-1], needed


def _convert(
    model: onnx.ModelProto, opset: int, inputs: Mapping[str, tuple[int, Shape]], context: Context, problems: Problems
) -> Graph:
    from .onnx_ops import CONVERTERS

    graph = context.graph
    graph.meta = {clean(p.key): clean(p.value) for p in model.metadata_props if p.key}
    graph.meta["opset"] = str(opset)
    for name, (_, shape) in inputs.items():
        dtype = context.dtype(name)
        if dtype not in DTYPE_OF.values():
            problems.add(Problem(f"input '{name}' is of type {dtype}; this version computes in float32: convert the model"))
            dtype = "f32"
        value = Value(graph.fresh(clean(name)), dtype, shape)
        fault = value_fault(value)
        if fault:
            problems.add(Problem(f"input '{name}' {fault}", unsupported=False))
        context.values[name] = value
        graph.inputs.append(value)
    failed: set[str] = set()
    live, context.needed = _live(model, context)
    for proto in live:
        node = context.node = OnnxNode(proto, opset)
        converter = CONVERTERS.get(node.op) if proto.domain in onnx_fold.STANDARD else None
        before, done = len(graph.nodes), False
        try:
            for folded in context.folded:
                if node.output(0) in folded.too_large:
                    raise Problem(folded.too_large[node.output(0)])
            if converter is None:
                raise Problem("this operator is not supported", _remedy(node.op))
            # What reads a failed node's result fails for the same reason: that is told once.
            if failed.isdisjoint(proto.input):
                converter(context, node)
                done = True
        except Problem as problem:
            problems.add(problem, node)
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            problems.add(Problem(f"malformed: {error}", unsupported=False), node)
        if not done:
            failed.update(proto.output)
            del graph.nodes[before:]
    _outputs(model, context, failed, problems)
    problems.throw()
    return graph


def _outputs(model: onnx.ModelProto, context: Context, failed: set[str], problems: Problems) -> None:
    graph = context.graph
    for info in model.graph.output:
        if info.name in failed:
            continue
        try:
            value = context.value(info.name)
        except Problem as problem:
            problems.add(Problem(f"output '{info.name}': {problem.reason}", problem.remedy, problem.unsupported))
            continue
        if value in graph.inputs or value.data is not None:
            # The model file wants outputs that a node makes.
            y = Value(graph.fresh(f"{value.name}/output"), value.dtype, value.shape)
            if value.data is not None:
                value.name, y.name = y.name, value.name
            graph.nodes.append(Node("identity", graph.fresh_node(y.name), [value], [y]))
            value = y
        graph.outputs.append(value)
    if not model.graph.output:
        problems.add(Problem("the model has no outputs", unsupported=False))


_POST = {"NonMaxSuppression", "TopK", "ArgMax", "ArgMin", "NonZero", "Unique"}


def _remedy(op: str) -> str:
    if op in _POST:
        return "end the model before it (onnx.utils.extract_model) and do this step in the program"
    if op in ("If", "Loop", "Scan"):
        return "simplify the model with fixed input shapes (--shape, or when exporting) so that it vanishes"
    return "end the model before it (onnx.utils.extract_model), or replace it when exporting"
