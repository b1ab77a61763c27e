"""TensorFlow Lite models to graphs.

    load("net.tflite")

A file is read into plain objects (`_Reader`), every access checked, and then converted operator by operator (tflite_ops.py).
Pictures are nhwc in TensorFlow Lite, and so are the nodes made here; inputs and outputs stay as the model has them.

Quantised models become float ones: constants are dequantised, and what an operator's integers could not hold is clamped. Every
value keeps how it was quantised (`Value.quantization`). The model's own inputs and outputs are float, too.

Variables, in which a model keeps its state between runs, become inputs, and outputs that are called NAME/next.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import tflite

from .. import schema as S
from ..errors import FileError, FormatError
from ..ir import NUMPY, Array, Dim, Graph, Node, Quantization, Shape, Value, count, node_fault, value_fault
from .problems import Problem, Problems

Source = Union[str, "os.PathLike[str]", bytes]
Shapes = Mapping[str, Union[int, Sequence[int]]]

DAMAGE = (struct.error, ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError)  # what broken bytes raise

_DTYPES = {
    tflite.TensorType.FLOAT32: "f32", tflite.TensorType.FLOAT16: "f16", tflite.TensorType.FLOAT64: "f64",
    tflite.TensorType.INT8: "s8", tflite.TensorType.INT16: "s16", tflite.TensorType.INT32: "s32",
    tflite.TensorType.INT64: "s64", tflite.TensorType.UINT8: "u8", tflite.TensorType.UINT16: "u16",
    tflite.TensorType.UINT32: "u32", tflite.TensorType.UINT64: "u64", tflite.TensorType.BOOL: "bool",
}  # fmt: skip
_TYPE_NAMES = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
_OP_NAMES = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
_MAX_OPERANDS = 1024  # of one operator; concatenations have the most


@dataclass(frozen=True)
class Tensor:
    """dtype   a name of schema.DTYPES, or TensorFlow Lite's own in capitals
    shape   None or a symbol for an open dimension
    sizes   the shape that the file was written for
    data    a constant's elements as stored
    """

    name: str
    dtype: str
    shape: Shape
    sizes: tuple[int, ...]
    data: Optional[Array]
    quantization: Optional[Quantization]
    fault: str  # why nothing can be done with it, or ''


@dataclass(frozen=True)
class Operator:
    index: int
    op: str  # the operator's name, for custom ones the model's
    inputs: tuple[int, ...]  # of the tensors; -1 where an optional one is not given
    outputs: tuple[int, ...]
    options: Any  # a flatbuffers table, or None
    custom: bytes

    def option(self, kind: Any) -> Any:
        """The operator's options as a class of the package tflite."""
        if self.options is None:
            raise Problem("its options are missing", unsupported=False)
        table = kind()
        table.Init(self.options.Bytes, self.options.Pos)
        return table


@dataclass(frozen=True)
class File:
    name: str
    meta: dict[str, str]
    tensors: list[Tensor]
    operators: list[Operator]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass
