"""How each ONNX operator becomes nodes of ours. Where an operator's meaning changed between opsets, its converter says so."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np

from .. import schema as S
from ..ir import Dim, Shape, Value, count, reshape_to
from .onnx import Context, OnnxNode, Problem, Varying

Converter = Callable[[Context, OnnxNode], None]
CONVERTERS: dict[str, Converter] = {}

_I32_MAX = 2**31 - 1
_F32_MAX = 3.4028234663852886e38


def converter(*names: str) -> Callable[[Converter], Converter]:
    def register(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(names, function))
        return function

    return register


def _axis(axis: int, rank: int, what: str = "axis") -> int:
    if not -rank <= axis < rank:
        raise Problem(f"{what} {axis} is outside the {rank} dimensions", unsupported=False)
    return axis % rank


def _clamp_i32(numbers: Sequence[int]) -> tuple[int, ...]:
    """Exporters write "to the end" as the largest 64-bit number."""
    return tuple(max(-_I32_MAX, min(_I32_MAX, int(n))) for n in numbers)


def _no_more_outputs(ctx: Context, node: OnnxNode, what: str) -> None:
    for name in node.proto.output[1:]:
        if name in ctx.needed:
            raise Problem(f"its output '{name}' ({what}) is used, which is not supported")


def _reshape(ctx: Context, x: Value, current: Shape, target: Shape, output: Optional[str] = None) -> Value:
    """A reshape to target, whose open dimensions are copied from the same place or, once, computed."""
    shape = reshape_to(current, target)
    if shape is None:
        raise Problem("its result has several open dimensions that cannot be told apart", "fix them with --shape")
    return ctx.emit("reshape", [x], output, shape=shape, allowzero=int(0 in target))


# --- convolution, pooling --------------------------------------------------------------------------------------------------


def _window(ctx: Context, node: OnnxNode, kernel: Sequence[int]) -> dict[str, Any]:
    """strides, dilations, pads and auto_pad of one or two spatial axes, as those of two."""
    n = len(kernel)
    if any(k < 1 for k in kernel):
        raise Problem(f"the window {tuple(kernel)} is empty", unsupported=False)
    strides = node.attr("strides", (1,) * n)
    dilations = node.attr("dilations", (1,) * n)
    pads = node.attr("pads", (0,) * 2 * n)
    auto_pad = node.attr("auto_pad", "NOTSET").lower()
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        raise Problem(f"strides, dilations and pads do not fit a window of {n} axes", unsupported=False)
    if auto_pad not in S.ENUMS["auto_pad"]:
        raise Problem(f"auto_pad '{auto_pad}' does not exist", unsupported=False)
    if auto_pad != "notset":
        pads = (0,) * 2 * n
    if n == 1:
        strides, dilations, pads = (1, *strides), (1, *dilations), (0, pads[0], 0, pads[1])
    return {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}


def _spatial(ctx: Context, node: OnnxNode) -> tuple[Value, int]:
    """The input as [N, C, H, W], and how many spatial axes it really has: one or two."""
    x, rank = ctx.tensor(node.given(0)), ctx.rank(node.given(0))
    if rank not in (3, 4):
        raise Problem(f"it has {rank - 2} spatial axes; one and two are supported", unsupported=rank > 2)
    return (x if rank == 4 else ctx.emit("unsqueeze", [x], axes=(2,))), rank - 2


def _spatial_op(ctx: Context, node: OnnxNode, op: str, inputs: Sequence[Optional[Value]], n: int, **attrs: Any) -> None:
    """Emits an nchw node, whose result loses the axis that _spatial added."""
    output = node.output(0)
    y = ctx.emit(op, inputs, output if n == 2 else None, "nchw", **attrs)
    if n == 1:
        ctx.emit("squeeze", [y], output, axes=(2,))


@converter("Conv")
def _conv(ctx: Context, node: OnnxNode) -> None:
    x, n = _spatial(ctx, node)
    w, w_shape = ctx.tensor(node.given(1)), ctx.static(node.given(1))
    if len(w_shape) != n + 2:
        raise Problem(f"weights of {len(w_shape)} dimensions do not fit an input of {n + 2}", unsupported=False)
    kernel = node.attr("kernel_shape", w_shape[2:])
    if kernel != w_shape[2:]:
        raise Problem(f"kernel_shape {kernel} differs from the weights' {w_shape[2:]}", unsupported=False)
    if n == 1:
        w = ctx.emit("unsqueeze", [w], axes=(2,)) if w.data is None else ctx.graph.constant(w.name, w.data[:, :, None])
    b = ctx.tensor(node.given(2)) if node.given(2) else None
    _spatial_op(ctx, node, "conv2d", [x, w, b], n, group=node.attr("group", 1), **_window(ctx, node, kernel))


@converter("MaxPool", "AveragePool")
def _pool(ctx: Context, node: OnnxNode) -> None:
    # MaxPool's storage_order (8) concerns the indices only, which are not supported. ceil_mode came with opset 10, dilations
    # with 10 (MaxPool) and 19 (AveragePool); before, the attributes do not exist and their defaults mean the same.
    _no_more_outputs(ctx, node, "the indices")
    x, n = _spatial(ctx, node)
    kernel = node.attr("kernel_shape", tuple)
    if len(kernel) != n:
        raise Problem(f"kernel_shape {kernel} does not fit {n} spatial axes", unsupported=False)
    attrs = _window(ctx, node, kernel)
    attrs.update(kernel_shape=(1, *kernel) if n == 1 else kernel, ceil_mode=node.attr("ceil_mode", 0))
    if node.op == "AveragePool":
        attrs["count_include_pad"] = node.attr("count_include_pad", 0)
    _spatial_op(ctx, node, "max_pool" if node.op == "MaxPool" else "average_pool", [x], n, **attrs)


def _global_pool(ctx: Context, node: OnnxNode, op: str, rank: int, keepdims: bool) -> None:
    """Mean or maximum over all axes from the third on."""
    x, output = ctx.tensor(node.given(0)), node.output(0)
    if rank == 4:
        y = ctx.emit(op, [x], output if keepdims else None, "nchw")
        if not keepdims:
            ctx.emit("squeeze", [y], output, axes=(2, 3))
        return
    x = ctx.emit("reshape", [x], shape=(0, 0, -1, 1))
    y = ctx.emit(op, [x], None, "nchw")
    ctx.emit("reshape", [y], output, shape=(0, 0, *((1,) * (rank - 2) if keepdims else ())))


@converter("GlobalAveragePool", "GlobalMaxPool")
def _global(ctx: Context, node: OnnxNode) -> None:
    rank = ctx.rank(node.given(0))
    if rank < 3:
        raise Problem(f"its input has {rank} dimensions, and none of them is spatial", unsupported=False)
    _global_pool(ctx, node, "global_average_pool" if node.op == "GlobalAveragePool" else "global_max_pool", rank, True)


@converter("ReduceMean", "ReduceMax")
def _reduce(ctx: Context, node: OnnxNode) -> None:
    # axes: an attribute before opset 18, then an input; noop_with_empty_axes came with it. A reduction over neighbouring axes
    # is a global pool of the tensor seen as [what is before, those axes, 1, what is behind], channels last.
    op = "global_average_pool" if node.op == "ReduceMean" else "global_max_pool"
    rank = ctx.rank(node.given(0))
    axes = ctx.ints(node.given(1), "axes") if node.given(1) else node.attr("axes", ())
    keepdims = bool(node.attr("keepdims", 1))
    if not axes and node.attr("noop_with_empty_axes", 0):
        ctx.emit("identity", [ctx.tensor(node.given(0))], node.output(0))
        return
    axes = tuple(sorted(_axis(a, rank) for a in axes)) or tuple(range(rank))
    x, output = ctx.tensor(node.given(0)), node.output(0)
    if axes == tuple(range(2, rank)) and rank > 2:
        _global_pool(ctx, node, op, rank, keepdims)
    elif axes == tuple(range(axes[0], axes[-1] + 1)):
        shape, first, end = ctx.shape(node.given(0)), axes[0], axes[-1] + 1
        folded = (_joined(shape[:first]), _joined(shape[first:end]), 1, _joined(shape[end:]))
        x = _reshape(ctx, x, shape, folded)
        y = ctx.emit(op, [x], None, "nhwc")
        kept = (1,) * len(axes) if keepdims else ()
        _reshape(ctx, y, (folded[0], 1, 1, folded[3]), (*shape[:first], *kept, *shape[end:]), output)
    else:
        raise Problem(f"it reduces the axes {axes} of {rank}; only neighbouring axes are supported")


def _joined(shape: Shape) -> Dim:
    """The dimension that several make when joined."""
    total = count(shape)
    return total if total is not None else shape[0] if len(shape) == 1 else None


@converter("BatchNormalization")
def _batch_normalization(ctx: Context, node: OnnxNode) -> None:
    # Before opset 14 training was asked for by using the further outputs, since then by training_mode. spatial (7, 8): 0 means
    # statistics for each element rather than each channel.
    if node.attr("training_mode", 0):
        raise Problem("training_mode=1 computes statistics of the batch", "export the model for inference (model.eval())")
    _no_more_outputs(ctx, node, "statistics of training")
    if not node.attr("spatial", 1):
        raise Problem("spatial=0 is not supported")
    rank = ctx.rank(node.given(0))
    if rank < 2:
        raise Problem(f"its input has {rank} dimensions and no channels", unsupported=False)
    inputs: list[Optional[Value]] = [ctx.tensor(node.given(i)) for i in range(5)]
    ctx.emit("batch_normalization", inputs, node.output(0), "nchw", epsilon=node.attr("epsilon", 1e-5))


# --- matrices --------------------------------------------------------------------------------------------------------------


@converter("MatMul")
def _matmul(ctx: Context, node: OnnxNode) -> None:
    # numpy's rules: a vector on the left is a row, on the right a column, and the dimension of 1 is dropped again.
    a, b = ctx.tensor(node.given(0)), ctx.tensor(node.given(1))
    rank_a, rank_b = ctx.rank(node.given(0)), ctx.rank(node.given(1))
    if min(rank_a, rank_b) < 1:
        raise Problem("scalars have no matrix product", unsupported=False)
    if rank_a == 1:
        a = ctx.emit("unsqueeze", [a], axes=(0,))
    if rank_b == 1:
        b = ctx.emit("unsqueeze", [b], axes=(1,))
    rank = max(rank_a, rank_b, 2)
    drop = ((rank - 2,) if rank_a == 1 else ()) + ((rank - 1,) if rank_b == 1 else ())
    y = ctx.emit("matmul", [a, b], None if drop else node.output(0))
    if drop:
        ctx.emit("squeeze", [y], node.output(0), axes=drop)


@converter("Gemm")
def _gemm(ctx: Context, node: OnnxNode) -> None:
    a, b = ctx.tensor(node.given(0)), ctx.tensor(node.given(1))
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if ctx.rank(node.given(0)) != 2 or ctx.rank(node.given(1)) != 2:
        raise Problem("a and b must be matrices", unsupported=False)
    if node.attr("transA", 0):
        a = ctx.emit("transpose", [a], perm=(1, 0))
    if alpha != 1 and b.data is not None:
        b = ctx.graph.constant(b.name, b.data * np.float32(alpha))
        alpha = 1.0
    c_name = node.given(2)  # optional since opset 11
    c = ctx.tensor(c_name) if c_name and beta != 0 else None
    if c is not None and beta != 1 and c.data is not None:
        c = ctx.graph.constant(c.name, c.data * np.float32(beta))
        beta = 1.0
    bias: Optional[Value] = None
    n = ctx.static(node.given(1))[0 if node.attr("transB", 0) else 1]
    row = c is not None and c.data is not None and (c.data.ndim < 2 or c.data.shape[0] == 1) and c.data.size in (1, n)
    if row and alpha == beta == 1 and c is not None and c.data is not None:
        bias, c = ctx.graph.constant(c.name, np.broadcast_to(c.data.reshape(-1), (n,))), None
    steps: list[tuple[str, Value]] = []
    if alpha != 1:
        steps.append(("mul", ctx.graph.constant("alpha", np.float32(alpha))))
    if c is not None:
        steps.append(("add", ctx.emit("mul", [c, ctx.graph.constant("beta", np.float32(beta))]) if beta != 1 else c))
    y = ctx.emit("matmul", [a, b, bias], None if steps else node.output(0), trans_b=node.attr("transB", 0))
    for op, other in steps:
        y = ctx.emit(op, [y, other], node.output(0) if other is steps[-1][1] else None)


# --- element-wise ----------------------------------------------------------------------------------------------------------


def _f32_operand(ctx: Context, name: str) -> Value:
    """An operand that may be an integer constant where ONNX lets the types differ (Pow's exponent)."""
    data = ctx.constant(name)
    if data is None or isinstance(data, Varying) or data.dtype == np.float32:
        return ctx.tensor(name)
    return ctx.graph.constant(name, data.astype(np.float32))


@converter("Add", "Sub", "Mul", "Div", "PRelu", "Pow")
def _binary(ctx: Context, node: OnnxNode) -> None:
    # All broadcast like numpy since opset 7. PRelu's slope broadcasts to x only, which numpy's rule includes. Pow's types may
    # differ since opset 12.
    a = ctx.tensor(node.given(0))
    b = _f32_operand(ctx, node.given(1)) if node.op == "Pow" else ctx.tensor(node.given(1))
    ctx.emit(node.op.lower(), [a, b], node.output(0))


@converter("Min", "Max", "Sum", "Mean")
def _variadic(ctx: Context, node: OnnxNode) -> None:
    # Any number of inputs, which broadcast since opset 8.
    op = {"Min": "min", "Max": "max", "Sum": "add", "Mean": "add"}[node.op]
    inputs = [ctx.tensor(name) for name in node.proto.input]
    steps = [(op, value) for value in inputs[1:]]
    if node.op == "Mean":
        steps.append(("mul", ctx.graph.constant("scale", np.float32(1 / len(inputs)))))
    if not steps:
        ctx.emit("identity", inputs, node.output(0))
    y = inputs[0]
    for i, (step, other) in enumerate(steps):
        y = ctx.emit(step, [y, other], node.output(0) if i == len(steps) - 1 else None)


# ONNX operator: ours, and the attributes that are passed on with ONNX's defaults.
_UNARY: dict[str, tuple[str, dict[str, float]]] = {
    "Sigmoid": ("sigmoid", {}), "Tanh": ("tanh", {}), "HardSwish": ("hard_swish", {}), "Softplus": ("softplus", {}),
    "Softsign": ("softsign", {}), "Mish": ("mish", {}), "Exp": ("exp", {}), "Log": ("log", {}), "Sqrt": ("sqrt", {}),
    "Reciprocal": ("reciprocal", {}), "Abs": ("abs", {}), "Neg": ("neg", {}), "Sign": ("sign", {}), "Erf": ("erf", {}),
    "Floor": ("floor", {}), "Ceil": ("ceil", {}), "Round": ("round", {}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}), "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}), "Celu": ("celu", {"alpha": 1.0}), "Swish": ("silu", {"alpha": 1.0}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
}


