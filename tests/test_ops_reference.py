"""Operators by their reference kernels, against numpy and onnxruntime: shapes, attributes, special values; and parameters that
make no sense, which are refused with the numbers."""
from __future__ import annotations

import itertools
import math
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import Build
from numpy.typing import NDArray
from one_node import Given, Tail, const, run
from ops_nn import errors, modelfile
from ops_nn import schema as S
from ops_nn.lib import Library

Array = NDArray[Any]
Attrs = dict[str, Any]
INF, NAN = math.inf, math.nan


@pytest.fixture(scope="module")
def library(host_build: Build) -> Library:
    return Library(host_build.lib)


@pytest.fixture(scope="module")
def ref(library: Library) -> Callable[..., Array]:
    """run() by reference kernels."""

    def call(op: str, inputs: Sequence[Given], attrs: Optional[Mapping[str, Any]] = None, **options: Any) -> Array:
        return run(library, op, inputs, attrs, reference=True, **options)

    return call


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def f32(array: Any) -> Array:
    return np.asarray(array, np.float32)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return f32(rng.normal(size=shape))


def close(found: Array, wanted: Any, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    wanted = f32(wanted)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol, atol)


def quiet(f: Callable[..., Any], *args: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args)


def ort(op: str, inputs: Sequence[Array], attrs: Attrs, opset: int = 22) -> Array:
    """One ONNX node by onnxruntime."""
    names = [f"x{i}" for i in range(len(inputs))]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, ["y"], **attrs)],
        "g",
        [onnx.helper.make_tensor_value_info(n, k, x.shape) for n, k, x in zip(names, kinds, inputs)],
        [onnx.helper.make_tensor_value_info("y", kinds[0], None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(zip(names, inputs)))[0])


def nchw(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def nhwc(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def test_every_operator_has_its_rule_and_reference_kernel(library: Library) -> None:
    names = library.kernels()
    for op in S.OPS:
        layout = "nhwc" if op.layout else "any"
        wanted = {f"{op.name}_f32_{layout}_ref", f"{op.name}_any_{layout}_ref"}
        assert bool(wanted & set(names)) != op.view, op.name


# --- element-wise, one input ----------------------------------------------------------------------------------------------

SPECIAL = f32([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, -1e-40, 1e-6, -1e-6, 20, -20, 88.7, -88.7, 104, -104,
               1e30, -1e30, 3.4e38, -3.4e38, INF, -INF, NAN])  # fmt: skip


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2)


# Attributes to try, and the operator in float64 by its definition.
UNARY: dict[str, tuple[list[Attrs], Callable[..., Array]]] = {
    "clip": ([{}, {"lo": 0.0}, {"lo": -1.0, "hi": 6.0}, {"lo": 2.0, "hi": 2.0}], lambda x, lo=-INF, hi=INF: np.clip(x, lo, hi)),
    "sigmoid": ([{}], _sigmoid),
    "tanh": ([{}], np.tanh),
    "hard_sigmoid": ([{}, {"alpha": 0.5, "beta": 0.25}], lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1)),
    "hard_swish": ([{}], lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "silu": ([{}, {"alpha": 1.75}], lambda x, alpha=1.0: x * _sigmoid(alpha * x)),
    "gelu": (
        [{}, {"approximate": "tanh"}],
        lambda x, approximate="none": _gelu_tanh(x) if approximate == "tanh" else x * _erfc(-x / math.sqrt(2)) / 2,
    ),
    "leaky_relu": ([{}, {"alpha": -0.5}], lambda x, alpha=0.01: np.where(x < 0, alpha * x, x)),
    "elu": ([{}, {"alpha": 0.5}], lambda x, alpha=1.0: np.where(x < 0, alpha * np.expm1(x), x)),
    "selu": (
        [{}, {"alpha": 0.5, "gamma": 2.0}],
        lambda x, alpha=1.6732632423543772, gamma=1.0507009873554805: gamma * np.where(x < 0, alpha * np.expm1(x), x),
    ),
    "celu": ([{}, {"alpha": 0.5}], lambda x, alpha=1.0: np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha))),
    "softplus": ([{}], _softplus),
    "softsign": ([{}], lambda x: x / (1 + np.abs(x))),
    "mish": ([{}], lambda x: x * np.tanh(_softplus(x))),
    "exp": ([{}], np.exp),
    "log": ([{}], np.log),
    "sqrt": ([{}], np.sqrt),
    "reciprocal": ([{}], lambda x: 1 / x),
    "abs": ([{}], np.abs),
    "neg": ([{}], np.negative),
    "sign": ([{}], np.sign),
    "erf": ([{}], _erf),
    "floor": ([{}], np.floor),
    "ceil": ([{}], np.ceil),
    "round": ([{}], np.rint),
}


def test_unary_table_is_complete() -> None:
    assert sorted(UNARY) == sorted(op.name for op in S.OPS if op.rule == "unary")


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, ref: Callable[..., Array], rng: np.random.Generator) -> None:
    attributes, definition = UNARY[op]
    for attrs in attributes:
        for x in (SPECIAL, normal(rng, 2, 5, 7) * 3, f32(0.75), np.zeros((0, 3), np.float32)):
            wanted = quiet(lambda x=x, attrs=attrs: definition(np.asarray(x, np.float64), **attrs).astype(np.float32))
            y = ref(op, [x], attrs)
            close(y, wanted, 3e-6, 1e-43 if op in ("sigmoid", "exp", "gelu", "silu") and not attrs else 1e-6)
            assert np.array_equal(np.isnan(y), np.isnan(wanted))


def test_round_takes_halves_to_even(ref: Callable[..., Array]) -> None:
    x = f32([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 8388609.0, 0.49999997])
    assert ref("round", [x]).tolist() == [-4, -2, -2, -0.0, 0, 2, 2, 4, 8388609, 0]


def test_clip_keeps_nan_and_signed_zero(ref: Callable[..., Array]) -> None:
    y = ref("clip", [f32([NAN, -0.0, 7, -7])], {"lo": -1.0, "hi": 6.0})
    assert np.isnan(y[0]) and np.signbit(y[1]) and y[2:].tolist() == [6, -1]


# --- element-wise, two inputs ---------------------------------------------------------------------------------------------

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "prelu": lambda a, b: np.where(a >= 0, a, a * b),
}
SHAPES = [
    ((), ()), ((3,), ()), ((), (2, 3)), ((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1), (5,)), ((2, 3, 4, 5), (5,)),
    ((2, 3, 4, 5), (1, 3, 1, 5)), ((2, 1, 4, 1), (1, 3, 1, 5)), ((1, 1, 1), (2, 3, 4)), ((2, 3, 4, 5), (2, 1, 1, 5)),
    ((2, 3, 4), (2, 3, 1)), ((0, 3), (1, 3)), ((2, 0), (1,)), ((1,), (0,)), ((1,) * 8, (2, 1, 2, 1, 2, 1, 2, 3)),
    ((3, 4, 5000), (4, 1)),
]  # fmt: skip