class Context:
    """A graph in the making. Converters read tensors by their index in the file and emit nodes."""

    graph: Graph
    file: File
    values: dict[int, Value] = field(default_factory=dict)
    needed: set[int] = field(default_factory=set)  # tensors that somebody reads
    node: Operator = Operator(-1, "", (), (), None, b"")  # the one being converted

    # --- what is known of tensors ---

    def given(self, i: int) -> int:
        """The tensor that is input i of this node, -1 where it is not given."""
        return self.node.inputs[i] if i < len(self.node.inputs) else -1

    def output(self, i: int = 0) -> int:
        if i >= len(self.node.outputs):
            raise Problem(f"it has {len(self.node.outputs)} outputs", unsupported=False)
        return self.node.outputs[i]

    def about(self, i: int) -> Tensor:
        if i < 0:
            raise Problem("a required input is missing", unsupported=False)
        return self.file.tensors[i]

    def shape(self, i: int) -> Shape:
        return self.about(i).shape

    def rank(self, i: int) -> int:
        return len(self.shape(i))

    def static(self, i: int) -> tuple[int, ...]:
        """Dimensions that must all be numbers."""
        shape = self.shape(i)
        known = tuple(d for d in shape if isinstance(d, int))
        if len(known) != len(shape):
            raise Problem(f"'{self.about(i).name}' has an open dimension, a number is needed")
        return known

    def size(self, i: int, axis: int) -> int:
        """One dimension, which must be a number."""
        shape = self.shape(i)
        size = shape[axis] if -len(shape) <= axis < len(shape) else None
        if not isinstance(size, int):
            raise Problem(f"dimension {axis} of '{self.about(i).name}' {shape} is not known")
        return size

    # --- operands ---

    def value(self, i: int) -> Value:
        """Any tensor. Quantised ones are float in the graph."""
        if i in self.values:
            return self.values[i]
        tensor = self.about(i)
        if tensor.fault:
            raise Problem(f"'{tensor.name}' {tensor.fault}")
        if tensor.data is None:
            raise Problem(f"input '{tensor.name}' is made by nothing before this node", unsupported=False)
        if is_quantized(tensor):
            assert tensor.quantization is not None
            data, dtype = tensor.quantization.dequantize(tensor.data), "f32"
        else:
            data, dtype = tensor.data, tensor.dtype
        value = Value(self.graph.fresh(tensor.name), dtype, data.shape, data, quantization=tensor.quantization)
        fault = value_fault(value)
        if fault:
            raise Problem(f"'{tensor.name}' {fault}", unsupported=False)
        self.values[i] = value
        return value

    def tensor(self, i: int) -> Value:
        """A float32 value: what arithmetic works on."""
        value = self.value(i)
        if value.dtype != "f32":
            raise Problem(f"'{value.name}' is of type {value.dtype}, and this operator computes in float32 here")
        return value

    def optional(self, i: int) -> Optional[Value]:
        """tensor() of an input that need not be given."""
        return self.tensor(i) if i >= 0 else None

    def ints(self, i: int, what: str) -> tuple[int, ...]:
        """A constant list of integers. what: its role, for the message."""
        tensor = self.about(i)
        if tensor.data is None:
            raise Problem(f"{what} ('{tensor.name}') must be constant: it is computed from the data")
        if tensor.data.dtype.kind not in "iu" or tensor.data.size > 2 * S.MAX_RANK:
            raise Problem(f"{what} ('{tensor.name}') is no list of integers", unsupported=False)
        return tuple(int(n) for n in tensor.data.reshape(-1))

    def number(self, i: int, what: str) -> int:
        numbers = self.ints(i, what)
        if len(numbers) != 1:
            raise Problem(f"{what} has {len(numbers)} elements instead of one", unsupported=False)
        return numbers[0]

    # --- results ---

    def emit(
        self, op: str, inputs: Sequence[Optional[Value]], output: Optional[int] = None, layout: str = "any", **attrs: Any
    ) -> Value:
        """A node. output: the tensor that it makes; None for a step in between."""
        label = self.label(self.node)
        if op not in S.BY_NAME:
            raise Problem(f"it needs the operator {op}, which this version lacks")
        if output is None:
            y = Value(self.graph.fresh(f"{label}/{op}"), "f32", None)
        else:
            tensor = self.about(output)
            if output in self.values:
                raise Problem(f"'{tensor.name}' is made twice", unsupported=False)
            if tensor.fault:
                raise Problem(f"'{tensor.name}' {tensor.fault}")
            dtype = "f32" if is_quantized(tensor) else tensor.dtype
            y = Value(self.graph.fresh(tensor.name), dtype, tensor.shape, quantization=tensor.quantization)
            self.values[output] = y
        node = Node(op, self.graph.fresh_node(label), list(inputs), [y], attrs, layout)
        fault = node_fault(node) or value_fault(y)
        if fault:
            raise Problem(fault, unsupported=False)
        self.graph.nodes.append(node)
        return y

    def label(self, node: Operator) -> str:
        """A node's name: its first output's."""
        return self.file.tensors[node.outputs[0]].name if node.outputs else f"{node.op}_{node.index}"


def is_quantized(tensor: Tensor) -> bool:
    """Integers that stand for numbers."""
    return tensor.quantization is not None and tensor.dtype in ("s8", "u8", "s16", "s32")


def load(source: Source, shapes: Optional[Shapes] = None) -> Graph:
    """Imports a model from a file or its bytes.

    shapes  fixes dimensions that the model leaves open: by an input's name all of its dimensions, by an open dimension's name
            just that one. Those that stay open become symbols of the graph.

    Raises FileError, FormatError, or, with all problems in one text and in .problems, UnsupportedOperator or ModelError.
    """
    if isinstance(source, bytes):
        data, name = source, "model"
    else:
        name = Path(source).name
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise FileError(f"{source}: cannot be read: {error.strerror or error}") from error
    if data[4:8] != b"TFL3":
        raise FormatError(f"{name}: is no TensorFlow Lite model")
    try:
        reader, problems = _Reader(data), Problems(name)
        file = _variables(reader, reader.file(), problems)
    except DAMAGE as error:
        raise FormatError(f"{name}: is a damaged TensorFlow Lite model: {error}") from None
    except Problem as problem:
        raise FormatError(f"{name}: is a damaged TensorFlow Lite model: {problem.reason}") from None
    file = _fix(file, dict(shapes or {}), problems)
    problems.throw()
    return _convert(file, problems)