@converter(*_UNARY)
def _unary(ctx: Context, node: OnnxNode) -> None:
    op, defaults = _UNARY[node.op]
    attrs: dict[str, Any] = {k: node.attr(k, v) for k, v in defaults.items()}
    ctx.emit(op, [ctx.tensor(node.given(0))], node.output(0), **attrs)


@converter("Gelu")
def _gelu(ctx: Context, node: OnnxNode) -> None:
    ctx.emit("gelu", [ctx.tensor(node.given(0))], node.output(0), approximate=node.attr("approximate", "none"))


@converter("Relu")
def _relu(ctx: Context, node: OnnxNode) -> None:
    ctx.emit("clip", [ctx.tensor(node.given(0))], node.output(0), lo=0.0)


@converter("Clip")
def _clip(ctx: Context, node: OnnxNode) -> None:
    # Before opset 11 attributes, whose defaults are the largest finite numbers; then optional scalar inputs.
    x = ctx.tensor(node.given(0))
    bounds: dict[str, Any] = {}
    computed: list[tuple[str, Value]] = []
    for i, (bound, name, unlimited) in enumerate((("lo", "min", -S.INF), ("hi", "max", S.INF)), start=1):
        if node.opset < 11:
            bounds[bound] = node.attr(name, unlimited)
        elif not node.given(i):
            bounds[bound] = unlimited
        elif ctx.constant(node.given(i)) is None:
            computed.append(("max" if bound == "lo" else "min", ctx.tensor(node.given(i))))
        else:
            bounds[bound] = ctx.scalar(node.given(i), name)
        if abs(bounds.get(bound, 0)) >= _F32_MAX:
            bounds[bound] = unlimited
        if bounds.get(bound) != bounds.get(bound):
            raise Problem(f"{name} is NaN", unsupported=False)
    # Where min is above max everything becomes max.
    if len(bounds) == 2:
        bounds["lo"] = min(bounds["lo"], bounds["hi"])
    if not computed or (len(bounds) == 1 and abs(next(iter(bounds.values()))) != S.INF):
        x = ctx.emit("clip", [x], None if computed else node.output(0), **bounds)
    for op, other in computed:
        x = ctx.emit(op, [x, other], node.output(0) if other is computed[-1][1] else None)