def test_binary_table_is_complete() -> None:
    assert sorted(BINARY) == sorted(op.name for op in S.OPS if op.rule == "binary")


@pytest.mark.parametrize("op", BINARY)
def test_binary_broadcasts(op: str, ref: Callable[..., Array], rng: np.random.Generator) -> None:
    for first, second in SHAPES:
        a, b = normal(rng, *first), normal(rng, *second)
        if op == "prelu" and np.broadcast_shapes(first, second) != first:
            a, b = b, a
            if np.broadcast_shapes(first, second) != a.shape:
                continue
        if op == "pow":
            a = np.abs(a)
        close(ref(op, [a, b]), BINARY[op](a, b))
        close(ref(op, [const(a), b], {"lo": -0.5, "hi": 0.25}), np.clip(BINARY[op](a, b), np.float32(-0.5), np.float32(0.25)))


@pytest.mark.parametrize("op", BINARY)
def test_binary_special_values(op: str, ref: Callable[..., Array]) -> None:
    values = SPECIAL[np.isfinite(SPECIAL) == (np.abs(SPECIAL) < 1e5)]  # powf and numpy agree on all of these
    a, b = values[:, None], values[None, :]
    if op == "prelu":
        a = np.repeat(a, values.size, 1)
    wanted = quiet(BINARY[op], a, b)
    np.testing.assert_allclose(ref(op, [a, b]), wanted, 1e-6, 1e-44)


# --- convolution ----------------------------------------------------------------------------------------------------------


def same_pads(attrs: Attrs, size: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    """The pads that auto_pad same_upper and same_lower stand for; onnxruntime has them without dilation only."""
    begin, end = [], []
    for n, k, stride, dilation in zip(size, kernel, attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))):
        total = max(0, (math.ceil(n / stride) - 1) * stride + dilation * (k - 1) + 1 - n)
        smaller, larger = total // 2, total - total // 2
        begin.append(smaller if attrs["auto_pad"] == "same_upper" else larger)
        end.append(larger if attrs["auto_pad"] == "same_upper" else smaller)
    return (*begin, *end)


def conv_by_ort(x: Array, w: Array, b: Optional[Array], attrs: Attrs) -> Array:
    """x, w and the result in nhwc."""
    a = {k: v for k, v in attrs.items() if k not in ("lo", "hi")}
    if "auto_pad" in a and "dilations" in a:
        a["pads"] = same_pads(a, x.shape[1:3], w.shape[1:3])
        del a["auto_pad"]
    elif "auto_pad" in a:
        a["auto_pad"] = a["auto_pad"].upper()
        a.pop("pads", None)
    y = nhwc(ort("Conv", [nchw(x), nchw(w), *([] if b is None else [b])], a))
    return np.clip(y, attrs.get("lo", -INF), attrs.get("hi", INF))


CONV: list[tuple[tuple[int, ...], tuple[int, ...], Attrs]] = [
    ((1, 5, 5, 3), (4, 3, 3, 3), {}),
    ((1, 224, 7, 1), (1, 3, 3, 1), {"strides": (2, 2), "auto_pad": "same_upper"}),
    ((2, 6, 7, 4), (6, 3, 2, 4), {"strides": (2, 1), "pads": (1, 0, 2, 1)}),
    ((1, 6, 4, 8), (3, 3, 3, 8), {"pads": (1, 1, 1, 1)}),
    ((1, 7, 7, 6), (6, 3, 3, 1), {"group": 6, "pads": (1, 1, 1, 1)}),
    ((1, 7, 7, 6), (12, 3, 3, 1), {"group": 6, "strides": (2, 2), "pads": (0, 1, 1, 0)}),
    ((1, 7, 7, 6), (4, 3, 3, 3), {"group": 2, "dilations": (2, 2), "pads": (2, 2, 2, 2)}),
    ((1, 16, 16, 4), (4, 3, 3, 4), {"dilations": (2, 2), "auto_pad": "same_upper"}),
    ((1, 16, 16, 4), (4, 3, 3, 4), {"dilations": (2, 3), "auto_pad": "same_lower", "strides": (1, 1)}),
    ((1, 9, 8, 2), (2, 4, 4, 2), {"auto_pad": "same_upper"}),
    ((1, 9, 8, 2), (2, 4, 4, 2), {"auto_pad": "same_lower"}),
    ((1, 9, 8, 2), (2, 4, 2, 2), {"auto_pad": "same_lower", "strides": (3, 2)}),
    ((1, 9, 8, 2), (2, 4, 2, 2), {"auto_pad": "valid", "strides": (3, 2), "pads": (9, 9, 9, 9)}),
    ((3, 1, 1, 5), (7, 1, 1, 5), {"lo": 0.0, "hi": 1.0}),
    ((1, 1, 1, 2), (2, 3, 3, 2), {"pads": (5, 4, 3, 2)}),
    ((1, 8, 8, 2), (2, 1, 4, 2), {"dilations": (1, 2), "strides": (7, 1)}),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attrs"), CONV)
def test_conv2d(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], attrs: Attrs, ref: Callable[..., Array], rng: np.random.Generator
) -> None:
    x, w, b = normal(rng, *x_shape), normal(rng, *w_shape), normal(rng, w_shape[0])
    wanted = conv_by_ort(x, w, b, attrs)
    y = ref("conv2d", [x, w, const(b)], attrs)
    close(y, wanted, 1e-5, 1e-5)
    for block in (2, 4, 8):
        assert np.array_equal(ref("conv2d", [x, const(w, block), b], attrs), y)
    assert np.array_equal(ref("conv2d", [x, w, b], attrs, threads=3), y)
    close(ref("conv2d", [x, const(w), None], attrs), conv_by_ort(x, w, None, attrs), 1e-5, 1e-5)


def test_random_convolutions(ref: Callable[..., Array], rng: np.random.Generator) -> None:
    def pick(low: int, high: int, n: int = 2) -> tuple[int, ...]:
        return tuple(int(v) for v in rng.integers(low, high + 1, n))

    tried = 0
    while tried < 100:
        (group, per_group), size, kernel, dilations = pick(1, 3), pick(1, 10), pick(1, 4), pick(1, 3)
        attrs: Attrs = {"strides": pick(1, 4), "dilations": dilations, "group": group, "pads": pick(0, 5, 4)}
        if rng.integers(2):
            attrs["auto_pad"] = ("same_upper", "same_lower")[int(rng.integers(2))]
        elif any(n + sum(attrs["pads"][i::2]) <= d * (k - 1) for i, (n, k, d) in enumerate(zip(size, kernel, dilations))):
            continue
        tried += 1
        n_out = group * int(rng.integers(1, 4))
        x, w = normal(rng, 2, *size, group * per_group), normal(rng, n_out, *kernel, per_group)
        close(ref("conv2d", [x, const(w, (0, 4, 8)[tried % 3])], attrs), conv_by_ort(x, w, None, attrs), 1e-5, 1e-5)


