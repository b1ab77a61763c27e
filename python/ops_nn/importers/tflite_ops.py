"""How each TensorFlow Lite operator becomes nodes of ours."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tflite

from .. import schema as S
from ..ir import NUMPY, Array, Node, Shape, Value, reshape_to
from .problems import Problem
from .tflite import Context, File, Operator, is_quantized

Converter = Callable[[Context], None]
CONVERTERS: dict[str, Converter] = {}

_ACTIVATIONS = {  # the fused ones that LiteRT has: each is a range
    tflite.ActivationFunctionType.NONE: (-S.INF, S.INF),
    tflite.ActivationFunctionType.RELU: (0.0, S.INF),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}
_UNLIMITED = {"lo": -S.INF, "hi": S.INF}


def converter(*names: str) -> Callable[[Converter], Converter]:
    def register(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(names, function))
        return function

    return register


def data_inputs(file: File, node: Operator) -> tuple[int, ...]:
    """The inputs whose data a node needs: a reshape to a computed shape takes its result's declared one."""
    return tuple(i for i in node.inputs[: 1 if node.op == "RESHAPE" else None] if i >= 0)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Problem(f"axis {axis} is outside the {rank} dimensions", unsupported=False)
    return axis % rank


def _axes(ctx: Context, i: int, rank: int) -> tuple[int, ...]:
    return tuple(sorted({_axis(a, rank) for a in ctx.ints(i, "axes")}))


def _range(ctx: Context, output: int, activation: int) -> dict[str, Any]:
    """A clamp: that of the activation, and what the output's integers can hold."""
    lo, hi = _ACTIVATIONS[activation]
    tensor = ctx.about(output)
    quantization = tensor.quantization
    if is_quantized(tensor) and quantization is not None and len(quantization.scale) == 1 and tensor.dtype != "s32":
        limits = np.iinfo(NUMPY[tensor.dtype])
        ends = quantization.dequantize(np.array([limits.min, limits.max], np.int64))
        lo, hi = max(lo, float(ends.min())), min(hi, float(ends.max()))
        lo = min(lo, hi)
    return {"lo": lo, "hi": hi}


def _clamped(
    ctx: Context, op: str, inputs: Sequence[Optional[Value]], activation: int = 0, layout: str = "any", **attrs: Any
) -> None:
    """Emits a node with a fused activation."""
    output = ctx.output()
    if activation not in _ACTIVATIONS:
        raise Problem(f"the fused activation {activation} is not supported")
    clamp = _range(ctx, output, activation)
    if any(a.name == "lo" for a in S.BY_NAME[op].attrs):
        ctx.emit(op, inputs, output, layout, **attrs, **clamp)
    elif clamp == _UNLIMITED:
        ctx.emit(op, inputs, output, layout, **attrs)
    else:
        ctx.emit("clip", [ctx.emit(op, inputs, None, layout, **attrs)], output, **clamp)


def _reshape(ctx: Context, x: Value, current: Shape, target: Shape, output: Optional[int] = None) -> Value:
    """A reshape to target, whose open dimensions are copied from the same place or, once, computed."""
    shape = reshape_to(current, target)
    if shape is None:
        raise Problem("its result has several open dimensions that cannot be told apart", "fix them with --shape")
    return ctx.emit("reshape", [x], output, shape=shape, allowzero=int(0 in target))


# --- quantisation ----------------------------------------------------------------------------------------------------------


def add_input(ctx: Context, i: int) -> None:
    """An input of the model; a quantised one is float here."""
    tensor = ctx.file.tensors[i]
    dtype = "f32" if is_quantized(tensor) else tensor.dtype
    x = Value(ctx.graph.fresh(tensor.name), dtype, tensor.shape, quantization=tensor.quantization)
    ctx.graph.inputs.append(x)
    ctx.values[i] = x