# --- reading ---------------------------------------------------------------------------------------------------------------


class _Reader:
    """The bytes as plain objects. flatbuffers has no verifier for Python: bytes that lead outside raise one of DAMAGE here, and
    whatever numbers they hold is checked before it is used."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.model = tflite.Model.GetRootAs(data, 0)

    def file(self, index: int = 0) -> File:
        """One of the model's graphs; the first is the model itself."""
        if index not in range(self.model.SubgraphsLength()):
            raise ValueError(f"it has {self.model.SubgraphsLength()} graphs and not number {index}")
        graph = self.model.Subgraphs(index)
        self.names: set[str] = set()
        tensors = [self.tensor(i, graph.Tensors(i)) for i in range(graph.TensorsLength())]
        n = len(tensors)
        operators = [self.operator(i, graph.Operators(i), n) for i in range(graph.OperatorsLength())]
        inputs = self.numbers(graph, "Inputs", range(n))
        outputs = self.numbers(graph, "Outputs", range(n))
        description = text(self.model.Description())
        meta = {"tflite_version": str(self.model.Version()), **({"description": description} if description else {})}
        return File(text(graph.Name()) or "model", meta, tensors, operators, inputs, outputs)

    def numbers(self, table: Any, name: str, allowed: range, most: int = _MAX_OPERANDS) -> tuple[int, ...]:
        array = getattr(table, f"{name}AsNumpy")()
        if isinstance(array, int):  # a vector that is not there
            return ()
        if array.size > most:
            raise ValueError(f"{array.size} {name.lower()} are more than {most}")
        found = tuple(int(i) for i in array)
        wrong = [i for i in found if i not in allowed]
        if wrong:
            raise ValueError(f"{name.lower()} has {wrong[0]}, outside {allowed.start} to {allowed.stop - 1}")
        return found

    def tensor(self, index: int, table: Any) -> Tensor:
        # Names are made unique at once: the outputs' are then never changed.
        name = text(table.Name()) or f"tensor_{index}"
        name = name if name not in self.names else f"{name}_{index}"
        self.names.add(name)
        kind = table.Type()
        dtype = _DTYPES.get(kind, str(_TYPE_NAMES.get(kind, kind)))
        sizes = self.numbers(table, "Shape", range(2**31), S.MAX_RANK)
        signature = self.numbers(table, "ShapeSignature", range(-1, 2**31), S.MAX_RANK) or sizes
        if len(signature) != len(sizes):
            raise ValueError(f"tensor '{name}' has the shapes {sizes} and {signature}")
        shape: Shape = tuple(None if s == -1 else d for s, d in zip(signature, sizes))
        fault = "" if dtype in S.DTYPE_ID else f"is of type {dtype}, which is not supported"
        if table.Sparsity() is not None:
            fault = "is stored sparsely, which is not supported; store it densely"
        data = None if fault else self.content(table.Buffer(), name, NUMPY[dtype], sizes)
        quantization = self.quantization(table, name, sizes)
        return Tensor(name, dtype, shape if data is None else sizes, sizes, data, quantization, fault)

    def content(self, index: int, name: str, dtype: np.dtype[Any], sizes: tuple[int, ...]) -> Optional[Array]:
        """A constant's elements; None where there are none."""
        if index == 0:  # by definition the empty one
            return None
        if index >= self.model.BuffersLength():
            raise ValueError(f"tensor '{name}' refers to buffer {index} of {self.model.BuffersLength()}")
        buffer = self.model.Buffers(index)
        raw = buffer.DataAsNumpy()
        if buffer.Offset() > 1:  # of files beyond 2 GB: behind the flatbuffer
            if buffer.Offset() + buffer.Size() > len(self.data):
                raise ValueError(f"the data of tensor '{name}' lie outside the file")
            raw = np.frombuffer(self.data, np.uint8, buffer.Size(), buffer.Offset())
        if isinstance(raw, int) or raw.size == 0:
            return None
        n = count(sizes)
        if n is None or raw.size != n * dtype.itemsize:
            raise ValueError(f"tensor '{name}' has {raw.size} bytes, {sizes} of {dtype} needs {(n or 0) * dtype.itemsize}")
        return np.array(np.frombuffer(raw.tobytes(), dtype.newbyteorder("<")).reshape(sizes), dtype)

    def quantization(self, table: Any, name: str, sizes: tuple[int, ...]) -> Optional[Quantization]:
        found = table.Quantization()
        scale = 0 if found is None else found.ScaleAsNumpy()
        if found is None or isinstance(scale, int) or scale.size == 0:
            return None
        zero_point = found.ZeroPointAsNumpy()
        scale = np.array(scale, np.float32)
        zero_point = np.zeros(scale.size, np.int64) if isinstance(zero_point, int) else np.array(zero_point, np.int64)
        axis = found.QuantizedDimension() if scale.size > 1 else 0
        if not np.all(np.isfinite(scale)) or np.any(np.abs(zero_point) > 2**31):
            raise ValueError(f"the quantisation of tensor '{name}' is no finite one")
        if zero_point.size == 1:
            zero_point = np.repeat(zero_point, scale.size)
        fits = scale.size == 1 or (0 <= axis < len(sizes) and sizes[axis] == scale.size)
        if not fits or zero_point.size != scale.size:
            raise ValueError(
                f"tensor '{name}' {sizes} has {scale.size} scales and {zero_point.size} zero points along axis {axis}"
            )
        kind = _DTYPES.get(table.Type(), "")
        return Quantization(kind, scale, zero_point, axis)

    def operator(self, index: int, table: Any, n_tensors: int) -> Operator:
        if table.OpcodeIndex() >= self.model.OperatorCodesLength():
            raise ValueError(f"operator {index} has the code {table.OpcodeIndex()} of {self.model.OperatorCodesLength()}")
        code = self.model.OperatorCodes(table.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())  # older files have only the second
        name = str(_OP_NAMES.get(number, f"operator {number}"))
        if number == tflite.BuiltinOperator.CUSTOM:
            name = text(code.CustomCode()) or "CUSTOM"
        custom = table.CustomOptionsAsNumpy()
        inputs = self.numbers(table, "Inputs", range(-1, n_tensors))
        outputs = self.numbers(table, "Outputs", range(n_tensors))
        options = table.BuiltinOptions()
        return Operator(index, name, inputs, outputs, options, b"" if isinstance(custom, int) else custom.tobytes())


