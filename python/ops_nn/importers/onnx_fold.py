"""What of an ONNX graph is constant once the inputs' shapes are known: weights, and the arithmetic on shapes that exporters
leave behind (Shape, Gather, Concat, ConstantOfShape ... feeding Reshape, Pad, Slice).

onnx's own shape inference and reference evaluator do the work, in turns, until nothing more becomes known. Sizes are
estimated before anything is computed, so that no model can make us allocate what it does not bring along.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
import onnx
from onnx import helper, numpy_helper, reference, shape_inference

from ..ir import Array
from ..shapes import Binding

BUDGET_BYTES = 256 << 20  # of all that folding may make, for one model
_SMALL = 4096  # elements: constants up to this size are shown to shape inference, which wants the values of shapes only
_ROUNDS = 64
STANDARD = ("", "ai.onnx")  # names of the domain of ONNX's own operators

Inputs = Sequence[Optional[Array]]


def _product(numbers: Iterable[Any]) -> int:
    total = 1
    for n in numbers:
        total *= max(0, int(n))
    return total


def _largest(inputs: Inputs) -> int:
    return sum(x.size for x in inputs if x is not None)


def _broadcast(inputs: Inputs) -> int:
    return _product(np.broadcast_shapes(*(x.shape for x in inputs if x is not None)))


def _given(inputs: Inputs, i: int) -> Array:
    value = inputs[i]
    assert value is not None
    return value


def _constant_of_shape(inputs: Inputs) -> int:
    return _product(_given(inputs, 0))


def _expand(inputs: Inputs) -> int:
    return _product(np.broadcast_shapes(_given(inputs, 0).shape, tuple(int(d) for d in _given(inputs, 1))))


def _tile(inputs: Inputs) -> int:
    return _given(inputs, 0).size * _product(_given(inputs, 1))


def _range(inputs: Inputs) -> int:
    start, limit, delta = (float(_given(inputs, i).item()) for i in range(3))
    return max(0, int((limit - start) / delta) + 1)


def _gather(inputs: Inputs) -> int:
    # At most: each index takes everything but the axis, whose length is at least 1.
    return max(1, _given(inputs, 1).size) * max(1, _given(inputs, 0).size)


def _pad(inputs: Inputs) -> int:
    x, pads = _given(inputs, 0), [abs(int(p)) for p in _given(inputs, 1)]
    return _product(d + 2 * max(pads, default=0) for d in x.shape)


def _estimates() -> dict[str, Callable[[Inputs], int]]:
    """Operators that may be folded, and how many elements they make at most."""
    no_larger = """Abs Cast Ceil Clip Concat Constant CumSum Dropout Elu Erf Exp Flatten Floor HardSigmoid Identity IsInf IsNaN
        LeakyRelu Log Neg Not NonZero Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Round
        ScatterElements ScatterND Shape Sigmoid Sign Size Slice Softmax Split Sqrt Squeeze Tanh Transpose Trilu Unsqueeze"""
    broadcasting = """Add And BitShift BitwiseAnd BitwiseOr Div Equal GatherElements Greater GreaterOrEqual Less LessOrEqual
        Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor"""
    return {
        **dict.fromkeys(no_larger.split(), _largest), **dict.fromkeys(broadcasting.split(), _broadcast),
        "ConstantOfShape": _constant_of_shape, "Expand": _expand, "Tile": _tile, "Range": _range, "Pad": _pad,
        "Gather": _gather, "GatherND": _gather,
    }


_ESTIMATE = _estimates()


@dataclass
class Folded:
    """What is known of a model under one binding of its open dimensions."""

    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    elem_types: dict[str, int] = field(default_factory=dict)  # onnx.TensorProto.*
    # Nodes with constant inputs that were not folded, by their first output, and why.
    too_large: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def bind(shape: Sequence[Any], binding: Binding) -> tuple[int, ...]:
    return tuple(binding[d] if isinstance(d, str) else d for d in shape)


def fold(
    model: onnx.ModelProto,
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    constants: Mapping[str, Array],
    binding: Binding,
) -> Folded:
    """inputs: element type and shape of each of the model's inputs, with names for open dimensions, which binding turns into
    numbers. constants: the initialisers."""
    state = Folded(dict(constants))
    for name, (elem_type, shape) in inputs.items():
        state.elem_types[name], state.shapes[name] = elem_type, bind(shape, binding)
    waiting = list(model.graph.node)
    left = BUDGET_BYTES
    for _ in range(_ROUNDS):
        _infer(model, waiting, {k: (t, bind(s, binding)) for k, (t, s) in inputs.items()}, state)
        still: list[onnx.NodeProto] = []
        for node in waiting:
            made = _evaluate(node, model, state, left)
            if made is None:
                still.append(node)
                continue
            for name, array in zip(node.output, made):
                if name:
                    state.constants[name] = array
                    left -= array.nbytes
        if len(still) == len(waiting):
            break
        waiting = still
    for name, array in state.constants.items():
        state.shapes[name] = array.shape
        state.elem_types[name] = _elem_type(array)
    return state


def _elem_type(array: Array) -> int:
    try:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype))
    except (KeyError, ValueError, TypeError):
        return int(onnx.TensorProto.UNDEFINED)


def _infer(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[int, tuple[int, ...]]], state: Folded
) -> None:
    """Shape inference over the nodes that are left. Large constants take part as inputs, so that no weights are copied."""
    graph = onnx.GraphProto(name="shapes")
    graph.node.extend(n for n in nodes if n.domain in STANDARD)  # of others nothing is known
    for name, (elem_type, shape) in inputs.items():
        graph.input.append(helper.make_tensor_value_info(name, elem_type, shape))
    read = {name for node in nodes for name in node.input}
    for name, array in state.constants.items():
        if name not in read or array.dtype == object:
            continue
        if array.size <= _SMALL:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(helper.make_tensor_value_info(name, _elem_type(array), array.shape))
    graph.output.extend(onnx.ValueInfoProto(name=o.name) for o in model.graph.output)
    skeleton = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        inferred = shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except Exception:
        return
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        kind = info.type.tensor_type
        if not info.type.HasField("tensor_type"):
            continue
        state.elem_types[info.name] = kind.elem_type
        if kind.HasField("shape") and all(d.HasField("dim_value") and d.dim_value >= 0 for d in kind.shape.dim):
            state.shapes[info.name] = tuple(d.dim_value for d in kind.shape.dim)


def _evaluate(node: onnx.NodeProto, model: onnx.ModelProto, state: Folded, left: int) -> Optional[list[Array]]:
    """The node's outputs if they are constant, and cheap enough to be made now."""
    if node.domain not in STANDARD or node.op_type not in _ESTIMATE:
        return None
    if node.op_type in ("Shape", "Size") and node.input and node.input[0] in state.shapes:
        return [_shape(node, state.shapes[node.input[0]])]
    if any(name and name not in state.constants for name in node.input):
        return None
    inputs = [state.constants[name] if name else None for name in node.input]
    where = node.output[0] if node.output else ""
    try:
        elements = _ESTIMATE[node.op_type](inputs)
        if elements * 8 > left:
            state.too_large[where] = f"its constant result of {elements} elements is too large to be computed in advance"
            return None
        feeds = {name: array for name, array in zip(node.input, inputs) if array is not None}
        graph = helper.make_graph(
            [node], "constant",
            [helper.make_tensor_value_info(name, _elem_type(array), array.shape) for name, array in feeds.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        results = reference.ReferenceEvaluator(single).run(None, feeds)
        made = dict(zip((name for name in node.output if name), results))
        return [np.asarray(made[name]) if name else np.zeros(0) for name in node.output]
    except Exception as error:
        state.failed[where] = f"computing it in advance failed: {error}"
        return None


def _shape(node: onnx.NodeProto, shape: tuple[int, ...]) -> Array:
    if node.op_type == "Size":
        return np.asarray(_product(shape), np.int64)
    limits = {a.name: a.i for a in node.attribute}
    return np.asarray(shape[limits.get("start", 0) : limits.get("end", len(shape))], np.int64)