@converter("Softmax", "LogSoftmax")
def _softmax(ctx: Context, node: OnnxNode) -> None:
    # Since opset 13 along one axis, by default the last. Before, the input was seen as a matrix of the dimensions before and
    # from axis (by default 1) on, and each of its rows summed to one.
    x, shape, output = ctx.tensor(node.given(0)), ctx.shape(node.given(0)), node.output(0)
    axis = _axis(node.attr("axis", -1 if node.opset >= 13 else 1), len(shape))
    log = node.op == "LogSoftmax"
    if node.opset >= 13 or all(d == 1 for d in shape[axis + 1 :]):
        y = ctx.emit("softmax", [x], None if log else output, axis=axis)
    else:
        rows = ctx.emit("flatten", [x], axis=axis)
        y = ctx.emit("softmax", [rows], axis=1)
        y = _reshape(ctx, y, shape[:1] if axis == 1 else (), shape, None if log else output)
    if log:
        ctx.emit("log", [y], output)


# --- the same elements under another shape ---------------------------------------------------------------------------------


@converter("Identity", "Dropout")
def _identity(ctx: Context, node: OnnxNode) -> None:
    if node.op == "Dropout":
        # Since opset 12 training is an input.
        _no_more_outputs(ctx, node, "the mask")
        if node.given(2) and bool(np.any(ctx.known(node.given(2), "training_mode"))):
            raise Problem("training_mode is true", "export the model for inference (model.eval())")
    ctx.emit("identity", [ctx.value(node.given(0))], node.output(0))