def text(raw: Optional[bytes]) -> str:
    """Names end up as C strings."""
    return (raw or b"").decode("utf-8", "replace").replace("\0", "")


def _variables(reader: _Reader, file: File, problems: Problems) -> File:
    """The file without variables: what is read before it is assigned is an input, what is assigned last an output. Both are
    float, and a state begins with zeros: other first values are refused."""
    tensors, inputs, outputs = list(file.tensors), list(file.inputs), list(file.outputs)
    operators: list[Operator] = []
    handles: dict[int, str] = {}  # the variable's name by the tensor that refers to it
    present: dict[str, int] = {}  # the tensor that a variable holds
    assigned: dict[str, int] = {}

    def add(name: str, like: int) -> int:
        known = tensors[like]
        tensors.append(replace(known, name=name, dtype="f32" if is_quantized(known) else known.dtype, data=None))
        return len(tensors) - 1

    for node in file.operators:
        if node.op == "VAR_HANDLE":
            handles[node.outputs[0]] = text(node.option(tflite.VarHandleOptions).SharedName()) or f"variable_{node.index}"
        elif node.op == "CALL_ONCE":
            first = reader.file(node.option(tflite.CallOnceOptions).InitSubgraphIndex())
            values = [first.tensors[n.inputs[1]] for n in first.operators if n.op == "ASSIGN_VARIABLE"]
            if any(n.op not in ("VAR_HANDLE", "ASSIGN_VARIABLE") for n in first.operators) or not all(map(_is_zero, values)):
                problems.add(Problem("its state begins with other values than zeros"), f"{node.op} (operator {node.index})")
        elif node.op == "READ_VARIABLE":
            name, output = handles[node.inputs[0]], node.outputs[0]
            if name not in present:
                present[name] = add(name, output)
                inputs.append(present[name])
            operators.append(replace(node, op="QUANTIZE", inputs=(present[name],)))
        elif node.op == "ASSIGN_VARIABLE":
            name = handles[node.inputs[0]]
            present[name] = assigned[name] = node.inputs[1]
        else:
            operators.append(node)
    for name, value in assigned.items():
        outputs.append(add(f"{name}/next", value))
        operators.append(Operator(len(file.operators), "DEQUANTIZE", (value,), (outputs[-1],), None, b""))
    return replace(file, tensors=tensors, operators=operators, inputs=tuple(inputs), outputs=tuple(outputs))


