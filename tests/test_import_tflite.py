"""TensorFlow Lite models: every operator against LiteRT, real networks, and files that are damaged or hostile."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from conftest import Build
from ops_nn.compiler import compile_model
from ops_nn.errors import FileError, FormatError, ModelError, UnsupportedOperator
from ops_nn.importers import tflite as importer
from ops_nn.lib import Library
from ops_nn.runtime import Model
from tflite_net import Array, Net, litert

RNG = np.random.default_rng(5)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def library(host_build: Build) -> Library:
    return Library(host_build.lib)


def run(path: Path, feeds: dict[str, Array], library: Library) -> dict[str, Array]:
    data, _ = compile_model(path, {name: array.shape for name, array in feeds.items()}, library=library)
    return Model(data, library).session(threads=1).run(feeds)


# --- operators -------------------------------------------------------------------------------------------------------------

Case = Callable[[Net], list[int]]  # makes a model and returns its outputs
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def conv(net: Net) -> list[int]:
    x, w, b = net.input(2, 9, 8, 3), net.constant(random(5, 3, 2, 3)), net.constant(random(5))
    same = net.op("CONV_2D", [x, w, b], net.tensor([2, 5, 4, 5]), "Conv2DOptions", padding=0, strideH=2, strideW=2,
                  dilationHFactor=1, dilationWFactor=1, fusedActivationFunction=3)  # fmt: skip
    valid = net.op("CONV_2D", [x, w, b], net.tensor([2, 5, 7, 5]), "Conv2DOptions", padding=1, strideH=1, strideW=1,
                   dilationHFactor=2, dilationWFactor=1, fusedActivationFunction=2)  # fmt: skip
    return [same, valid]


@case
def grouped_conv(net: Net) -> list[int]:
    x, w, b = net.input(1, 6, 6, 4), net.constant(random(6, 3, 3, 2)), net.constant(random(6))
    return [net.op("CONV_2D", [x, w, b], net.tensor([1, 4, 4, 6]), "Conv2DOptions", padding=1, strideH=1, strideW=1)]


@case
def depthwise_conv(net: Net) -> list[int]:
    x, w, b = net.input(1, 7, 7, 3), net.constant(random(1, 3, 3, 6)), net.constant(random(6))
    return [net.op("DEPTHWISE_CONV_2D", [x, w, b], net.tensor([1, 4, 4, 6]), "DepthwiseConv2DOptions", padding=0, strideH=2,
                   strideW=2, depthMultiplier=2, fusedActivationFunction=1)]  # fmt: skip


@case
def pools(net: Net) -> list[int]:
    x = net.input(1, 7, 9, 3)
    options: dict[str, Any] = {"padding": 0, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 2}
    return [net.op(op, [x], net.tensor([1, 4, 5, 3]), "Pool2DOptions", **options) for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D")]


@case
def binary(net: Net) -> list[int]:
    x, c = net.input(1, 3, 4, 2), net.constant(np.abs(random(1, 1, 2)) + 0.5)
    found = []
    for op in ("Add", "Sub", "Mul", "Div"):
        for activation in (0, 1, 2, 3):
            y = net.tensor([1, 3, 4, 2])
            found.append(net.op(op.upper(), [x, c], y, f"{op}Options", fusedActivationFunction=activation))
    for op in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
        found.append(net.op(op, [c, x], net.tensor([1, 3, 4, 2])))
    positive = net.op("ABS", [x], net.tensor([1, 3, 4, 2]), "AbsOptions")
    return [*found, net.op("POW", [positive, c], net.tensor([1, 3, 4, 2]), "PowOptions")]


@case
def activations(net: Net) -> list[int]:
    x, shape = net.input(1, 3, 4, 2), [1, 3, 4, 2]
    names = ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "LOGISTIC", "TANH", "HARD_SWISH", "EXP", "ABS", "NEG")
    found = [net.op(name, [x], net.tensor(shape)) for name in (*names, "FLOOR", "CEIL", "ROUND", "SQUARE")]
    found.append(net.op("PRELU", [x, net.constant(random(1, 1, 2))], net.tensor(shape)))
    found.append(net.op("LEAKY_RELU", [x], net.tensor(shape), "LeakyReluOptions", alpha=0.3))
    for approximate in (False, True):
        found.append(net.op("GELU", [x], net.tensor(shape), "GeluOptions", approximate=approximate))
    positive = net.op("ABS", [x], net.tensor(shape), "AbsOptions")
    return [*found, *(net.op(name, [positive], net.tensor(shape)) for name in ("LOG", "SQRT", "RSQRT"))]


@case
def softmax(net: Net) -> list[int]:
    x = net.input(2, 3, 5)
    y = net.op("SOFTMAX", [x], net.tensor([2, 3, 5]), "SoftmaxOptions", beta=0.5)
    return [y, net.op("LOG_SOFTMAX", [x], net.tensor([2, 3, 5]), "LogSoftmaxOptions")]


@case
def means(net: Net) -> list[int]:
    x = net.input(2, 5, 4, 3)
    found = []
    kinds = [
        ([1, 2], True, [2, 1, 1, 3]), ([1, 2], False, [2, 3]), ([-1], False, [2, 5, 4]), ([1], True, [2, 1, 4, 3]),
        ([1, 3], False, [2, 4]), ([0, 2], True, [1, 5, 1, 3]),
    ]  # fmt: skip
    for axes, keep, shape in kinds:
        for op in ("MEAN", "SUM", "REDUCE_MAX"):
            found.append(net.op(op, [x, net.constant(axes)], net.tensor(shape), "ReducerOptions", keepDims=keep))
    return found


@case
def fully_connected(net: Net) -> list[int]:
    x, w, b = net.input(2, 3, 4), net.constant(random(5, 4)), net.constant(random(5))
    wide = net.constant(random(2, 12))
    kind = "FullyConnectedOptions"
    return [
        net.op("FULLY_CONNECTED", [x, w, b], net.tensor([6, 5]), kind, fusedActivationFunction=1),
        net.op("FULLY_CONNECTED", [x, w, -1], net.tensor([2, 3, 5]), kind, keepNumDims=True),
        net.op("FULLY_CONNECTED", [x, wide, -1], net.tensor([2, 2]), kind),
    ]


@case
def batch_matmul(net: Net) -> list[int]:
    a, b = net.input(2, 3, 4), net.input(2, 3, 5)
    y = net.op("BATCH_MATMUL", [a, b], net.tensor([2, 4, 5]), "BatchMatMulOptions", adjX=True)
    return [net.op("BATCH_MATMUL", [y, b], net.tensor([2, 4, 3]), "BatchMatMulOptions", adjY=True)]


@case
def views(net: Net) -> list[int]:
    x = net.input(1, 3, 1, 4)
    return [
        net.op("RESHAPE", [x, net.constant([2, -1])], net.tensor([2, 6]), "ReshapeOptions", newShape=[2, 6]),
        net.op("SQUEEZE", [x], net.tensor([1, 3, 4]), "SqueezeOptions", squeezeDims=[2]),
        net.op("EXPAND_DIMS", [x, net.constant(-1)], net.tensor([1, 3, 1, 4, 1]), "ExpandDimsOptions"),
    ]


@case
def movement(net: Net) -> list[int]:
    x = net.input(1, 4, 6, 8)
    pads = [[0, 0], [1, 2], [0, 1], [0, 0]]
    ones = [[0, 0], [1, 1], [0, 1], [0, 0]]
    return [
        net.op("TRANSPOSE", [x, net.constant([0, 3, 1, 2])], net.tensor([1, 8, 4, 6]), "TransposeOptions"),
        net.op("CONCATENATION", [x, net.constant(random(1, 4, 6, 1)), x], net.tensor([1, 4, 6, 17]),
               "ConcatenationOptions", axis=-1),
        net.op("PAD", [x, net.constant(pads)], net.tensor([1, 7, 7, 8]), "PadOptions"),
        net.op("PADV2", [x, net.constant(pads), net.constant(np.float32(2.5))], net.tensor([1, 7, 7, 8]), "PadV2Options"),
        net.op("MIRROR_PAD", [x, net.constant(pads)], net.tensor([1, 7, 7, 8]), "MirrorPadOptions", mode=0),
        net.op("MIRROR_PAD", [x, net.constant(ones)], net.tensor([1, 6, 7, 8]), "MirrorPadOptions", mode=1),
        net.op("SLICE", [x, net.constant([0, 1, 0, 2]), net.constant([1, 2, -1, 3])], net.tensor([1, 2, 6, 3]), "SliceOptions"),
        net.op("DEPTH_TO_SPACE", [x], net.tensor([1, 8, 12, 2]), "DepthToSpaceOptions", blockSize=2),
        net.op("SPACE_TO_DEPTH", [x], net.tensor([1, 2, 3, 32]), "SpaceToDepthOptions", blockSize=2),
    ]  # fmt: skip


@case
def strided_slice(net: Net) -> list[int]:
    x, k = net.input(3, 4, 6), net.constant
    kind = "StridedSliceOptions"
    return [
        net.op("STRIDED_SLICE", [x, k([0, 1, -1]), k([3, 4, -7]), k([1, 2, -2])], net.tensor([3, 2, 3]), kind),
        net.op("STRIDED_SLICE", [x, k([1, 0]), k([2, 2]), k([1, 1])], net.tensor([4, 6]), kind, shrinkAxisMask=1,
               beginMask=2, endMask=2),
        net.op("STRIDED_SLICE", [x, k([0, -1]), k([0, 0]), k([1, 1])], net.tensor([3, 6]), kind, endMask=1, shrinkAxisMask=2),
    ]  # fmt: skip


@case
def splits(net: Net) -> list[int]:
    x = net.input(2, 6, 3)
    halves, rows = [net.tensor([2, 3, 3]) for _ in range(2)], [net.tensor([6, 3]) for _ in range(2)]
    parts = [net.tensor([2, n, 3]) for n in (1, 3, 2)]
    net.op("SPLIT", [net.constant(1), x], halves, "SplitOptions", numSplits=2)
    net.op("SPLIT_V", [x, net.constant([1, -1, 2]), net.constant(1)], parts, "SplitVOptions", numSplits=3)
    net.op("UNPACK", [x], rows, "UnpackOptions", axis=0, num=2)
    packed = net.op("PACK", rows, net.tensor([6, 2, 3]), "PackOptions", axis=1, valuesCount=2)
    return [halves[1], *parts, *rows, packed]


@case
def conv_transpose(net: Net) -> list[int]:
    x, w, b = net.input(1, 4, 5, 3), net.constant(random(2, 3, 2, 3)), net.constant(random(2))
    return [
        net.op("TRANSPOSE_CONV", [net.constant([1, 12, 10, 2]), w, x, b], net.tensor([1, 12, 10, 2]), "TransposeConvOptions",
               padding=0, strideH=3, strideW=2, fusedActivationFunction=1),
    ]  # fmt: skip


@case
def mediapipe_conv_transpose(net: Net) -> list[int]:
    x, w, b = net.input(1, 4, 5, 3), net.constant(random(2, 2, 2, 3)), net.constant(random(2))
    options = struct.pack("<3i", 1, 2, 2)
    return [net.op("Convolution2DTransposeBias", [x, w, b], net.tensor([1, 8, 10, 2]), custom=options)]


@case
def resize(net: Net) -> list[int]:
    x, size, kind = net.input(2, 5, 4, 3), net.constant([9, 8]), "ResizeBilinearOptions"
    up, down, nearest = net.constant([10, 12]), net.constant([3, 1]), "ResizeNearestNeighborOptions"
    return [
        net.op("RESIZE_BILINEAR", [x, size], net.tensor([2, 9, 8, 3]), kind),
        net.op("RESIZE_BILINEAR", [x, size], net.tensor([2, 9, 8, 3]), kind, halfPixelCenters=True),
        net.op("RESIZE_BILINEAR", [x, size], net.tensor([2, 9, 8, 3]), kind, alignCorners=True),
        net.op("RESIZE_BILINEAR", [x, down], net.tensor([2, 3, 1, 3]), kind, alignCorners=True),
        net.op("RESIZE_NEAREST_NEIGHBOR", [x, up], net.tensor([2, 10, 12, 3]), nearest),
        net.op("RESIZE_NEAREST_NEIGHBOR", [x, up], net.tensor([2, 10, 12, 3]), nearest, halfPixelCenters=True),
    ]  # fmt: skip


@case
def float16_weights(net: Net) -> list[int]:
    x, w = net.input(1, 4), net.constant(random(5, 4).astype(np.float16))
    w = net.op("DEQUANTIZE", [w], net.tensor([5, 4]), "DequantizeOptions")
    return [net.op("FULLY_CONNECTED", [x, w, -1], net.tensor([1, 5]), "FullyConnectedOptions")]


@pytest.mark.parametrize("name", CASES)
def test_operator_as_in_litert(name: str, tmp_path: Path, library: Library) -> None:
    net = Net()
    outputs = CASES[name](net)
    model = net.bytes(*outputs)
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(model)
    feeds = {net.tensors[i].name: random(*net.tensors[i].shape) * 2 for i in net.inputs}
    # MediaPipe's operators are known only to the delegate.
    found, wanted = run(path, feeds, library), litert(model, feeds, delegates=name.startswith("mediapipe"))
    assert list(found) == [net.tensors[i].name for i in outputs]
    for output, array in wanted.items():
        np.testing.assert_allclose(found[output], array, rtol=2e-5, atol=2e-6, err_msg=output)


# --- quantisation ----------------------------------------------------------------------------------------------------------


def quantized_net() -> Net:
    net = Net()
    x = net.input(1, 6, 6, 3, dtype="int8", scale=0.02, zero_point=-3)
    weights = RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    scales = np.array([0.01, 0.02, 0.005, 0.015])
    w = net.constant(weights, scale=scales, zero_point=[0, 0, 0, 0])
    b = net.constant(RNG.integers(-500, 500, 4).astype(np.int32), scale=scales * 0.02, zero_point=[0, 0, 0, 0])
    y = net.tensor([1, 4, 4, 4], "int8", scale=0.03, zero_point=-20)
    net.op("CONV_2D", [x, w, b], y, "Conv2DOptions", padding=1, strideH=1, strideW=1)
    return net


def test_integers_become_floats_that_keep_within_their_range(tmp_path: Path, library: Library) -> None:
    net = quantized_net()
    model = net.bytes(3)
    path = tmp_path / "net.tflite"
    path.write_bytes(model)
    q = RNG.integers(-128, 128, (1, 6, 6, 3)).astype(np.int8)
    (wanted,) = litert(model, {"t0": q}).values()
    graph = importer.load(model)
    x = q if graph.inputs[0].dtype == "s8" else ((q + 3.0) * 0.02).astype(np.float32)
    (found,) = run(path, {"t0": x}, library).values()
    if found.dtype == np.float32:
        found = found / 0.03 - 20
    assert (wanted == 127).any() and (wanted == -128).any()  # saturation is part of the meaning
    assert np.abs(found - wanted).max() <= 1


def test_quantisation_data_are_kept() -> None:
    graph = importer.load(quantized_net().bytes(3))
    values = {v.name: v for v in graph.values()}
    w = values["t1"]
    assert w.data is not None and w.quantization is not None
    assert w.dtype == "f32" and w.quantization.dtype == "s8" and w.quantization.scale.shape == (4,)
    q = np.round(w.data / w.quantization.scale.reshape(4, 1, 1, 1))
    np.testing.assert_allclose(q * w.quantization.scale.reshape(4, 1, 1, 1), w.data, rtol=1e-6)
    y = values["t3"].quantization
    assert y is not None and y.scale[0] == np.float32(0.03) and y.zero_point[0] == -20


# --- state -----------------------------------------------------------------------------------------------------------------


def counter(net: Net) -> int:
    """The sum of all that came in so far."""
    x, handle = net.input(1, 3), net.tensor([], "resource")
    net.op("VAR_HANDLE", [], handle, "VarHandleOptions", sharedName="total")
    before = net.op("READ_VARIABLE", [handle], net.tensor([1, 3]), "ReadVariableOptions")
    y = net.op("ADD", [x, before], net.tensor([1, 3]), "AddOptions")
    net.op("ASSIGN_VARIABLE", [handle, y], [], "AssignVariableOptions")
    return y


def test_a_variable_is_an_input_and_an_output(tmp_path: Path, library: Library) -> None:
    net = Net()
    y = net.tensors[counter(net)].name
    path = tmp_path / "net.tflite"
    path.write_bytes(net.bytes(3))
    data, _ = compile_model(path, library=library)
    session, state, total = Model(data, library).session(threads=1), np.zeros((1, 3), np.float32), np.zeros((1, 3))
    for _ in range(3):
        x = random(1, 3)
        found = session.run({"t0": x, "total": state})
        state, total = found["total/next"], total + x
        np.testing.assert_allclose(found[y], total, atol=1e-6)
        np.testing.assert_array_equal(state, found[y])


# --- shapes ----------------------------------------------------------------------------------------------------------------


def test_an_open_batch(library: Library, tmp_path: Path) -> None:
    net = Net()
    x = net.input(1, 4, signature=[-1, 4])
    w, y = net.constant(random(3, 4)), net.tensor([1, 3], signature=[-1, 3])
    net.op("FULLY_CONNECTED", [x, w, -1], y, "FullyConnectedOptions")
    path = tmp_path / "net.tflite"
    path.write_bytes(net.bytes(y))
    assert importer.load(path).inputs[0].shape == ("t0_0", 4)
    assert importer.load(path, {"t0_0": 1}).outputs[0].shape == (1, 3)
    data, _ = compile_model(path, library=library)
    session = Model(data, library).session(threads=1)
    for batch in (1, 3):
        assert session.run(random(batch, 4))["t2"].shape == (batch, 3)
    with pytest.raises(ModelError, match=r"'t0' is \(t0_0, 4\) and cannot be fixed to \(1, 5\)"):
        importer.load(path, {"t0": (1, 5)})
    with pytest.raises(ModelError, match=r"neither an input \(t0\) nor an open dimension"):
        importer.load(path, {"x": (1, 5)})


# --- what is wrong ---------------------------------------------------------------------------------------------------------


def test_everything_unsupported_is_told_at_once() -> None:
    net = Net()
    x = net.input(1, 4)
    y = net.op("COS", [x], net.tensor([1, 4]))
    z = net.op("MagicOp", [y], net.tensor([1, 4]), custom=b"")
    other = net.op("SIGN", [net.op("SIN", [x], net.tensor([1, 4]))], net.tensor([1, 4]))
    with pytest.raises(UnsupportedOperator) as raised:
        importer.load(net.bytes(z, other))
    told = "\n".join(raised.value.problems)
    assert "node 't1': COS (operator 0)" in told and "node 't2': MagicOp (operator 1)" in told
    assert "node 't3': SIN (operator 2)" in told and "SIGN" not in told


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        importer.load(tmp_path / "absent.tflite")
    for data in (b"", b"TFL3", b"\0\0\0\0TFL3", b"\x08\0\0\0ONNX", b"\xff\xff\xff\xffTFL3" * 9):
        with pytest.raises(FormatError, match=r"model: is (no|a damaged) TensorFlow Lite model"):
            importer.load(data)


def test_hostile_bytes_are_refused_in_one_line(request: pytest.FixtureRequest) -> None:
    """Truncated and changed files either load or raise one exception of the family, soon."""
    net = Net()
    outputs = [y for name in ("conv", "conv_transpose", "movement", "resize", "splits") for y in CASES[name](net)]
    outputs.append(counter(net))
    model = net.bytes(*outputs)
    rng = np.random.default_rng(3)
    rounds = 20000 if request.config.getoption("--long") else 600
    for length in range(0, len(model), max(1, len(model) // (rounds // 4))):
        with pytest.raises(ModelError):
            importer.load(model[:length])
    refused = 0
    for _ in range(rounds):
        data = bytearray(model)
        for at in rng.integers(0, len(data), rng.integers(1, 6)):
            data[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
        try:
            importer.load(bytes(data))
        except ModelError as error:
            assert str(error)
            refused += 1
    assert refused > rounds // 10