@converter("Cast", "CastLike")
def _cast(ctx: Context, node: OnnxNode) -> None:
    x, source, target = ctx.value(node.given(0)), ctx.dtype(node.given(0)), ctx.dtype(node.output(0))
    if source != target:
        raise Problem(f"it converts {source} to {target} at run time", "this version computes in float32 only")
    ctx.emit("identity", [x], node.output(0))


@converter("Reshape")
def _reshape_op(ctx: Context, node: OnnxNode) -> None:
    # allowzero (14): a 0 is an empty dimension instead of a copy of the input's.
    x, current = ctx.value(node.given(0)), ctx.shape(node.given(0))
    allowzero = node.attr("allowzero", 0)
    wanted = ctx.constant(node.given(1))
    if not isinstance(wanted, Varying):
        shape: list[int] = list(ctx.ints(node.given(1), "the shape"))
    else:
        # What differs between two sizes of the open dimensions is a dimension of the input, or what is left.
        if wanted.one.shape != wanted.two.shape or wanted.one.ndim != 1:
            raise Problem("the number of dimensions of its result depends on the input", "fix the shape with --shape")
        result, shape = ctx.shape(node.output(0)), []
        for i, (one, two) in enumerate(zip(wanted.one, wanted.two)):
            symbol = next((s for s in ctx.bindings[0] if (ctx.bindings[0][s], ctx.bindings[1][s]) == (one, two)), None)
            if one == two and one != -1:
                shape.append(int(one))
            elif symbol is not None and not allowzero and i < len(current) and current[i] == symbol:
                shape.append(0)
            else:
                known = result[i] if i < len(result) else None
                shape.append(known if isinstance(known, int) else -1)
    if shape.count(-1) > 1:
        raise Problem(f"its shape {tuple(shape)} has several open dimensions", "fix them with --shape")
    ctx.emit("reshape", [x], node.output(0), shape=tuple(shape), allowzero=allowzero)