def test_conv2d_without_work(ref: Callable[..., Array], rng: np.random.Generator) -> None:
    b = normal(rng, 3)
    assert ref("conv2d", [normal(rng, 0, 4, 4, 2), const(normal(rng, 3, 3, 3, 2)), b]).shape == (0, 2, 2, 3)
    close(ref("conv2d", [normal(rng, 1, 2, 2, 0), normal(rng, 3, 1, 1, 0), b]), np.broadcast_to(b, (1, 2, 2, 3)))
    assert ref("conv2d", [normal(rng, 1, 2, 2, 2), normal(rng, 0, 1, 1, 2)]).shape == (1, 2, 2, 0)


def test_conv2d_clamp_keeps_nan(ref: Callable[..., Array]) -> None:
    x = f32([[[[NAN], [INF], [-INF], [1e-40]]]])
    y = ref("conv2d", [x, f32([[[[1]]]])], {"lo": -1.0, "hi": 6.0}).ravel()
    assert np.isnan(y[0]) and y[1:].tolist() == [6, -1, float(np.float32(1e-40))]


# --- matrix product -------------------------------------------------------------------------------------------------------

MATMUL = [
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)), ((4, 2, 3), (3,)), ((3,), (4, 3, 2)), ((1, 7), (7, 40)), ((0, 3), (3, 2)), ((2, 0), (0, 3)),
    ((2, 3), (3, 0)), ((0, 2, 3), (1, 3, 2)), ((1, 1, 1, 1, 1, 1, 2, 3), (3, 2)), ((70, 3), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), MATMUL)
def test_matmul(first: tuple[int, ...], second: tuple[int, ...], ref: Callable[..., Array], rng: np.random.Generator) -> None:
    a, b = normal(rng, *first), normal(rng, *second)
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    y = ref("matmul", [a, b])
    close(y, wanted)
    assert np.array_equal(ref("matmul", [a, b], threads=3), y)
    if b.ndim >= 2:
        c = normal(rng, second[-1])
        transposed = np.ascontiguousarray(np.swapaxes(b, -1, -2))
        clamped = np.clip(wanted + c, 0.0, 0.5)
        close(ref("matmul", [a, b, c], {"lo": 0.0, "hi": 0.5}), clamped)
        close(ref("matmul", [a, const(transposed), const(c)], {"lo": 0.0, "hi": 0.5, "trans_b": 1}), clamped)
        if b.ndim == 2:
            for block in (4, 8):
                close(ref("matmul", [a, const(transposed, block), c], {"lo": 0.0, "hi": 0.5, "trans_b": 1}), clamped)


# --- pools ----------------------------------------------------------------------------------------------------------------


def pool_by_ort(op: str, x: Array, attrs: Attrs) -> Array:
    a = dict(attrs)
    if "auto_pad" in a:
        a["auto_pad"] = a["auto_pad"].upper()
    return nhwc(ort({"max_pool": "MaxPool", "average_pool": "AveragePool"}[op], [nchw(x)], a))


POOL: list[tuple[tuple[int, int], Attrs]] = [
    ((4, 4), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((5, 4), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((4, 4), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1}),
    ((5, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 2, 2), "ceil_mode": 1}),
    ((4, 5), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 2, 2), "ceil_mode": 1}),
    ((7, 6), {"kernel_shape": (3, 2), "strides": (3, 2), "pads": (0, 1, 2, 0), "ceil_mode": 1}),
    ((7, 6), {"kernel_shape": (2, 2), "strides": (4, 3), "ceil_mode": 1}),
    ((9, 9), {"kernel_shape": (3, 3), "dilations": (2, 2), "pads": (2, 2, 2, 2)}),
    ((9, 8), {"kernel_shape": (3, 2), "dilations": (2, 3), "strides": (2, 2), "ceil_mode": 1, "pads": (1, 1, 0, 1)}),
    ((7, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "auto_pad": "same_upper"}),
    ((7, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "auto_pad": "same_lower"}),
    ((7, 6), {"kernel_shape": (4, 2), "auto_pad": "same_upper"}),
    ((7, 6), {"kernel_shape": (4, 2), "auto_pad": "same_lower"}),
    ((7, 6), {"kernel_shape": (4, 2), "strides": (2, 3), "auto_pad": "valid"}),
    ((1, 1), {"kernel_shape": (1, 1), "strides": (3, 3)}),
    ((2, 2), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
]


@pytest.mark.parametrize(("size", "attrs"), POOL)
def test_pools(size: tuple[int, int], attrs: Attrs, ref: Callable[..., Array], rng: np.random.Generator) -> None:
    x = normal(rng, 2, *size, 3) - 5  # a zero of the padding would win
    y = ref("max_pool", [x], attrs)
    close(y, pool_by_ort("max_pool", x, attrs))
    close(ref("max_pool", [x], {**attrs, "lo": -5.0, "hi": -4.0}), np.clip(y, -5, -4))
    for include in (0, 1):
        both = {**attrs, "count_include_pad": include}
        y = ref("average_pool", [x], both)
        close(y, pool_by_ort("average_pool", x, both))
        assert np.array_equal(ref("average_pool", [x], both, threads=3), y)


def test_auto_pad_beyond_onnxruntime(ref: Callable[..., Array]) -> None:
    """Strides larger than windows start at 0 (TensorFlow's meaning), and ceil_mode does not change auto_pad valid (ONNX's)."""
    x = f32(np.arange(8)).reshape(1, 1, 8, 1)
    for auto_pad in ("same_upper", "same_lower"):
        one: Attrs = {"strides": (1, 4), "auto_pad": auto_pad}
        assert ref("max_pool", [x], {"kernel_shape": (1, 1), **one}).ravel().tolist() == [0, 4]
        assert ref("average_pool", [x], {"kernel_shape": (1, 1), **one}).ravel().tolist() == [0, 4]
        assert ref("conv2d", [x, np.ones((1, 1, 1, 1), np.float32)], one).ravel().tolist() == [0, 4]
    valid = {"kernel_shape": (1, 3), "strides": (1, 3), "auto_pad": "valid", "ceil_mode": 1}
    assert ref("max_pool", [x], valid).ravel().tolist() == [2, 5]