def output_of(ctx: Context, i: int) -> Value:
    """An output of the model, made by a node of its own if it is an input, a constant or an output already."""
    tensor, graph, value = ctx.file.tensors[i], ctx.graph, ctx.value(i)
    if value not in graph.inputs and value not in graph.outputs and value.data is None:
        return value
    y = Value(graph.fresh(f"{value.name}/output"), value.dtype, value.shape, quantization=tensor.quantization)
    if value not in graph.inputs and value not in graph.outputs:
        value.name, y.name = y.name, value.name
    graph.nodes.append(Node("identity", graph.fresh_node(y.name), [value], [y]))
    return y


@converter("DEQUANTIZE")
def _dequantize(ctx: Context) -> None:
    """Of integers: they are float already. Of float16 constants, as which weights are stored: at once."""
    i, output = ctx.given(0), ctx.output()
    tensor = ctx.about(i)
    if tensor.dtype != "f16":
        ctx.emit("identity", [ctx.tensor(i)], output)
    elif tensor.data is None:
        raise Problem(f"'{tensor.name}' is computed in float16; only constants may be")
    elif output in ctx.values:
        raise Problem(f"'{ctx.about(output).name}' is made twice", unsupported=False)
    else:
        ctx.values[output] = ctx.graph.constant(ctx.about(output).name, tensor.data.astype(np.float32))


@converter("QUANTIZE")
def _quantize(ctx: Context) -> None:
    _clamped(ctx, "clip", [ctx.tensor(ctx.given(0))])


# --- convolution, pooling --------------------------------------------------------------------------------------------------


def _padding(padding: int) -> str:
    names = {tflite.Padding.SAME: "same_upper", tflite.Padding.VALID: "valid"}
    if padding not in names:
        raise Problem(f"padding {padding} does not exist", unsupported=False)
    return names[padding]


def _rank4(ctx: Context, i: int) -> Value:
    if ctx.rank(i) != 4:
        raise Problem(f"'{ctx.about(i).name}' has {ctx.rank(i)} dimensions instead of 4", unsupported=False)
    return ctx.tensor(i)


def _window(options: Any) -> dict[str, Any]:
    return {"strides": (options.StrideH(), options.StrideW()), "auto_pad": _padding(options.Padding())}


@converter("CONV_2D", "DEPTHWISE_CONV_2D")
def _conv(ctx: Context) -> None:
    """Weights are [O, KH, KW, C/group], as ours; those of a depthwise convolution are [1, KH, KW, O]."""
    depthwise = ctx.node.op == "DEPTHWISE_CONV_2D"
    options = ctx.node.option(tflite.DepthwiseConv2DOptions if depthwise else tflite.Conv2DOptions)
    x, w, b = _rank4(ctx, ctx.given(0)), _rank4(ctx, ctx.given(1)), ctx.optional(ctx.given(2))
    channels = ctx.size(ctx.given(0), 3)
    if depthwise:
        group = channels
        if w.data is not None:
            w = ctx.graph.constant(w.name, np.ascontiguousarray(w.data.transpose(3, 1, 2, 0)))
        else:
            w = ctx.emit("transpose", [w], perm=(3, 1, 2, 0))
    else:
        each = ctx.size(ctx.given(1), 3)
        if each < 1 or channels % each:
            raise Problem(f"{channels} channels do not divide into groups of {each}", unsupported=False)
        group = channels // each
    attrs = {**_window(options), "dilations": (options.DilationHFactor(), options.DilationWFactor()), "group": group}
    _clamped(ctx, "conv2d", [x, w, b], options.FusedActivationFunction(), "nhwc", **attrs)


@converter("MAX_POOL_2D", "AVERAGE_POOL_2D")
def _pool(ctx: Context) -> None:
    options = ctx.node.option(tflite.Pool2DOptions)
    op = "max_pool" if ctx.node.op == "MAX_POOL_2D" else "average_pool"
    attrs = {**_window(options), "kernel_shape": (options.FilterHeight(), options.FilterWidth())}
    _clamped(ctx, op, [_rank4(ctx, ctx.given(0))], options.FusedActivationFunction(), "nhwc", **attrs)