@converter("Flatten")
def _flatten(ctx: Context, node: OnnxNode) -> None:
    # Negative axes since opset 11. The axis may be the rank itself.
    axis, rank = node.attr("axis", 1), ctx.rank(node.given(0))
    if not -rank <= axis <= rank:
        raise Problem(f"axis {axis} is outside the {rank} dimensions", unsupported=False)
    ctx.emit("flatten", [ctx.value(node.given(0))], node.output(0), axis=axis + rank if axis < 0 else axis)


def _axes(ctx: Context, node: OnnxNode, rank: int) -> tuple[int, ...]:
    """Squeeze's and Unsqueeze's axes: an attribute before opset 13, then an input."""
    axes = ctx.ints(node.given(1), "axes") if node.given(1) else node.attr("axes", ())
    return tuple(sorted(_axis(a, rank) for a in axes))


@converter("Squeeze")
def _squeeze(ctx: Context, node: OnnxNode) -> None:
    ctx.emit("squeeze", [ctx.value(node.given(0))], node.output(0), axes=_axes(ctx, node, ctx.rank(node.given(0))))


@converter("Unsqueeze")
def _unsqueeze(ctx: Context, node: OnnxNode) -> None:
    rank = ctx.rank(node.given(0))
    n = len(ctx.ints(node.given(1), "axes") if node.given(1) else node.attr("axes", tuple))
    ctx.emit("unsqueeze", [ctx.value(node.given(0))], node.output(0), axes=_axes(ctx, node, rank + n))