def test_average_pool_divides_by_what_lies_in_the_padded_input(ref: Callable[..., Array]) -> None:
    """4x4 of ones, k3 s2 p1 with ceil_mode: the last window would reach one cell beyond the padding."""
    attrs = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1, "count_include_pad": 1}
    y = ref("average_pool", [np.ones((1, 4, 4, 1), np.float32)], attrs)[0, :, :, 0]
    close(y, np.outer([2 / 3, 1, 1 / 2], [2 / 3, 1, 1 / 2]))


@pytest.mark.parametrize("include", [0, 1])
def test_windows_wholly_in_the_padding(include: int, ref: Callable[..., Array]) -> None:
    attrs: Attrs = {"kernel_shape": (2, 1), "strides": (1, 1), "pads": (3, 0, 2, 0)}
    x = np.ones((1, 1, 1, 1), np.float32)
    y = ref("average_pool", [x], {**attrs, "count_include_pad": include}).ravel()
    one = 0.5 if include else 1
    assert y.tolist() == [0, 0, one, one, 0]
    assert ref("max_pool", [x], attrs).ravel().tolist() == [-INF, -INF, 1, 1, -INF]
    assert ref("max_pool", [x], {**attrs, "lo": 0.0}).ravel().tolist() == [0, 0, 1, 1, 0]


def test_huge_kernels_take_no_longer_than_their_input(ref: Callable[..., Array]) -> None:
    attrs: Attrs = {"kernel_shape": (2**30, 2**30), "auto_pad": "same_upper"}
    x = f32([1, 2, 3, 4]).reshape(1, 2, 2, 1)
    assert ref("max_pool", [x], attrs).ravel().tolist() == [4] * 4
    assert ref("average_pool", [x], attrs).ravel().tolist() == [2.5] * 4
    close(ref("average_pool", [x], {**attrs, "count_include_pad": 1}), np.full(x.shape, 10 / 2**60), 1e-6, 0)
    huge = np.zeros((1, 2**28, 2**28, 0), np.float32)  # no elements, but rows without end
    assert ref("global_average_pool", [huge]).shape == (1, 1, 1, 0)
    assert ref("max_pool", [huge], {"kernel_shape": (1, 1)}).shape == huge.shape
    assert ref("concat", [huge, huge], {"axis": 3}).shape == huge.shape
    wide = {"strides": (2**28, 2**28), "pads": (1, 1, 0, 0)}
    assert ref("conv2d", [huge, np.zeros((2, 2**28, 2**28, 0), np.float32)], wide).ravel().tolist() == [0, 0]


def test_a_last_window_in_the_right_padding_is_dropped(library: Library) -> None:
    attrs: Attrs = {"kernel_shape": (1, 1), "strides": (3, 3), "pads": (0, 0, 2, 2), "ceil_mode": 1}
    # Positions 0, 3 and, in the padding, 6: of an input of 4, 4 + 2 cells, 3 windows by rounding up, of which one is dropped.
    assert library.infer("max_pool", "nhwc", attrs, [("f32", (1, 4, 5, 2))]) == [("f32", (1, 2, 2, 2))]


def test_max_pools_keep_nan(ref: Callable[..., Array]) -> None:
    x = f32([1, NAN, 3, 4, -INF, -INF]).reshape(1, 1, 6, 1)
    y = ref("max_pool", [x], {"kernel_shape": (1, 2), "strides": (1, 2)}).ravel()
    assert np.isnan(y[0]) and y[1:].tolist() == [4, -INF]
    assert np.isnan(ref("global_max_pool", [x])).all()


def test_global_pools(ref: Callable[..., Array], rng: np.random.Generator) -> None:
    for shape in ((2, 3, 4, 5), (1, 1, 1, 1), (1, 7, 7, 70), (0, 2, 2, 3), (2, 2, 2, 0)):
        x = normal(rng, *shape)
        nothing = np.zeros((shape[0], 1, 1, shape[3]))
        close(ref("global_average_pool", [x]), x.mean((1, 2), np.float64, keepdims=True) if x.size else nothing)
        close(ref("global_max_pool", [x], threads=3), x.max((1, 2), keepdims=True) if x.size else nothing)


# --- normalisation, softmax -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (2, 4, 5, 3), (2, 4, 3), (1, 2, 1, 2, 3), (0, 4, 5, 3)])
def test_batch_normalization(shape: tuple[int, ...], ref: Callable[..., Array], rng: np.random.Generator) -> None:
    x = normal(rng, *shape)
    scale, bias, mean, var = normal(rng, 3), normal(rng, 3), normal(rng, 3), np.abs(normal(rng, 3))
    wanted = (x.astype(np.float64) - mean) / np.sqrt(var.astype(np.float64) + 1e-3) * scale + bias
    inputs = [const(v) for v in (scale, bias, mean, var)]
    close(ref("batch_normalization", [x, *inputs], {"epsilon": 1e-3}), wanted)
    close(ref("batch_normalization", [nchw(x), *inputs], {"epsilon": 1e-3}, layout="nchw"), nchw(wanted))


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (1, 1), (3, 1, 2, 2), (1, 1000), (0, 3), (4, 0), (2, 0, 3)])
def test_softmax(shape: tuple[int, ...], ref: Callable[..., Array], rng: np.random.Generator) -> None:
    for scale, axis in itertools.product((1, 100), range(-len(shape), len(shape))):
        x = normal(rng, *shape) * np.float32(scale)
        close(ref("softmax", [x], {"axis": axis}), softmax(x, axis) if x.size else x, 1e-6, 1e-44)


def test_softmax_without_a_distribution(ref: Callable[..., Array]) -> None:
    x = f32([[0, -INF, 0], [-INF, -INF, -INF], [INF, 0, 0], [NAN, 0, 0], [3.4e38, -3.4e38, 3.4e38], [1e-40, 0, 0]])
    y = ref("softmax", [x])
    assert y[0].tolist() == [0.5, 0, 0.5] and y[4].tolist() == [0.5, 0, 0.5]
    assert np.isnan(y[1:4]).all()
    close(y[5], [1 / 3] * 3)


# --- views ----------------------------------------------------------------------------------------------------------------