@converter("MEAN", "SUM", "REDUCE_MAX")
def _reduce(ctx: Context) -> None:
    """A reduction over neighbouring axes is a global pool of the tensor seen as [before, those axes, 1, behind]; other axes are
    brought together first. A sum is the mean, so many times."""
    i, output = ctx.given(0), ctx.output()
    x, shape = ctx.tensor(i), ctx.shape(i)
    op = "global_max_pool" if ctx.node.op == "REDUCE_MAX" else "global_average_pool"
    axes = _axes(ctx, ctx.given(1), len(shape))
    keep = bool(ctx.node.option(tflite.ReducerOptions).KeepDims())
    if not axes:
        _clamped(ctx, "clip", [x])
        return
    if ctx.node.op == "MEAN" and keep and len(shape) == 4 and axes == (1, 2):
        _clamped(ctx, op, [x], 0, "nhwc")
        return
    result = tuple(1 if a in axes else d for a, d in enumerate(shape) if keep or a not in axes)
    first, end = axes[0], axes[-1] + 1
    if axes != tuple(range(first, end)):
        rest = tuple(a for a in range(len(shape)) if a not in axes)
        x, shape = ctx.emit("transpose", [x], perm=(*rest, *axes)), tuple(shape[a] for a in (*rest, *axes))
        first, end = len(rest), len(shape)
    n = [_joined(part) for part in (shape[:first], shape[first:end], shape[end:])]
    x = _reshape(ctx, x, shape, (n[0], n[1], 1, n[2]))
    y = ctx.emit(op, [x], None, "nhwc")
    if ctx.node.op == "SUM":
        if n[1] is None:
            raise Problem("it sums over an open dimension", "fix it with --shape")
        y = ctx.emit("mul", [y, ctx.graph.constant("count", np.float32(n[1]))])
    clamp = _range(ctx, output, 0)
    if clamp != _UNLIMITED:
        y = ctx.emit("clip", [y], **clamp)
    _reshape(ctx, y, (n[0], 1, 1, n[2]), result, output)


def _joined(shape: Shape) -> Optional[int]:
    """The dimension that several make when joined; None if one of them is open."""
    total = 1
    for dim in shape:
        if not isinstance(dim, int):
            return None
        total *= dim
    return total


# --- matrices --------------------------------------------------------------------------------------------------------------


@converter("FULLY_CONNECTED")
def _fully_connected(ctx: Context) -> None:
    """x as rows of the weights' length, times [O, K] transposed."""
    options = ctx.node.option(tflite.FullyConnectedOptions)
    if options.WeightsFormat() != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise Problem("its weights are shuffled, which is not supported", unsupported=True)
    i, w = ctx.given(0), ctx.tensor(ctx.given(1))
    if ctx.rank(ctx.given(1)) != 2:
        raise Problem("its weights are no matrix", unsupported=False)
    x, shape, k = ctx.tensor(i), ctx.shape(i), ctx.size(ctx.given(1), 1)
    if not options.KeepNumDims() and (len(shape) != 2 or shape[1] != k):
        x = ctx.emit("reshape", [x], shape=(-1, k))
    _clamped(ctx, "matmul", [x, w, ctx.optional(ctx.given(2))], options.FusedActivationFunction(), trans_b=1)


@converter("BATCH_MATMUL")
def _batch_matmul(ctx: Context) -> None:
    options = ctx.node.option(tflite.BatchMatMulOptions)
    a, rank = ctx.tensor(ctx.given(0)), ctx.rank(ctx.given(0))
    if rank < 2:
        raise Problem("a vector has no matrix product", unsupported=False)
    if options.AdjX():
        a = ctx.emit("transpose", [a], perm=(*range(rank - 2), rank - 1, rank - 2))
    _clamped(ctx, "matmul", [a, ctx.tensor(ctx.given(1))], trans_b=int(options.AdjY()))


# --- element-wise ----------------------------------------------------------------------------------------------------------

_FUSED: dict[str, tuple[str, Any]] = {  # ours, and the class of its options
    "ADD": ("add", tflite.AddOptions), "SUB": ("sub", tflite.SubOptions), "MUL": ("mul", tflite.MulOptions),
    "DIV": ("div", tflite.DivOptions), "MAXIMUM": ("max", None), "MINIMUM": ("min", None), "POW": ("pow", None),
}  # fmt: skip