def _is_zero(tensor: Tensor) -> bool:
    if tensor.data is None:
        return False
    zero = tensor.quantization.zero_point[0] if tensor.quantization is not None else 0
    return bool(np.all(tensor.data == zero))


def _fix(file: File, fixed: dict[str, Union[int, Sequence[int]]], problems: Problems) -> File:
    """The file with its inputs' open dimensions named, or fixed as the user wants. Where all of them get the sizes for which
    the file was written, so do those of all other tensors."""
    unused = set(fixed)
    tensors = list(file.tensors)
    written = True
    for i in file.inputs:
        tensor = tensors[i]
        shape: list[Dim] = []
        for axis, dim in enumerate(tensor.shape):
            symbol = f"{tensor.name}_{axis}"
            wanted = fixed.get(symbol)
            if dim is None and isinstance(wanted, int):
                unused.discard(symbol)
                dim = wanted
            shape.append(symbol if dim is None else dim)
        given = fixed.get(tensor.name)
        if given is not None:
            unused.discard(tensor.name)
            given = (given,) if isinstance(given, int) else tuple(int(d) for d in given)
            if len(given) != len(shape) or any(isinstance(d, int) and d != g for d, g in zip(shape, given)):
                known = ", ".join(str(d) for d in shape)
                problems.add(Problem(f"input '{tensor.name}' is ({known}) and cannot be fixed to {given}", unsupported=False))
                continue
            shape = list(given)
        tensors[i] = replace(tensor, shape=tuple(shape))
        written = written and tuple(shape) == tensor.sizes
    for known in sorted(unused):
        names = ", ".join(tensors[i].name for i in file.inputs)
        what = f"a shape is given for '{known}', which is neither an input ({names}) nor an open dimension"
        problems.add(Problem(what, unsupported=False))
    return replace(file, tensors=[replace(t, shape=t.sizes) for t in tensors] if written else tensors)


# --- converting ------------------------------------------------------------------------------------------------------------


def _live(file: File) -> tuple[list[Operator], set[int]]:
    """Operators that the outputs need, in order, and all tensors that are needed."""
    from .tflite_ops import data_inputs

    needed = set(file.outputs)
    live: list[Operator] = []
    for node in reversed(file.operators):
        if not needed.isdisjoint(node.outputs):
            live.append(node)
            needed.update(data_inputs(file, node))
    return live[::-1], needed


def _convert(file: File, problems: Problems) -> Graph:
    from .tflite_ops import CONVERTERS, add_input

    context = Context(Graph(file.name, [], [], [], dict(file.meta)), file)
    graph = context.graph
    live, context.needed = _live(file)
    for i in file.inputs:
        tensor = file.tensors[i]
        if tensor.fault or tensor.data is not None or i in context.values:
            what = tensor.fault or ("is a constant" if tensor.data is not None else "is listed twice")
            problems.add(Problem(f"input '{tensor.name}' {what}", unsupported=bool(tensor.fault)))
            continue
        add_input(context, i)
    failed: set[int] = set()
    for node in live:
        context.node = node
        before, made, done = len(graph.nodes), dict(context.values), False
        try:
            converter = CONVERTERS.get(node.op)
            if converter is None:
                raise Problem("this operator is not supported", "end the model before it, or replace it when converting")
            # What reads a failed node's result fails for the same reason: that is told once.
            if failed.isdisjoint(node.inputs):
                converter(context)
                done = True
        except Problem as problem:
            problems.add(problem, f"{node.op} (operator {node.index})", context.label(node))
        except DAMAGE as error:
            what = f"{node.op} (operator {node.index})"
            problems.add(Problem(f"malformed: {error}", unsupported=False), what, context.label(node))
        if not done:
            failed.update(node.outputs)
            context.values = made
            del graph.nodes[before:]
    _outputs(context, failed, problems)
    problems.throw()
    return graph


def _outputs(context: Context, failed: set[int], problems: Problems) -> None:
    from .tflite_ops import output_of

    for i in context.file.outputs:
        if i in failed:
            continue
        try:
            context.graph.outputs.append(output_of(context, i))
        except Problem as problem:
            name = context.file.tensors[i].name
            problems.add(Problem(f"output '{name}': {problem.reason}", problem.remedy, problem.unsupported))
    if not context.file.outputs:
        problems.add(Problem("the model has no outputs", unsupported=False))