VIEWS: list[tuple[str, tuple[int, ...], Attrs, tuple[int, ...]]] = [
    ("identity", (2, 3), {}, (2, 3)),
    ("identity", (), {}, ()),
    ("reshape", (2, 3, 4), {"shape": (4, 6)}, (4, 6)),
    ("reshape", (2, 3, 4), {"shape": (-1,)}, (24,)),
    ("reshape", (2, 3, 4), {"shape": (0, -1)}, (2, 12)),
    ("reshape", (2, 3, 4), {"shape": (0, 0, 2, -1)}, (2, 3, 2, 2)),
    ("reshape", (), {"shape": (1, 1)}, (1, 1)),
    ("reshape", (1,), {"shape": ()}, ()),
    ("reshape", (0, 3), {"shape": (3, 0), "allowzero": 1}, (3, 0)),
    ("reshape", (0, 3), {"shape": (-1, 3)}, (0, 3)),
    ("flatten", (2, 3, 4), {}, (2, 12)),
    ("flatten", (2, 3, 4), {"axis": 0}, (1, 24)),
    ("flatten", (2, 3, 4), {"axis": 3}, (24, 1)),
    ("flatten", (2, 3, 4), {"axis": -1}, (6, 4)),
    ("flatten", (), {"axis": 0}, (1, 1)),
    ("squeeze", (1, 3, 1, 2), {}, (3, 2)),
    ("squeeze", (1, 3, 1, 2), {"axes": (-2,)}, (1, 3, 2)),
    ("squeeze", (1, 1), {}, ()),
    ("unsqueeze", (3, 2), {"axes": (0, -1)}, (1, 3, 2, 1)),
    ("unsqueeze", (), {"axes": (0,)}, (1,)),
    ("unsqueeze", (3, 2), {"axes": ()}, (3, 2)),
]


@pytest.mark.parametrize(("op", "shape", "attrs", "wanted"), VIEWS)
def test_views(op: str, shape: tuple[int, ...], attrs: Attrs, wanted: tuple[int, ...], ref: Callable[..., Array]) -> None:
    for dtype in (np.float32, np.uint8, np.int64, np.bool_):
        x = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        assert np.array_equal(ref(op, [x], attrs), x.reshape(wanted))


# --- data movement --------------------------------------------------------------------------------------------------------

MOVED = (np.float32, np.float16, np.uint8, np.int64, np.bool_, np.float64, np.int16)


def numbered(dtype: Any, *shape: int) -> Array:
    return (np.arange(math.prod(shape)) % 251).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", MOVED)
def test_transpose(dtype: Any, ref: Callable[..., Array]) -> None:
    x = numbered(dtype, 2, 3, 4, 5)
    assert np.array_equal(ref("transpose", [x]), x.transpose())
    for perm in itertools.permutations(range(4)):
        assert np.array_equal(ref("transpose", [x], {"perm": perm}), x.transpose(perm))


def test_transpose_of_odd_shapes(ref: Callable[..., Array]) -> None:
    large = ((1, 2, 1, 2, 1, 2, 1, 3), (7, 0, 6, 1, 5, 2, 4, 3))
    for shape, perm in (((), ()), ((3,), (0,)), ((0, 3), (1, 0)), large, ((70, 300), (1, 0))):
        x = numbered(np.float32, *shape)
        assert np.array_equal(ref("transpose", [x], {"perm": perm}, threads=3), x.transpose(perm))


@pytest.mark.parametrize("dtype", MOVED)
def test_concat(dtype: Any, ref: Callable[..., Array]) -> None:
    for axis in range(-3, 3):
        parts = [np.moveaxis(numbered(dtype, n, 2, 3), 0, axis) for n in (1, 4, 0, 2)]
        given: list[Given] = [const(parts[0]), *parts[1:]]
        assert np.array_equal(ref("concat", given, {"axis": axis}), np.concatenate(parts, axis))
    assert np.array_equal(ref("concat", [numbered(dtype, 2)], {"axis": 0}), numbered(dtype, 2))
    many = [numbered(dtype, 2, 1)] * 32
    assert np.array_equal(ref("concat", many, {"axis": 1}), np.concatenate(many, 1))


PADS = [
    ((2, 3), (1, 2, 3, 0)), ((2, 3), (0, 0, 0, 0)), ((4, 5), (-1, 2, -2, -1)), ((4, 5), (-1, 2, 3, -3)), ((3,), (1, 1)),
    ((1, 4), (2, 5, 3, 9)),
]  # fmt: skip


@pytest.mark.parametrize("mode", S.ENUMS["pad_mode"])
def test_pad(mode: str, ref: Callable[..., Array]) -> None:
    for (shape, pads), dtype in itertools.product(PADS, MOVED):
        x = numbered(dtype, *shape)
        rank = len(shape)
        cropped = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, b, e in zip(shape, pads[:rank], pads[rank:]))]
        width = [(max(b, 0), max(e, 0)) for b, e in zip(pads[:rank], pads[rank:])]
        wanted = np.pad(cropped, width, mode, constant_values=1) if mode == "constant" else np.pad(cropped, width, mode)  # type: ignore[call-overload]
        assert np.array_equal(ref("pad", [x], {"pads": pads, "mode": mode, "value": 1.0}), wanted)


VALUES = [0.0, -0.0, 1.5, -65504.0, 65519.0, 65520.0, 1e-5, 6e-8, 2.9e-8, 2.99e-8, 6.1e-5, 2049.0, 2051.0, INF, NAN, 3.4e38]