@converter(*_FUSED)
def _binary(ctx: Context) -> None:
    op, kind = _FUSED[ctx.node.op]
    activation = ctx.node.option(kind).FusedActivationFunction() if kind and ctx.node.options is not None else 0
    _clamped(ctx, op, [ctx.tensor(ctx.given(0)), ctx.tensor(ctx.given(1))], activation)


@converter("SQUARED_DIFFERENCE")
def _squared_difference(ctx: Context) -> None:
    d = ctx.emit("sub", [ctx.tensor(ctx.given(0)), ctx.tensor(ctx.given(1))])
    _clamped(ctx, "mul", [d, d])


@converter("SQUARE")
def _square(ctx: Context) -> None:
    x = ctx.tensor(ctx.given(0))
    _clamped(ctx, "mul", [x, x])


@converter("PRELU")
def _prelu(ctx: Context) -> None:
    _clamped(ctx, "prelu", [ctx.tensor(ctx.given(0)), ctx.tensor(ctx.given(1))])


_RANGES = {
    "RELU": tflite.ActivationFunctionType.RELU, "RELU6": tflite.ActivationFunctionType.RELU6,
    "RELU_N1_TO_1": tflite.ActivationFunctionType.RELU_N1_TO_1,
}  # fmt: skip


@converter(*_RANGES)
def _relu(ctx: Context) -> None:
    _clamped(ctx, "clip", [ctx.tensor(ctx.given(0))], _RANGES[ctx.node.op])


@converter("RELU_0_TO_1")
def _relu_0_to_1(ctx: Context) -> None:
    ctx.emit("clip", [ctx.tensor(ctx.given(0))], ctx.output(), lo=0.0, hi=1.0)


_UNARY = {
    "HARD_SWISH": "hard_swish", "EXP": "exp", "LOG": "log", "SQRT": "sqrt", "ABS": "abs",
    "NEG": "neg", "FLOOR": "floor", "CEIL": "ceil", "ROUND": "round", "ELU": "elu", "SIGN": "sign",
}  # fmt: skip


@converter(*_UNARY)
def _unary(ctx: Context) -> None:
    _clamped(ctx, _UNARY[ctx.node.op], [ctx.tensor(ctx.given(0))])


@converter("LOGISTIC", "TANH")
def _sigmoid(ctx: Context) -> None:
    """What quantised ones can hold is their very range."""
    ctx.emit("sigmoid" if ctx.node.op == "LOGISTIC" else "tanh", [ctx.tensor(ctx.given(0))], ctx.output())


@converter("RSQRT")
def _rsqrt(ctx: Context) -> None:
    _clamped(ctx, "reciprocal", [ctx.emit("sqrt", [ctx.tensor(ctx.given(0))])])


@converter("LEAKY_RELU")
def _leaky_relu(ctx: Context) -> None:
    alpha = float(ctx.node.option(tflite.LeakyReluOptions).Alpha())
    _clamped(ctx, "leaky_relu", [ctx.tensor(ctx.given(0))], alpha=alpha)


@converter("GELU")
def _gelu(ctx: Context) -> None:
    kind = "tanh" if ctx.node.option(tflite.GeluOptions).Approximate() else "none"
    _clamped(ctx, "gelu", [ctx.tensor(ctx.given(0))], approximate=kind)


@converter("SOFTMAX", "LOG_SOFTMAX")
def _softmax(ctx: Context) -> None:
    x, log = ctx.tensor(ctx.given(0)), ctx.node.op == "LOG_SOFTMAX"
    beta = 1.0 if log else float(ctx.node.option(tflite.SoftmaxOptions).Beta())
    if beta != 1:
        x = ctx.emit("mul", [x, ctx.graph.constant("beta", np.float32(beta))])
    y = ctx.emit("softmax", [x], None if log else ctx.output(), axis=-1)
    if log:
        ctx.emit("log", [y], ctx.output())


# --- the same elements under another shape ---------------------------------------------------------------------------------