@converter("Expand")
def _expand(ctx: Context, node: OnnxNode) -> None:
    source, target = ctx.shape(node.given(0)), ctx.shape(node.output(0))
    if None in source or source != target:
        raise Problem(f"it repeats {source} to {target} at run time, which is not supported")
    ctx.emit("identity", [ctx.value(node.given(0))], node.output(0))


@converter("Tile")
def _tile(ctx: Context, node: OnnxNode) -> None:
    repeats = ctx.ints(node.given(1), "repeats")
    if any(r != 1 for r in repeats):
        raise Problem(f"it repeats its input {repeats} times at run time, which is not supported")
    ctx.emit("identity", [ctx.value(node.given(0))], node.output(0))


# --- data movement ---------------------------------------------------------------------------------------------------------


@converter("Transpose")
def _transpose(ctx: Context, node: OnnxNode) -> None:
    rank = ctx.rank(node.given(0))
    perm = node.attr("perm", tuple(reversed(range(rank))))
    if sorted(perm) != list(range(rank)):
        raise Problem(f"perm {perm} does not order {rank} dimensions", unsupported=False)
    ctx.emit("transpose", [ctx.value(node.given(0))], node.output(0), perm=perm)


@converter("Concat")
def _concat(ctx: Context, node: OnnxNode) -> None:
    axis = _axis(node.attr("axis", int), ctx.rank(node.given(0)))
    # Joining nothing changes nothing.
    parts = [ctx.value(name) for name in node.proto.input if 0 not in ctx.shape(name)] or [ctx.value(node.given(0))]
    while len(parts) > S.MAX_INPUTS:
        parts = _join(ctx, parts, axis)
    ctx.emit("concat", parts, node.output(0), axis=axis)


def _join(ctx: Context, parts: list[Value], axis: int) -> list[Value]:
    """Fewer, longer parts in the same order."""
    n = S.MAX_INPUTS
    groups = [parts[i : i + n] for i in range(0, len(parts), n)]
    return [ctx.emit("concat", group, axis=axis) if len(group) > 1 else group[0] for group in groups]


@converter("Pad")
def _pad(ctx: Context, node: OnnxNode) -> None:
    # Attributes before opset 11, then inputs; axes since opset 18, mode wrap since 19.
    x, rank = ctx.value(node.given(0)), ctx.rank(node.given(0))
    if node.opset < 11:
        pads, value = node.attr("pads", tuple), node.attr("value", 0.0)
    else:
        pads = ctx.ints(node.given(1), "pads")
        value = ctx.scalar(node.given(2), "constant_value") if node.given(2) else 0.0
    if node.given(3):
        axes = [_axis(a, rank) for a in ctx.ints(node.given(3), "axes")]
        if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
            raise Problem(f"{len(pads)} pads do not fit the axes {tuple(axes)}", unsupported=False)
        full = [0] * 2 * rank
        for i, axis in enumerate(axes):
            full[axis], full[axis + rank] = pads[i], pads[i + len(axes)]
        pads = tuple(full)
    if len(pads) != 2 * rank:
        raise Problem(f"{len(pads)} pads do not fit {rank} dimensions", unsupported=False)
    ctx.emit("pad", [x], node.output(0), pads=_clamp_i32(pads), mode=node.attr("mode", "constant"), value=value)