@pytest.mark.parametrize("value", VALUES)
def test_pad_converts_its_value(value: float, ref: Callable[..., Array]) -> None:
    half = ref("pad", [np.zeros(1, np.float16)], {"pads": (1, 0), "value": value})
    assert np.array_equal(half[0], quiet(lambda: np.float32(value).astype(np.float16)), equal_nan=True)
    brain = ref("pad", [const(np.zeros(1, np.uint16), dtype="bf16")], {"pads": (1, 0), "value": value})
    found = (brain.astype(np.uint32) << 16).view(np.float32)[0]
    if not math.isfinite(value):
        assert np.array_equal(found, np.float32(value), equal_nan=True)
    else:
        bits = int(np.float32(value).view(np.uint32))
        assert int(brain[0]) == (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    double = ref("pad", [np.zeros(1)], {"pads": (1, 0), "value": value})
    assert np.array_equal(double[0], np.float64(np.float32(value)), equal_nan=True)


def test_pad_of_scalars_and_nothing(ref: Callable[..., Array]) -> None:
    assert ref("pad", [f32(3)], {"pads": ()}) == 3
    assert ref("pad", [np.zeros((0, 2), np.int32)], {"pads": (1, 0, 2, 1), "value": -7.0}).tolist() == [[-7] * 3] * 3


BIG = 2**31 - 1
SLICES: list[tuple[tuple[int, ...], Attrs, tuple[Any, ...]]] = [
    ((5, 6), {"starts": (1,), "ends": (4,)}, (slice(1, 4),)),
    ((5, 6), {"starts": (-3, 0), "ends": (BIG, -1)}, (slice(-3, None), slice(0, -1))),
    ((5, 6), {"starts": (1,), "ends": (-1,), "axes": (-1,)}, (slice(None), slice(1, -1))),
    ((5, 6), {"starts": (0, 1), "ends": (9, 9), "axes": (1, 0), "steps": (2, 3)}, (slice(1, 9, 3), slice(0, 9, 2))),
    ((5, 6), {"starts": (-1,), "ends": (-BIG - 1,), "steps": (-1,)}, (slice(None, None, -1),)),
    ((5, 6), {"starts": (BIG,), "ends": (0,), "steps": (-2,), "axes": (1,)}, (slice(None), slice(None, 0, -2))),
    ((5, 6), {"starts": (3,), "ends": (1,)}, (slice(3, 1),)),
    ((5, 6), {"starts": (7,), "ends": (9,)}, (slice(7, 9),)),
    ((5, 6), {"starts": (-9,), "ends": (-7,), "steps": (-1,)}, (slice(-9, -7, -1),)),
    ((5, 6), {"starts": (2,), "ends": (BIG,), "steps": (BIG,)}, (slice(2, None, BIG),)),
    ((5, 6), {"starts": (2,), "ends": (-BIG,), "steps": (-BIG - 1,)}, (slice(2, None, -BIG),)),
    ((5, 6), {"starts": (), "ends": ()}, ()),
    ((0, 6), {"starts": (0, -1), "ends": (5, 0), "steps": (1, -2)}, (slice(0, 5), slice(-1, 0, -2))),
    ((0,), {"starts": (-1,), "ends": (-5,), "steps": (-1,)}, (slice(-1, -5, -1),)),
    ((), {"starts": (), "ends": ()}, ()),
]


@pytest.mark.parametrize(("shape", "attrs", "index"), SLICES)
def test_slice(shape: tuple[int, ...], attrs: Attrs, index: tuple[Any, ...], ref: Callable[..., Array]) -> None:
    for dtype in MOVED:
        x = numbered(dtype, *shape)
        assert np.array_equal(ref("slice", [x], attrs), x[index])


# --- fused steps and threads ----------------------------------------------------------------------------------------------

TAILED: list[tuple[str, list[tuple[int, ...]], Attrs]] = [
    ("conv2d", [(2, 5, 6, 3), (4, 3, 3, 3)], {"pads": (1, 1, 1, 1)}),
    ("matmul", [(7, 3), (3, 5)], {}),
    ("matmul", [(1, 3), (3, 70)], {}),
    ("max_pool", [(2, 5, 6, 3)], {"kernel_shape": (2, 2)}),
    ("average_pool", [(2, 5, 6, 3)], {"kernel_shape": (2, 2)}),
    ("global_average_pool", [(2, 5, 6, 40)], {}),
    ("global_max_pool", [(2, 5, 6, 40)], {}),
    ("batch_normalization", [(70, 40, 5), (5,), (5,), (5,), (5,)], {}),
    ("softmax", [(9, 5)], {}),
    ("softmax", [(3, 5, 2)], {"axis": 1}),
    ("transpose", [(70, 200)], {}),
    ("concat", [(5, 3), (5, 4)], {"axis": 1}),
    ("pad", [(70, 70)], {"pads": (1, 2, 3, 4)}),
    ("slice", [(90, 70)], {"starts": (1,), "ends": (80,)}),
    ("add", [(70, 90), (90,)], {}),
    ("clip", [(70, 90)], {"lo": 0.0}),
    ("exp", [()], {}),
]


@pytest.mark.parametrize(("op", "shapes", "attrs"), TAILED)
def test_fused_steps_equal_separate_nodes(
    op: str, shapes: list[tuple[int, ...]], attrs: Attrs, ref: Callable[..., Array], rng: np.random.Generator
) -> None:
    inputs: list[Given] = [np.abs(normal(rng, *s)) for s in shapes]
    plain = ref(op, inputs, attrs)
    same, channel, scalar = normal(rng, *plain.shape), normal(rng, *plain.shape[-1:]), normal(rng)
    tails = [Tail("add", same), Tail("sub", const(channel), True), Tail("mul", scalar, attrs={"hi": 0.5}), Tail("sigmoid")]
    wanted = plain
    for tail in tails:
        pair = [wanted] if tail.other is None else [tail.other, wanted] if tail.other_first else [wanted, tail.other]
        wanted = ref(tail.op, pair, tail.attrs).reshape(plain.shape)
    for threads in (1, 3):
        assert np.array_equal(ref(op, inputs, attrs, tails=tails, threads=threads), wanted)


# --- what is refused ------------------------------------------------------------------------------------------------------

IMAGE, WEIGHTS = ("f32", (1, 8, 8, 4)), ("f32", (6, 3, 3, 4))
Types = list[Optional[tuple[str, tuple[int, ...]]]]
BAD: list[tuple[str, Attrs, Types, str]] = [
    ("conv2d", {"group": 0}, [IMAGE, WEIGHTS], "group 0 is not positive"),
    ("conv2d", {"group": 2}, [IMAGE, WEIGHTS], r"x has 4 channels, but w \[6, 3, 3, 4\] with group 2 needs 8"),
    ("conv2d", {"group": BIG}, [IMAGE, WEIGHTS], "needs 8589934588"),
    ("conv2d", {"group": 4}, [IMAGE, ("f32", (6, 3, 3, 1))], "6 output channels do not divide into 4 groups"),
    ("conv2d", {}, [IMAGE, WEIGHTS, ("f32", (5,))], r"b is \[5\], but w makes 6 channels"),
    ("conv2d", {}, [("f32", (8, 8, 4)), WEIGHTS], "must have 4 dimensions"),
    ("conv2d", {}, [IMAGE, ("s8", (6, 3, 3, 4))], "input 1 is s8, but input 0 is f32"),
    ("conv2d", {}, [("s32", (1, 8, 8, 4)), ("s32", (6, 3, 3, 4))], "s32, not a float type"),
    ("conv2d", {"strides": (0, 1)}, [IMAGE, WEIGHTS], "stride is not positive: height 8, kernel 3, stride 0"),
    ("conv2d", {"dilations": (1, -1)}, [IMAGE, WEIGHTS], "dilation is not positive: width 8"),
    ("conv2d", {"dilations": (1, BIG)}, [IMAGE, WEIGHTS], "too large"),
    ("conv2d", {"pads": (0, 0, -1, 0)}, [IMAGE, WEIGHTS], "padding is negative.*pads 0 and -1"),
    ("conv2d", {"pads": (BIG, 0, BIG, 0)}, [IMAGE, WEIGHTS], "too large"),
    ("conv2d", {"dilations": (4, 1)}, [IMAGE, WEIGHTS], "does not fit.*height 8, kernel 3, stride 1, dilation 4, pads 0 and 0"),
    ("conv2d", {}, [("f32", (1, 0, 8, 4)), WEIGHTS], "does not fit"),
    ("conv2d", {"auto_pad": "same_upper"}, [("f32", (1, 0, 8, 4)), WEIGHTS], "does not fit"),
    ("conv2d", {}, [IMAGE, ("f32", (6, 0, 3, 4))], "kernel is not positive"),
    ("conv2d", {"lo": 1.0, "hi": 0.0}, [IMAGE, WEIGHTS], "lo 1 and hi 0 are no range"),
    ("conv2d", {"lo": NAN}, [IMAGE, WEIGHTS], "no range"),
    ("max_pool", {"kernel_shape": (0, 1)}, [IMAGE], "kernel is not positive"),
    ("max_pool", {"kernel_shape": (9, 1)}, [IMAGE], "does not fit"),
    ("average_pool", {"kernel_shape": (BIG, BIG), "auto_pad": "same_lower"}, [IMAGE], "too large"),
    ("average_pool", {"kernel_shape": (1, 1), "hi": NAN}, [IMAGE], "no range"),
    ("global_max_pool", {}, [("f32", (1, 0, 8, 4))], "no pixels"),
    ("batch_normalization", {}, [IMAGE, *[("f32", (4,))] * 3, ("f32", (3,))], r"var is \[3\], but x .* has 4 channels"),
    ("matmul", {}, [("f32", (2, 3)), ("f32", (4, 5))], "rows of 3, columns of 4"),
    ("matmul", {}, [("f32", ()), ("f32", (4, 5))], "need a dimension"),
    ("matmul", {}, [("f32", (2, 2, 3)), ("f32", (3, 3, 5))], "do not broadcast"),
    ("matmul", {"trans_b": 1}, [("f32", (3,)), ("f32", (3,))], "cannot be transposed"),
    ("matmul", {}, [("f32", (2, 3)), ("f32", (3, 4)), ("f32", (5,))], r"c is \[5\]"),
    ("matmul", {}, [("f32", (2, 3)), ("f32", (3,)), ("f32", (2,))], r"c is \[2\]"),
    ("softmax", {"axis": 2}, [("f32", (2, 3))], "axis 2 is outside a tensor of rank 2"),
    ("softmax", {"axis": 0}, [("f32", ())], "axis 0 is outside a tensor of rank 0"),
    ("softmax", {}, [("bool", (2, 3))], "not a float type"),
    ("reshape", {"shape": (-1, -1)}, [("f32", (2, 3))], "dimensions 0 and 1 of the shape are both -1"),
    ("reshape", {"shape": (4, -1)}, [("f32", (2, 3))], "6 elements, no multiple of the 4"),
    ("reshape", {"shape": (7,)}, [("f32", (2, 3))], r"6 elements, the shape \[7\] has 7"),
    ("reshape", {"shape": (-2,)}, [("f32", (2, 3))], "dimension 0 of the shape is -2"),
    ("reshape", {"shape": (1, 1, 0)}, [("f32", (2, 3))], "none to copy"),
    ("reshape", {"shape": (0, -1), "allowzero": 1}, [("f32", (0, 3))], "not determined"),
    ("reshape", {"shape": (1,) * 9}, [("f32", (1,))], "9 dimensions"),
    ("reshape", {"shape": (BIG,) * 8}, [("f32", (2, 3))], "6 elements"),
    ("flatten", {"axis": 4}, [("f32", (1, 2, 3))], "axis 4 is outside"),
    ("flatten", {"axis": -4}, [("f32", (1, 2, 3))], "axis -4 is outside"),
    ("squeeze", {"axes": (1,)}, [("f32", (1, 2))], "is not 1"),
    ("squeeze", {"axes": (0, -2)}, [("f32", (1, 2))], "axis -2 is given twice"),
    ("squeeze", {"axes": (2,)}, [("f32", (1, 2))], "axis 2 is outside"),
    ("unsqueeze", {"axes": (0, 0)}, [("f32", (2,))], "given twice"),
    ("unsqueeze", {"axes": tuple(range(8))}, [("f32", (2,))], "beyond rank 8"),
    ("transpose", {"perm": (0, 0)}, [("f32", (2, 3))], "entry 1 is 0"),
    ("transpose", {"perm": (0,)}, [("f32", (2, 3))], "perm has 1 entries"),
    ("transpose", {"perm": (0, -BIG)}, [("f32", (2, 3))], "no permutation"),
    ("concat", {"axis": 0}, [("f32", (2, 3)), ("f32", (2, 4))], r"input 1 is \[2, 4\], which cannot be joined to \[2, 3\] alo"),
    ("concat", {"axis": 0}, [("f32", (2, 3)), ("s32", (2, 3))], "input 1 is s32"),
    ("concat", {"axis": 0}, [("f32", ())], "axis 0 is outside"),
    ("concat", {"axis": 0}, [("u8", (BIG,)), ("u8", (1,))], "would be 2147483648"),
    ("pad", {"pads": (1,)}, [("f32", (2,))], "1 pads"),
    ("pad", {"pads": (-2, -1)}, [("f32", (2,))], "cannot be cropped"),
    ("pad", {"pads": (-5, 9)}, [("f32", (2,))], "cannot be cropped"),
    ("pad", {"pads": (BIG, BIG)}, [("u8", (2,))], "would be 4294967296"),
    ("pad", {"pads": (1, 0), "mode": "edge"}, [("f32", (0,))], "nothing to make a border from"),
    ("pad", {"pads": (1, 0), "value": 0.5}, [("s32", (2,))], "0.5 is no s32"),
    ("pad", {"pads": (1, 0), "value": 256.0}, [("u8", (2,))], "256 is no u8"),
    ("pad", {"pads": (1, 0), "value": NAN}, [("s64", (2,))], "nan is no s64"),
    ("pad", {"pads": (1, 0), "value": 2.0}, [("bool", (2,))], "2 is no bool"),
    ("slice", {"starts": (0,), "ends": ()}, [("f32", (2,))], "1 starts, but 0 ends"),
    ("slice", {"starts": (0,), "ends": (1,), "steps": (0,)}, [("f32", (2,))], "step 0 of the slice is 0"),
    ("slice", {"starts": (0, 0), "ends": (1, 1), "axes": (0, -2)}, [("f32", (2, 2))], "axis -2 is given twice"),
    ("slice", {"starts": (0, 0), "ends": (1, 1)}, [("f32", (2,))], "2 starts for x"),
    ("add", {}, [("f32", (2, 3)), ("f32", (2, 4))], r"\[2, 3\] and \[2, 4\] do not broadcast"),
    ("add", {}, [("f32", (2,)), ("s32", (2,))], "input 1 is s32"),
    ("add", {}, [("bool", (2,)), ("bool", (2,))], "not a number"),
    ("prelu", {}, [("f32", (3,)), ("f32", (2, 3))], "slope"),
    ("clip", {"lo": 2.0, "hi": 1.0}, [("f32", (2,))], "no range"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "inputs", "message"), BAD)
def test_refused(op: str, attrs: Attrs, inputs: Types, message: str, library: Library) -> None:
    with pytest.raises(errors.ShapeError, match=message):
        library.infer(op, "nhwc" if S.BY_NAME[op].layout else "any", attrs, inputs)


def test_nchw_shapes(library: Library) -> None:
    x, w = ("f32", (1, 4, 8, 9)), ("f32", (6, 4, 3, 2))
    assert library.infer("conv2d", "nchw", {"strides": (2, 1)}, [x, w]) == [("f32", (1, 6, 3, 8))]
    assert library.infer("max_pool", "nchw", {"kernel_shape": (3, 2)}, [x]) == [("f32", (1, 4, 6, 8))]
    assert library.infer("global_average_pool", "nchw", {}, [x]) == [("f32", (1, 4, 1, 1))]


def test_blocked_constants_are_for_weights(library: Library, rng: np.random.Generator) -> None:
    cases: list[tuple[str, list[Given], Attrs]] = [
        ("add", [normal(rng, 4, 3), const(normal(rng, 4, 3), 4)], {}),
        ("matmul", [normal(rng, 4, 3), const(normal(rng, 3, 4), 4)], {}),
        ("conv2d", [normal(rng, 1, 4, 4, 3), normal(rng, 4, 1, 1, 3), const(normal(rng, 4), 4)], {}),
    ]
    for op, inputs, attrs in cases:
        with pytest.raises(errors.ShapeError, match="blocks of 4"):
            run(library, op, inputs, attrs)


def raw_infer(library: Library, op: S.Op, params: bytes, inputs: Sequence[tuple[int, Sequence[int]]]) -> tuple[int, str]:
    """opsnn_infer with parameters as a hostile file may hold them: the status and the error's text."""
    ffi = library.ffi
    infos, outputs, error = ffi.new("opsnn_tensor_info[32]"), ffi.new("opsnn_tensor_info[1]"), ffi.new("opsnn_error *")
    for info, (dtype, dims) in zip(infos, inputs):
        info.dtype, info.rank = dtype, len(dims)
        info.dims[0 : len(dims)] = list(dims)
    words = ffi.new("uint64_t[]", len(params) // 8 + 1)
    ffi.memmove(words, params, len(params))
    status = library._c.opsnn_infer(op.id, 2 if op.layout else 0, words, len(params), infos, len(inputs), outputs, 1, error)
    if status == 0:
        assert outputs[0].rank <= S.MAX_RANK and all(d >= 0 for d in outputs[0].dims[0 : outputs[0].rank])
    return status, ffi.string(error.text).decode()


def attrs_that_must_be_given(op: S.Op) -> Attrs:
    n = 8 if op.name == "pad" else 1  # entries of lists
    values = {"i32[]": (1,) * n, "i32[2]": (1, 1), "i32": 1}
    return {attr.name: values[attr.type] for attr in op.attrs if attr.default is None}


WORDS = [0, 1, 2, 3, 7, 8, 15, 16, 17, 255, 65535, BIG, 2**31, 2**31 + 1, 2**32 - 1, 2**32 - 8, 0x7FC00000, 0xFF800000]


@pytest.mark.parametrize("op", S.OPS, ids=lambda op: op.name)
def test_any_parameters_are_survived(op: S.Op, library: Library, rng: np.random.Generator) -> None:
    """Sound parameters with a few words replaced by boundary values, inputs of all sizes: a shape or an error with a text."""
    sound = modelfile.pack_params(op.name, attrs_that_must_be_given(op))
    dims = [0, 1, 1, 2, 3, 4, 4, 5, 1000, 65536, BIG]
    for _ in range(400):
        words = list(struct.unpack(f"<{len(sound) // 4}I", sound))
        for _ in range(int(rng.integers(0, 4)) if words else 0):
            words[int(rng.integers(len(words)))] = WORDS[int(rng.integers(len(WORDS)))]
        n = int(rng.integers(op.min_inputs, min(op.max_inputs, 5) + 1))
        rank = int(rng.integers(0, 9)) if rng.random() < 0.3 else 4
        inputs = [(1, [dims[int(rng.integers(len(dims)))] for _ in range(rank)]) for _ in range(n)]
        status, text = raw_infer(library, op, struct.pack(f"<{len(words)}I", *words), inputs)
        assert status == 0 or text.startswith(f"{op.name}: ")


OUT_OF_RANGE: list[tuple[str, str, tuple[int, ...]]] = [
    ("conv2d", "auto_pad", (4, -1)), ("max_pool", "ceil_mode", (2, -1)), ("average_pool", "count_include_pad", (2,)),
    ("matmul", "trans_b", (2, -1)), ("reshape", "allowzero", (2,)), ("pad", "mode", (4, -1)), ("gelu", "approximate", (2, -1)),
    ("reshape", "shape", (9, 17, -1)), ("squeeze", "axes", (17, -1, BIG)), ("unsqueeze", "axes", (17, -1, BIG)),
    ("transpose", "perm", (17, -1)), ("pad", "pads", (17, -1, BIG)), ("slice", "starts", (17, -1)),
    ("slice", "steps", (17, -1)), ("slice", "axes", (17, -1)), ("slice", "ends", (17, -1)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "name", "values"), OUT_OF_RANGE)
def test_values_that_no_writer_makes(op: str, name: str, values: Sequence[int], library: Library) -> None:
    """Enums, flags and counts of lists out of range."""
    schema = S.BY_NAME[op]
    sound = modelfile.pack_params(op, attrs_that_must_be_given(schema))
    at = 0  # of the attribute's first word
    for attr in schema.attrs:
        if attr.name == name:
            break
        at += 4 * {"i32[]": S.LIST_CAPACITY + 1, "i32[2]": 2, "i32[4]": 4}.get(attr.type, 1)
    x = (1, [1, 4, 4, 4])
    inputs = {"conv2d": [x, (1, [1, 1, 1, 4])], "matmul": [x, (1, [4, 4])]}.get(op, [x])
    for value in values:
        status, text = raw_infer(library, schema, sound[:at] + struct.pack("<i", value) + sound[at + 4 :], inputs)
        assert status == 7
        assert str(value) in text or "auto_pad is none of" in text