@converter("RESHAPE")
def _reshape_op(ctx: Context) -> None:
    """The shape is an input or, in older files, an option; where it is computed, the result's declared one is taken."""
    i, shape = ctx.given(1), ctx.given(0)
    if i >= 0 and ctx.about(i).data is not None:
        wanted = ctx.ints(i, "the shape")
    elif i < 0 and ctx.node.options is not None:
        array = ctx.node.option(tflite.ReshapeOptions).NewShapeAsNumpy()
        wanted = () if isinstance(array, int) else tuple(int(d) for d in array[: S.LIST_CAPACITY])
    else:
        _reshape(ctx, ctx.value(shape), ctx.shape(shape), ctx.shape(ctx.output()), ctx.output())
        return
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        raise Problem(f"its shape is {wanted}", unsupported=False)
    ctx.emit("reshape", [ctx.value(shape)], ctx.output(), shape=wanted, allowzero=int(0 in wanted))


@converter("SQUEEZE")
def _squeeze(ctx: Context) -> None:
    array = ctx.node.option(tflite.SqueezeOptions).SqueezeDimsAsNumpy() if ctx.node.options is not None else 0
    rank = ctx.rank(ctx.given(0))
    axes = () if isinstance(array, int) else tuple(sorted({_axis(int(a), rank) for a in array[: 2 * S.MAX_RANK]}))
    ctx.emit("squeeze", [ctx.value(ctx.given(0))], ctx.output(), axes=axes)


@converter("EXPAND_DIMS")
def _expand_dims(ctx: Context) -> None:
    axis = _axis(ctx.number(ctx.given(1), "the axis"), ctx.rank(ctx.given(0)) + 1)
    ctx.emit("unsqueeze", [ctx.value(ctx.given(0))], ctx.output(), axes=(axis,))


# --- data movement ---------------------------------------------------------------------------------------------------------


@converter("TRANSPOSE")
def _transpose(ctx: Context) -> None:
    perm, rank = ctx.ints(ctx.given(1), "the permutation"), ctx.rank(ctx.given(0))
    if sorted(perm) != list(range(rank)):
        raise Problem(f"{perm} does not order {rank} dimensions", unsupported=False)
    ctx.emit("transpose", [ctx.value(ctx.given(0))], ctx.output(), perm=perm)


@converter("CONCATENATION")
def _concatenation(ctx: Context) -> None:
    options = ctx.node.option(tflite.ConcatenationOptions)
    if options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE:
        raise Problem("a fused activation is not supported here")
    axis = _axis(options.Axis(), ctx.rank(ctx.given(0)))
    _concat(ctx, [ctx.value(i) for i in ctx.node.inputs], axis)


@converter("PACK")
def _pack(ctx: Context) -> None:
    axis = _axis(ctx.node.option(tflite.PackOptions).Axis(), ctx.rank(ctx.given(0)) + 1)
    _concat(ctx, [ctx.emit("unsqueeze", [ctx.value(i)], axes=(axis,)) for i in ctx.node.inputs], axis)


def _concat(ctx: Context, parts: list[Value], axis: int) -> None:
    n = S.MAX_INPUTS
    while len(parts) > n:
        groups = [parts[i : i + n] for i in range(0, len(parts), n)]
        parts = [ctx.emit("concat", group, axis=axis) for group in groups]
    ctx.emit("concat", parts, ctx.output(), axis=axis)


@converter("PAD", "PADV2", "MIRROR_PAD")
def _pad(ctx: Context) -> None:
    i, pads, mode, value = ctx.given(0), ctx.ints(ctx.given(1), "the padding"), "constant", 0.0
    if len(pads) != 2 * ctx.rank(i) or any(p < 0 for p in pads):
        raise Problem(f"the padding {pads} does not fit {ctx.rank(i)} dimensions", unsupported=False)
    if ctx.node.op == "PADV2":
        number = ctx.value(ctx.given(2)).data
        if number is None or number.size != 1:
            raise Problem("the value to pad with must be a constant number")
        value = float(number.reshape(-1)[0])
    elif ctx.node.op == "MIRROR_PAD":
        symmetric = ctx.node.option(tflite.MirrorPadOptions).Mode() == tflite.MirrorPadMode.SYMMETRIC
        if symmetric and max(pads) > 1:
            raise Problem("it repeats the border symmetrically, which is supported for a width of 1 only")
        mode = "edge" if symmetric else "reflect"
    ctx.emit("pad", [ctx.value(i)], ctx.output(), pads=(*pads[::2], *pads[1::2]), mode=mode, value=value)