@converter("Slice")
def _slice(ctx: Context, node: OnnxNode) -> None:
    # Attributes before opset 10, then inputs, which added steps.
    x, shape = ctx.value(node.given(0)), ctx.shape(node.given(0))
    if node.opset < 10:
        starts, ends = node.attr("starts", tuple), node.attr("ends", tuple)
        axes, steps = node.attr("axes", tuple(range(len(starts)))), (1,) * len(starts)
    else:
        starts = ctx.ints(node.given(1), "starts")
        axes = ctx.ints(node.given(3), "axes") if node.given(3) else tuple(range(len(starts)))
        steps = ctx.ints(node.given(4), "steps") if node.given(4) else (1,) * len(starts)
        ends = _ends(ctx, node.given(2), axes, shape)
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(starts) > S.MAX_RANK or 0 in steps:
        raise Problem(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit each other", unsupported=False)
    axes = tuple(_axis(a, len(shape)) for a in axes)
    ctx.emit("slice", [x], node.output(0), starts=_clamp_i32(starts), ends=_clamp_i32(ends), axes=axes, steps=_clamp_i32(steps))


def _ends(ctx: Context, name: str, axes: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """Ends that follow an open dimension mean: to its end."""
    data = ctx.constant(name)
    if not isinstance(data, Varying) or data.one.shape != data.two.shape or data.one.size != len(axes):
        return ctx.ints(name, "ends")
    ends: list[int] = []
    for one, two, axis in zip(data.one.reshape(-1), data.two.reshape(-1), axes):
        dim = shape[_axis(axis, len(shape))]
        if one == two:
            ends.append(int(one))
        elif isinstance(dim, str) and (ctx.bindings[0][dim], ctx.bindings[1][dim]) == (one, two):
            ends.append(_I32_MAX)
        else:
            return ctx.ints(name, "ends")
    return tuple(ends)


@converter("Split")
def _split(ctx: Context, node: OnnxNode) -> None:
    # Sizes: an attribute before opset 13, then an input; without them equal parts, since opset 18 the last may be smaller.
    x, shape = ctx.value(node.given(0)), ctx.shape(node.given(0))
    axis = _axis(node.attr("axis", 0), len(shape))
    parts = len(node.proto.output)
    sizes = ctx.ints(node.given(1), "split") if node.given(1) else node.attr("split", ())
    if not sizes:
        size = shape[axis]
        if not isinstance(size, int):
            raise Problem(f"it splits the open dimension {size}", "fix it with --shape")
        each = -(-size // parts)
        sizes = tuple(max(0, min(each, size - i * each)) for i in range(parts))
    if len(sizes) != parts or any(s < 0 for s in sizes):
        raise Problem(f"{len(sizes)} sizes do not fit {parts} outputs", unsupported=False)
    start = 0
    for name, size in zip(node.proto.output, sizes):
        if name in ctx.needed:
            ctx.emit("slice", [x], name, starts=(start,), ends=(start + size,), axes=(axis,), steps=(1,))
        start += size


@converter("DepthToSpace", "SpaceToDepth")
def _depth_space(ctx: Context, node: OnnxNode) -> None:
    # DepthToSpace's mode came with opset 11, SpaceToDepth's later; before, it is DCR: the place in a block counts more than the
    # channel.
    x, shape, block = ctx.value(node.given(0)), ctx.shape(node.given(0)), node.attr("blocksize", int)
    if len(shape) != 4 or block < 1:
        raise Problem(f"an input of {len(shape)} dimensions and blocks of {block} do not fit", unsupported=False)
    c, h, w = _numbers(shape[1:])
    crd = node.attr("mode", "DCR") == "CRD"
    if node.op == "DepthToSpace":
        if c % (block * block):
            raise Problem(f"{c} channels do not divide into blocks of {block}x{block}", unsupported=False)
        rest = c // (block * block)
        inner = (0, rest, block, block, h, w) if crd else (0, block, block, rest, h, w)
        perm, last = ((0, 1, 4, 2, 5, 3) if crd else (0, 3, 4, 1, 5, 2)), (0, rest, h * block, w * block)
    else:
        if h % block or w % block:
            raise Problem(f"{h}x{w} does not divide into blocks of {block}", unsupported=False)
        inner = (0, c, h // block, block, w // block, block)
        perm, last = ((0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4)), (0, c * block * block, h // block, w // block)
    y = ctx.emit("reshape", [x], shape=inner)
    y = ctx.emit("transpose", [y], perm=perm)
    ctx.emit("reshape", [y], node.output(0), shape=last)


def _numbers(shape: Shape) -> tuple[int, ...]:
    known = tuple(d for d in shape if isinstance(d, int))
    if len(known) != len(shape):
        raise Problem("channels, height and width must be numbers", "fix them with --shape")
    return known