_END = 2**31 - 1


def _slice(ctx: Context, i: int, output: int, axis: int, start: int, end: int, drop: bool = False) -> None:
    """Part of one axis, which is dropped if asked for."""
    y = ctx.emit("slice", [ctx.value(i)], None if drop else output, starts=(start,), ends=(end,), axes=(axis,), steps=(1,))
    if drop:
        ctx.emit("squeeze", [y], output, axes=(axis,))


@converter("SLICE")
def _slice_op(ctx: Context) -> None:
    starts, sizes = ctx.ints(ctx.given(1), "begin"), ctx.ints(ctx.given(2), "size")
    rank = ctx.rank(ctx.given(0))
    if len(starts) != rank or len(sizes) != rank or any(b < 0 for b in starts) or any(n < -1 for n in sizes):
        raise Problem(f"begin {starts} and size {sizes} do not fit {rank} dimensions", unsupported=False)
    ends = tuple(_END if n == -1 else min(b + n, _END) for b, n in zip(starts, sizes))
    ctx.emit(
        "slice", [ctx.value(ctx.given(0))], ctx.output(), starts=starts, ends=ends, axes=tuple(range(rank)), steps=(1,) * rank
    )


@converter("STRIDED_SLICE")
def _strided_slice(ctx: Context) -> None:
    """Bit i of a mask speaks of entry i of begin, end and strides."""
    options = ctx.node.option(tflite.StridedSliceOptions)
    begin, end, strides = (ctx.ints(ctx.given(i), what) for i, what in ((1, "begin"), (2, "end"), (3, "strides")))
    rank = ctx.rank(ctx.given(0))
    if not len(begin) == len(end) == len(strides) or 0 in strides:
        raise Problem(f"begin {begin}, end {end} and strides {strides} do not fit each other", unsupported=False)
    if options.EllipsisMask() or options.NewAxisMask() or options.Offset():
        raise Problem("an ellipsis, new axes and lengths instead of ends are not supported")
    if len(begin) > rank:
        raise Problem(f"it slices {len(begin)} of {rank} dimensions", unsupported=False)
    starts, ends, steps, drop = [], [], [], []
    for axis, (b, e, step) in enumerate(zip(begin, end, strides)):
        bit = 1 << axis
        if options.ShrinkAxisMask() & bit:
            drop.append(axis)
            b, e, step = b, b + 1 if b != -1 else _END, 1
        elif options.BeginMask() & bit:
            b = 0 if step > 0 else _END
        if options.EndMask() & bit and axis not in drop:
            e = _END if step > 0 else -_END
        starts.append(b)
        ends.append(min(e, _END))
        steps.append(step)
    axes = tuple(range(len(begin)))
    x, output = ctx.value(ctx.given(0)), ctx.output()
    attrs: dict[str, Any] = {"starts": tuple(starts), "ends": tuple(ends), "axes": axes, "steps": tuple(steps)}
    y = ctx.emit("slice", [x], None if drop else output, **attrs)
    if drop:
        ctx.emit("squeeze", [y], output, axes=tuple(drop))


@converter("SPLIT", "SPLIT_V")
def _split(ctx: Context) -> None:
    equal, n = ctx.node.op == "SPLIT", len(ctx.node.outputs)
    i = ctx.given(1 if equal else 0)
    axis = _axis(ctx.number(ctx.given(0 if equal else 2), "the axis"), ctx.rank(i))
    size = ctx.size(i, axis)
    if equal:
        if n < 1 or size % n:
            raise Problem(f"{size} does not divide into {n} parts", unsupported=False)
        sizes: tuple[int, ...] = (size // n,) * n
    else:
        sizes = ctx.ints(ctx.given(1), "the sizes")
        rest = size - sum(s for s in sizes if s != -1)
        sizes = tuple(rest if s == -1 else s for s in sizes)
    if len(sizes) != n or sum(sizes) != size or any(s < 0 for s in sizes):
        raise Problem(f"the sizes {sizes} do not fit {n} parts of {size}", unsupported=False)
    start = 0
    for output, part in zip(ctx.node.outputs, sizes):
        if output in ctx.needed:
            _slice(ctx, i, output, axis, start, start + part)
        start += part


@converter("UNPACK")
def _unpack(ctx: Context) -> None:
    i = ctx.given(0)
    axis = _axis(ctx.node.option(tflite.UnpackOptions).Axis(), ctx.rank(i))
    if ctx.size(i, axis) != len(ctx.node.outputs):
        raise Problem(f"{len(ctx.node.outputs)} outputs do not fit dimension {axis}", unsupported=False)
    for k, output in enumerate(ctx.node.outputs):
        if output in ctx.needed:
            _slice(ctx, i, output, axis, k, k + 1, drop=True)


@converter("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def _depth_space(ctx: Context) -> None:
    """The place in a block counts more than the channel."""
    to_space = ctx.node.op == "DEPTH_TO_SPACE"
    block = ctx.node.option(tflite.DepthToSpaceOptions if to_space else tflite.SpaceToDepthOptions).BlockSize()
    i = ctx.given(0)
    x = ctx.value(i)
    if ctx.rank(i) != 4 or block < 1:
        raise Problem(f"an input of {ctx.rank(i)} dimensions and blocks of {block} do not fit", unsupported=False)
    h, w, c = (ctx.size(i, axis) for axis in (1, 2, 3))
    if (c % (block * block)) if to_space else (h % block or w % block):
        raise Problem(f"{h}x{w}x{c} does not divide into blocks of {block}", unsupported=False)
    if to_space:
        _to_space(ctx, x, (h, w, c // (block * block)), (block, block))
        return
    h, w = h // block, w // block
    y = ctx.emit("reshape", [x], shape=(0, h, block, w, block, c))
    y = ctx.emit("transpose", [y], perm=(0, 1, 3, 2, 4, 5))
    ctx.emit("reshape", [y], ctx.output(), shape=(0, h, w, block * block * c))


def _to_space(ctx: Context, x: Value, size: tuple[int, int, int], block: tuple[int, int]) -> None:
    """[N, H, W, block * C] to [N, H * block, W * block, C], of H, W and C in `size`."""
    h, w, c = size
    y = ctx.emit("reshape", [x], shape=(0, h, w, *block, c))
    y = ctx.emit("transpose", [y], perm=(0, 1, 3, 2, 4, 5))
    ctx.emit("reshape", [y], ctx.output(), shape=(0, h * block[0], w * block[1], c))


# --- larger pictures -------------------------------------------------------------------------------------------------------


@converter("TRANSPOSE_CONV", "Convolution2DTransposeBias")
def _conv_transpose(ctx: Context) -> None:
    """Where windows do not overlap each pixel becomes a block of its own: a convolution of 1x1 makes the block's pixels as
    channels. Weights are [O, KH, KW, C]. The second is MediaPipe's; its options are padding and two strides as integers."""
    if ctx.node.op == "TRANSPOSE_CONV":
        options = ctx.node.option(tflite.TransposeConvOptions)
        x, w, bias, activation = ctx.given(2), ctx.given(1), ctx.given(3), options.FusedActivationFunction()
        strides = options.StrideH(), options.StrideW()
    else:
        x, w, bias, activation = ctx.given(0), ctx.given(1), ctx.given(2), tflite.ActivationFunctionType.NONE
        _, across, down = struct.unpack_from("<3i", ctx.node.custom)
        strides = down, across
    weights, b = _rank4(ctx, w).data, ctx.optional(bias)
    if weights is None or (b is not None and b.data is None):
        raise Problem("weights and bias must be constant")
    o, kh, kw, c = weights.shape
    h, width = ctx.size(x, 1), ctx.size(x, 2)
    if (kh, kw) != strides or ctx.shape(ctx.output())[1:] != (h * kh, width * kw, o):
        raise Problem(f"windows of {kh}x{kw} that overlap (strides {strides}) are not supported")
    pixels = ctx.graph.constant(f"{ctx.about(w).name}/pixels", weights.transpose(1, 2, 0, 3).reshape(kh * kw * o, 1, 1, c))
    if b is not None and b.data is not None:
        b = ctx.graph.constant(f"{b.name}/pixels", np.tile(b.data, kh * kw))
    y = ctx.emit("conv2d", [_rank4(ctx, x), pixels, b], None, "nhwc", **_range(ctx, ctx.output(), activation))
    _to_space(ctx, y, (h, width, o), (kh, kw))


_MATRIX = 1 << 22  # elements of the largest matrix that resamples


@converter("RESIZE_BILINEAR")
def _resize_bilinear(ctx: Context) -> None:
    """Rows and columns are resampled one after the other, each time by a product with a matrix."""
    options = ctx.node.option(tflite.ResizeBilinearOptions)
    i, size = ctx.given(0), ctx.ints(ctx.given(1), "the size")
    if len(size) != 2 or min(size) < 1:
        raise Problem(f"its size is {size}", unsupported=False)
    x, (h, w, c) = _rank4(ctx, i), (ctx.size(i, axis) for axis in (1, 2, 3))
    rows, columns = (
        _resampling(n, to, options.AlignCorners(), options.HalfPixelCenters()) for n, to in ((h, size[0]), (w, size[1]))
    )
    y = ctx.emit("reshape", [x], shape=(-1, h, w * c))
    y = ctx.emit("matmul", [ctx.graph.constant("rows", rows), y])
    y = ctx.emit("reshape", [y], shape=(-1, w, c))
    y = ctx.emit("matmul", [ctx.graph.constant("columns", columns), y])
    ctx.emit("reshape", [y], ctx.output(), shape=(-1, *size, c))


def _resampling(n: int, to: int, align_corners: bool, half_pixel: bool) -> Array:
    """[to, n]: how much of each of n points is in each of `to`, interpolating linearly."""
    if n < 1 or n * to > _MATRIX:
        raise Problem(f"resizing {n} to {to} is not supported")
    scale = np.float32(n - 1) / np.float32(to - 1) if align_corners and to > 1 else np.float32(n) / np.float32(to)
    at = np.arange(to, dtype=np.float32)
    at = (at + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel else at * scale
    lower, upper = np.maximum(np.floor(at), 0).astype(int), np.minimum(np.ceil(at), n - 1).astype(int)
    matrix = np.zeros((to, n), np.float32)
    np.add.at(matrix, (np.arange(to), np.minimum(lower, n - 1)), 1 - (at - lower))
    np.add.at(matrix, (np.arange(to), upper), at - lower)
    return matrix


@converter("RESIZE_NEAREST_NEIGHBOR")
def _resize_nearest(ctx: Context) -> None:
    """By whole factors: each row and each column several times."""
    options = ctx.node.option(tflite.ResizeNearestNeighborOptions)
    i, size = ctx.given(0), ctx.ints(ctx.given(1), "the size")
    x, (h, w, c) = _rank4(ctx, i), (ctx.size(i, axis) for axis in (1, 2, 3))
    if len(size) != 2 or min(h, w) < 1 or size[0] % h or size[1] % w or options.AlignCorners():
        raise Problem(f"resizing {h}x{w} to {size} is not supported, only by whole factors and without aligned corners")
    down, across = size[0] // h, size[1] // w
    if not 0 < max(down, across) <= S.MAX_INPUTS:
        raise Problem(f"resizing by {max(down, across)} is not supported")
    y = ctx.emit("concat", [ctx.emit("reshape", [x], shape=(-1, w, 1, c))] * across, axis=2)
    y = ctx.emit("concat", [ctx.emit("reshape", [y], shape=(-1, h, 1, size[1] * c))] * down, axis=2)
    ctx.emit("reshape", [y], ctx.output(), shape=(-1, *size, c))
