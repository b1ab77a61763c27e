"""ONNX models: each operator's meaning in each opset against onnxruntime, shape arithmetic that must vanish, open dimensions,
and what is said about models that cannot be imported."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Build
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx_net import Net, check, ops, random_feeds, reference, run, tools
from ops_nn import ir, passes
from ops_nn.errors import FileError, FormatError, ModelError, UnsupportedOperator
from ops_nn.importers import onnx as importer


@pytest.fixture(scope="session")
def library(host_build: Build) -> Path:
    return host_build.lib


# --- operators across opsets -----------------------------------------------------------------------------------------------

Build_ = Callable[[Net], str]


def one(op: str, shape: tuple[int, ...], *constants: Any, **attrs: Any) -> Build_:
    """A net of one operator with constant further operands."""

    def build(net: Net) -> str:
        x = net.input(shape)
        return str(net.op(op, x, *("" if c is None else net.const(c, dtype=np.asarray(c).dtype) for c in constants), **attrs))

    return build


f32, i64 = np.float32, np.int64
P4 = (1, 3, 9, 10)
K3S2PADS = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 2, 2)}
K3S2P1 = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}


def conv_1d(**attrs: Any) -> Build_:
    return lambda n: str(n.op("Conv", n.input((2, 3, 9)), n.weights(4, 3, 3), n.weights(4), **attrs))


def gemm(a: Any, b: Any, c: Any = None, **attrs: Any) -> Build_:
    """Operands are shapes of inputs, or constants as one-element lists of shapes."""

    def build(net: Net) -> str:
        given = zip("abc", (x for x in (a, b, c) if x is not None))
        names = [net.weights(*x[0]) if isinstance(x, list) else net.input(x, name) for name, x in given]
        return str(net.op("Gemm", *names, **attrs))

    return build

CASES: list[tuple[str, tuple[int, ...], Build_]] = [
    # name, opsets, net
    ("softmax old default", (7, 11), one("Softmax", (2, 3, 4))),
    ("softmax old axis 2", (11,), one("Softmax", (2, 3, 4), axis=2)),
    ("softmax old axis 0", (11,), one("Softmax", (2, 3, 4), axis=0)),
    ("softmax old negative axis", (11,), one("Softmax", (2, 3, 4), axis=-2)),
    ("softmax", (13, 17), one("Softmax", (2, 3, 4))),
    ("softmax axis 1", (13, 17), one("Softmax", (2, 3, 4), axis=1)),
    ("log softmax", (11, 13), one("LogSoftmax", (2, 3, 4), axis=1)),
    ("clip attributes", (7, 10), one("Clip", P4, min=-0.5, max=0.25)),
    ("clip attribute min only", (7, 10), one("Clip", P4, min=-0.5)),
    ("clip inputs", (11, 13), one("Clip", P4, f32(-0.5), f32(0.25))),
    ("clip no min", (11, 13), one("Clip", P4, None, f32(0.25))),
    ("clip no max", (13,), one("Clip", P4, f32(0.25))),
    ("clip nothing", (13,), one("Clip", P4)),
    ("clip min above max", (13,), one("Clip", P4, f32(1), f32(-1))),
    ("dropout", (7, 12, 13), one("Dropout", P4)),
    ("pad attributes", (7, 10), one("Pad", P4, pads=(0, 0, 1, 2, 0, 0, 3, 4), value=1.5)),
    ("pad inputs", (11, 13), one("Pad", P4, np.array((0, 1, 1, 2, 0, 0, 3, 4)), f32(1.5))),
    ("pad reflect", (11,), one("Pad", P4, np.array((0, 0, 1, 2, 0, 0, 3, 4)), mode="reflect")),
    ("pad edge", (11,), one("Pad", P4, np.array((0, 1, 1, 2, 0, 0, 3, 4)), mode="edge")),
    ("pad negative", (13,), one("Pad", P4, np.array((0, 0, -1, 2, 0, 0, -3, -4)))),
    ("pad axes", (18, 21), one("Pad", P4, np.array((1, 2, 3, 4)), f32(0), np.array((-1, 2)))),
    ("pad wrap", (19,), one("Pad", P4, np.array((0, 0, 1, 2, 0, 0, 3, 4)), mode="wrap")),
    ("slice attributes", (7, 9), one("Slice", P4, starts=(1, -4), ends=(9223372036854775807, -1), axes=(1, 3))),
    ("slice attributes no axes", (9,), one("Slice", P4, starts=(0, 1), ends=(1, 3))),
    ("slice inputs", (10, 13), one("Slice", P4, np.array((1, -4)), np.array((2**62, -1)), np.array((1, -1)))),
    ("slice steps", (13,), one("Slice", P4, np.array((-1, 0)), np.array((-(2**62), 9)), np.array((3, 2)), np.array((-2, 3)))),
    ("squeeze attributes", (7, 11), one("Squeeze", (1, 3, 1, 4), axes=(2,))),
    ("squeeze input", (13,), one("Squeeze", (1, 3, 1, 4), np.array((0, -2)))),
    ("squeeze all", (11, 13), one("Squeeze", (1, 3, 1, 4))),
    ("unsqueeze attributes", (7, 11), one("Unsqueeze", (3, 4), axes=(0, 3))),
    ("unsqueeze input", (13,), one("Unsqueeze", (3, 4), np.array((-1, 0)))),
    ("flatten", (7, 13), one("Flatten", P4)),
    ("flatten 0", (9,), one("Flatten", P4, axis=0)),
    ("flatten negative", (11, 13), one("Flatten", P4, axis=-1)),
    ("flatten end", (9,), one("Flatten", P4, axis=4)),
    ("reshape", (7, 14), one("Reshape", P4, np.array((0, -1, 10)))),
    ("transpose", (7, 13), one("Transpose", P4, perm=(0, 3, 1, 2))),
    ("transpose reversed", (7,), one("Transpose", (2, 3, 4))),
    ("expand to the same", (8, 13), one("Expand", (3, 4), np.array((1, 4)))),
    ("tile once", (7, 13), one("Tile", (3, 4), np.array((1, 1)))),
    ("cast to the same", (9, 13), one("Cast", (3, 4), to=TensorProto.FLOAT)),
    ("split equal", (7, 11), lambda n: n.op("Concat", *n.op("Split", n.input((6, 4)), n_outputs=3)[::-1], axis=1)),
    ("split sizes", (11,), lambda n: n.op("Concat", *n.op("Split", n.input((6, 4)), n_outputs=2, split=(1, 5))[::-1], axis=0)),
    ("split input", (13,), lambda n: n.op("Concat", *n.op("Split", n.input((6, 4)), n.ints(2, 4), n_outputs=2)[::-1], axis=0)),
    ("split num_outputs", (18,), lambda n: n.op("Split", n.input((7, 4)), n_outputs=3, num_outputs=3)[2]),
    ("concat many", (11,), lambda n: n.op("Concat", *[n.input((1, 2))] * 40, axis=-1)),
    ("concat empty", (13,), lambda n: n.op("Concat", n.input((1, 2)), n.const(np.zeros((1, 0))), axis=1)),
    ("max pool", (7, 8, 10, 12), one("MaxPool", P4, kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1))),
    ("max pool ceil", (10, 12), one("MaxPool", P4, kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1)),
    ("max pool dilated", (10,), one("MaxPool", P4, kernel_shape=(2, 2), dilations=(2, 3), storage_order=1)),
    ("max pool same", (7, 12), one("MaxPool", P4, kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER")),
    ("max pool 1-d", (8,), one("MaxPool", (1, 3, 9), kernel_shape=(3,), strides=(2,), pads=(1, 0))),
    ("average pool", (7, 10, 11), one("AveragePool", P4, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    ("average pool with windows in its padding", (19,), one("AveragePool", (1, 2, 4, 4), **K3S2PADS, ceil_mode=1)),
    ("average pool counts", (7, 11), one("AveragePool", P4, kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1)),
    ("average pool ceil", (10, 19), one("AveragePool", (1, 2, 4, 4), **K3S2P1, ceil_mode=1)),
    ("average pool ceil counts", (19,), one("AveragePool", (1, 2, 4, 4), **K3S2P1, ceil_mode=1, count_include_pad=1)),
    ("average pool dilated", (19,), one("AveragePool", P4, kernel_shape=(2, 2), dilations=(2, 2))),
    ("global average pool", (7,), one("GlobalAveragePool", P4)),
    ("global max pool 1-d", (7,), one("GlobalMaxPool", (2, 3, 9))),
    ("global average pool 3-d", (7,), one("GlobalAveragePool", (2, 3, 4, 5, 6))),
    ("reduce mean attributes", (7, 13), one("ReduceMean", P4, axes=(2, 3), keepdims=1)),
    ("reduce mean drops", (13,), one("ReduceMean", P4, axes=(-1, -2), keepdims=0)),
    ("reduce mean input", (18,), one("ReduceMean", P4, np.array((2, 3)), keepdims=0)),
    ("reduce mean nhwc", (13,), one("ReduceMean", P4, axes=(1, 2), keepdims=1)),
    ("reduce mean last", (13,), one("ReduceMean", (2, 5, 6), axes=(-1,), keepdims=1)),
    ("reduce mean middle", (13,), one("ReduceMean", (2, 5, 6), axes=(1,), keepdims=0)),
    ("reduce mean all", (13,), one("ReduceMean", (2, 5, 6))),
    ("reduce mean nothing", (18,), one("ReduceMean", (2, 5, 6), noop_with_empty_axes=1)),
    ("reduce max", (13,), one("ReduceMax", P4, axes=(2, 3), keepdims=1)),
    ("conv", (7, 11), lambda n: n.conv(n.input(P4), 3, 4, 3, strides=(2, 1), pads=(0, 1, 1, 2))),
    ("conv dilated", (11,), lambda n: n.conv(n.input(P4), 3, 4, 3, dilations=(2, 2))),
    ("conv stride 2 same", (11,), lambda n: n.conv(n.input((1, 2, 14, 14)), 2, 4, 3, auto_pad="SAME_UPPER", strides=(2, 2))),
    ("conv groups", (11,), lambda n: n.conv(n.input((1, 6, 5, 5)), 6, 4, 3, group=2, bias=False)),
    ("conv depthwise", (11,), lambda n: n.conv(n.input((1, 6, 5, 5)), 6, 12, 3, group=6)),
    ("conv same upper even", (11,), lambda n: n.conv(n.input(P4), 3, 4, 4, auto_pad="SAME_UPPER")),
    ("conv same lower", (11,), lambda n: n.conv(n.input(P4), 3, 4, 4, auto_pad="SAME_LOWER", strides=(2, 2))),
    ("conv valid", (11,), lambda n: n.conv(n.input(P4), 3, 4, 3, auto_pad="VALID")),
    ("conv 1-d", (11,), conv_1d(pads=(2, 0), strides=(2,), dilations=(2,))),
    ("conv 1-d same", (11,), conv_1d(auto_pad="SAME_UPPER", strides=(2,))),
    ("conv of computed weights", (11,), lambda n: n.op("Conv", n.input(P4), n.input((4, 3, 3, 3), "w"))),
    ("batch norm", (7, 9, 14, 15), lambda n: n.batch_norm(n.input(P4), 3)),
    ("batch norm 2-d", (9,), lambda n: n.batch_norm(n.input((5, 3)), 3)),
    ("batch norm 3-d", (9,), lambda n: n.batch_norm(n.input((5, 3, 7)), 3)),
    ("gemm", (7, 11, 13), gemm((2, 5), [(5, 4)], [(4,)], alpha=0.5, beta=2.0)),
    ("gemm transposed", (9,), gemm((5, 2), [(4, 5)], [(1, 4)], transA=1, transB=1)),
    ("gemm no c", (11,), gemm((2, 5), [(5, 4)], alpha=2.0)),
    ("gemm scalar c", (11,), gemm((2, 5), [(5, 4)], [()])),
    ("gemm column c", (11,), gemm((2, 5), [(5, 4)], [(2, 1)], beta=0.5)),
    ("gemm computed", (11,), gemm((2, 5), (5, 4), (2, 4), alpha=0.5, beta=2.0)),
    ("gemm computed transposed", (11,), gemm((2, 5), (4, 5), transB=1, alpha=0.5)),
    ("matmul", (7, 13), lambda n: n.op("MatMul", n.input((2, 3, 5)), n.weights(5, 4))),
    ("matmul batches", (9,), lambda n: n.op("MatMul", n.input((2, 1, 3, 5)), n.input((4, 5, 6), "b"))),
    ("matmul vectors", (9,), lambda n: n.op("MatMul", n.input((5,)), n.input((5,), "b"))),
    ("matmul row", (9,), lambda n: n.op("MatMul", n.input((5,)), n.weights(2, 5, 4))),
    ("matmul column", (9,), lambda n: n.op("MatMul", n.input((2, 3, 5)), n.weights(5))),
    ("sum of three", (8, 13), lambda n: n.op("Sum", n.input((2, 3)), n.input((3,), "b"), n.const(1.5))),
    ("mean", (8,), lambda n: n.op("Mean", n.input((2, 3)), n.input((3,), "b"), n.input((2, 1), "c"))),
    ("max of one", (8,), one("Max", (2, 3))),
    ("min of three", (8, 13), lambda n: n.op("Min", n.input((2, 3)), n.input((3,), "b"), n.const(0.1))),
    ("pow by integer", (12, 15), one("Pow", (2, 3), i64(2))),
    ("prelu", (7, 9, 16), lambda n: n.op("PRelu", n.input(P4), n.weights(3, 1, 1))),
    ("hard sigmoid", (7,), one("HardSigmoid", P4, alpha=0.3)),
    ("hard swish", (14,), one("HardSwish", P4)),
    ("leaky relu", (7, 16), one("LeakyRelu", P4, alpha=0.2)),
    ("selu", (7,), one("Selu", P4)),
    ("celu", (12,), one("Celu", P4, alpha=2.0)),
    ("elu", (7,), one("Elu", P4, alpha=2.0)),
    ("gelu", (20,), one("Gelu", P4)),
    ("gelu tanh", (20,), one("Gelu", P4, approximate="tanh")),
    ("mish", (18,), one("Mish", P4)),
    ("depth to space", (7, 11), one("DepthToSpace", (1, 8, 2, 3), blocksize=2)),
    ("depth to space crd", (11,), one("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD")),
    ("space to depth", (7,), one("SpaceToDepth", (1, 2, 4, 6), blocksize=2)),
]
UNARY = """Relu Sigmoid Tanh Softplus Softsign Exp Abs Neg Sign Erf Floor Ceil Round Reciprocal Identity"""
CASES += [(name, (11, 13), one(name, P4)) for name in UNARY.split()]


@pytest.mark.parametrize(("build", "opset"), [pytest.param(b, o, id=f"{n} {o}") for n, opsets, b in CASES for o in opsets])
def test_operator(library: Path, build: Build_, opset: int) -> None:
    net = Net(opset)
    check(net.output(build(net)), library)


def test_a_symbolic_softmax_of_the_old_kind(library: Path) -> None:
    net = Net(11)
    check(net.output(net.op("Softmax", net.input(("N", 3, 4)))), library, {"N": 5})


# --- shape arithmetic --------------------------------------------------------------------------------------------------------


def pytorch_flatten(net: Net, x: str) -> str:
    """x.view(x.size(0), -1), as PyTorch exports it."""
    size = net.op("Gather", net.op("Shape", x), net.const(0, dtype=np.int64), axis=0)
    shape = net.op("Concat", net.op("Unsqueeze", size, net.ints(0)), net.ints(-1), axis=0)
    return str(net.op("Reshape", x, shape))


def pytorch_pad(net: Net, x: str) -> str:
    """F.pad(x, (1, 2, 3, 4)), as PyTorch exports it."""
    given = net.op("Constant", value=numpy_helper.from_array(np.array([1, 2, 3, 4], np.int64)))
    rest = net.op("ConstantOfShape", net.ints(4), value=numpy_helper.from_array(np.array([0], np.int64)))
    pairs = net.op("Reshape", net.op("Concat", given, rest, axis=0), net.ints(-1, 2))
    flipped = net.op("Slice", pairs, net.ints(-1), net.ints(-(2**63) + 1), net.ints(0), net.ints(-1))
    pads = net.op("Cast", net.op("Reshape", net.op("Transpose", flipped, perm=(1, 0)), net.ints(-1)), to=TensorProto.INT64)
    return str(net.op("Pad", x, pads, net.const(0.0), mode="constant"))


@pytest.mark.parametrize("batch", [2, "N"])
def test_exported_shape_arithmetic_vanishes(library: Path, batch: Any) -> None:
    net = Net(13)
    y = net.conv(pytorch_pad(net, net.input((batch, 3, 8, 8))), 3, 4, pads=(0, 0, 0, 0))
    y = net.op("GlobalAveragePool", y)
    y = net.op("Gemm", pytorch_flatten(net, y), net.weights(4, 5), net.weights(5))
    graph = check(net.output(y), library, {"N": 3})
    assert ops(graph) == {"transpose": 1, "conv2d": 1, "global_average_pool": 1, "reshape": 1, "matmul": 1}
    assert graph.nodes[1].attrs["pads"] == (3, 1, 4, 2)
    assert graph.outputs[0].shape == (batch, 5)


def test_a_channel_shuffle_with_an_open_batch(library: Path) -> None:
    """Chunks, concatenation, view and transposition of ShuffleNet, whose view is computed from the shape."""
    net = Net(13)
    x = net.input(("N", 4, 6, 6))
    half = net.op("Slice", x, net.ints(0), net.ints(2), net.ints(1))
    other = net.op("Slice", x, net.ints(2), net.ints(2**62), net.ints(1))
    y = net.op("Concat", half, net.conv(other, 2, 2), axis=1)
    shape = net.op("Shape", y)
    dims = [net.op("Unsqueeze", net.op("Gather", shape, net.const(i, dtype=np.int64)), net.ints(0)) for i in range(4)]
    half_c = net.op("Div", dims[1], net.ints(2))
    y = net.op("Reshape", y, net.op("Concat", dims[0], net.ints(2), half_c, dims[2], dims[3], axis=0))
    y = net.op("Transpose", y, perm=(0, 2, 1, 3, 4))
    y = net.op("Reshape", y, net.op("Concat", dims[0], net.ints(-1), dims[2], dims[3], axis=0))
    graph = check(net.output(net.conv(y, 4, 3)), library, {"N": 2})
    assert graph.outputs[0].shape == ("N", 3, 6, 6)


def test_open_height_and_width(library: Path) -> None:
    """Run at several sizes: nothing of a size may be baked in."""
    net = Net(17)
    y = net.op("Relu", net.conv(net.input((1, 3, "H", "W")), 3, 4, strides=(2, 2)))
    y = net.op("Add", y, net.conv(y, 4, 4))
    size = net.op("Slice", net.op("Shape", y), net.ints(0), net.ints(2))
    y = net.op("Reshape", y, net.op("Concat", size, net.ints(-1), axis=0))
    model = net.output(y).model()
    graph = importer.load(model)
    passes.optimize(graph, tools(library))
    for h, w in ((24, 24), (32, 24), (16, 40)):
        feeds = random_feeds(model, {"H": h, "W": w})
        np.testing.assert_allclose(run(graph, library, feeds)[y], reference(model, feeds)[y], rtol=1e-4, atol=1e-4)


def test_an_end_that_follows_an_open_dimension(library: Path) -> None:
    net = Net(13)
    x = net.input((1, 2, "W", 4))
    end = net.op("Gather", net.op("Shape", x), net.ints(2))
    net.output(net.op("Slice", x, net.ints(1), end, net.ints(2)))
    check(net, library, {"W": 7})


def test_shapes_fix_dimensions(library: Path) -> None:
    net = Net(13)
    x = net.input(("N", 3, "H", "W"))
    net.output(pytorch_flatten(net, net.op("Relu", x)))
    assert importer.load(net.model()).inputs[0].shape == ("N", 3, "H", "W")
    assert importer.load(net.model(), {"x": (1, 3, 4, 5)}).inputs[0].shape == (1, 3, 4, 5)
    assert importer.load(net.model(), {"H": 6, "N": 2}).inputs[0].shape == (2, 3, 6, "W")
    check(net, library, {"N": 1, "H": 4, "W": 5}, {"x": (1, 3, 4, 5)})


def test_a_shape_given_for_one_input_holds_for_others() -> None:
    net = Net(13)
    first, second = net.input(("N", 3), "a"), net.input(("N", 3), "b")
    graph = importer.load(net.output(net.op("Add", first, second)).model(), {"b": (4, 3)})
    assert [v.shape for v in graph.inputs] == [(4, 3), (4, 3)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (1, 4)}, "input 'x' is (N, 3) and cannot be fixed to (1, 4)"),
        ({"x": (1, 3, 3)}, "input 'x' is (N, 3) and cannot be fixed to (1, 3, 3)"),
        ({"y": (1, 3)}, "a shape is given for 'y', which is neither an input (x) nor an open dimension"),
        ({"M": 3}, "a shape is given for 'M'"),
    ],
)
def test_shapes_that_do_not_fit(shapes: Any, message: str) -> None:
    net = Net(13)
    with pytest.raises(ModelError) as caught:
        importer.load(net.output(net.op("Relu", net.input(("N", 3)))).model(), shapes)
    assert message in str(caught.value)


def test_unnamed_open_dimensions_get_names() -> None:
    net = Net(13)
    model = net.output(net.op("Relu", net.input((0, 3, 0)))).model()
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    assert importer.load(model).inputs[0].shape == ("x_0", 3, "x_2")


def test_a_function_is_inlined(library: Path) -> None:
    net = Net(17)
    body = [helper.make_node("Sigmoid", ["a"], ["b"]), helper.make_node("Mul", ["a", "b"], ["c"])]
    net.functions = [helper.make_function("own", "Swish", ["a"], ["c"], body, [helper.make_opsetid("", 17)])]
    graph = check(net.output(net.op("Swish", net.input((2, 3)), domain="own")), library)
    assert ops(graph) == {"silu": 1}


def test_outputs_that_no_node_makes(library: Path) -> None:
    net = Net(13)
    x = net.input((2, 3))
    y = net.op("Relu", x, output="y")
    same = net.op("Identity", x, output="same")
    constant = net.op("Identity", net.const([1.0, 2.0]), output="constant")
    check(net.output(y, same, constant), library)


def test_names_are_kept_and_made() -> None:
    net = Net(13)
    y = net.op("Relu", net.input((2, 3), "the input"), name="first")
    graph = importer.load(net.output(net.op("Exp", y, output="the output")).model())
    assert [n.name for n in graph.nodes] == ["first", "Exp_the output"]
    assert (graph.inputs[0].name, graph.outputs[0].name) == ("the input", "the output")


def test_metadata_is_carried() -> None:
    net = Net(13)
    model = net.output(net.op("Relu", net.input((2, 3)))).model()
    helper.set_model_props(model, {"labels": "cat\ndog"})
    assert importer.load(model).meta == {"labels": "cat\ndog", "opset": "13"}


# --- what is refused -------------------------------------------------------------------------------------------------------


def refused(model: Any, kind: type[Exception] = UnsupportedOperator) -> str:
    with pytest.raises(kind) as caught:
        importer.load(model)
    return str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    net = Net(13)
    x = net.input((1, 4, 8, 8))
    first = net.op("LSTM", x, x, x, name="memory")
    second = net.op("TopK", net.op("Relu", first), net.ints(1), n_outputs=2, name="best")[0]
    third = net.op("TopK", x, net.ints(1), n_outputs=2, name="best2")[0]
    fourth = net.op("MaxPool", x, kernel_shape=(2, 2), n_outputs=2, name="pool")
    fifth = net.op("Frob", x, domain="com.example", name="own")
    text = refused(net.output(second, third, *fourth, fifth).model())
    assert text.splitlines()[0] == "model: 4 problems", text
    assert "node 'memory': LSTM (opset 13): this operator is not supported; " in text
    assert "nodes 'best', 'best2': TopK (opset 13): " in text and "do this step in the program" in text
    assert f"node 'pool': MaxPool (opset 13): its output '{fourth[1]}' (the indices) is used" in text
    assert "node 'own': com.example.Frob (opset 13): this operator is not supported" in text
    assert "Relu" not in text, "it fails only because of what it reads"


def test_problems_are_a_list_too() -> None:
    net = Net(13)
    with pytest.raises(UnsupportedOperator) as caught:
        importer.load(net.output(net.op("Hardmax", net.input((2, 3)), name="h")).model())
    assert len(caught.value.problems) == 1 and str(caught.value).startswith("model: node 'h': Hardmax")


def test_types_other_than_float32() -> None:
    net = Net(13)
    x = net.input((2, 3), elem_type=TensorProto.FLOAT16)
    half = net.op("Add", x, net.const([1, 2, 3], dtype=np.float16), name="half")
    text = refused(net.output(half).model())
    assert "node 'half': Add (opset 13): 'x' is of type f16" in text and "convert the model to float32" in text


def test_training_is_refused() -> None:
    net = Net(15)
    stats = [net.const(np.ones(3)) for _ in range(4)]
    outputs = net.op("BatchNormalization", net.input((1, 3, 4, 4)), *stats, n_outputs=3, training_mode=1)
    assert "export the model for inference" in refused(net.output(outputs[0]).model())
    net = Net(13)
    dropped = net.op("Dropout", net.input((2, 3)), net.const(0.5), net.const(True, dtype=bool))
    assert "training_mode is true" in refused(net.output(dropped).model())
    net = Net(7)
    stats = [net.const(np.ones(3)) for _ in range(4)]
    assert "spatial=0" in refused(net.output(net.op("BatchNormalization", net.input((1, 3, 4, 4)), *stats, spatial=0)).model())


def test_what_depends_on_an_open_dimension_names_it() -> None:
    net = Net(13)
    x = net.input((1, "L"))
    length = net.op("Shape", x)
    text = refused(net.output(net.op("Expand", net.const([[1.0]]), length, output="y"), net.op("Relu", x)).model())
    assert "'y' depends on the open dimension L; fix it with --shape" in text
    net = Net(13)
    half = net.op("Div", net.op("Gather", net.op("Shape", net.input((1, "L"))), net.ints(1)), net.ints(2))
    text = refused(net.output(net.op("Slice", "x", net.ints(0), half, net.ints(1), name="cut")).model())
    assert "node 'cut': Slice (opset 13): ends ('v2_0') depends on the open dimension L; fix it with --shape" in text


def test_opsets_out_of_range() -> None:
    net = Net(6)
    assert "opset 6 is outside 7 to" in refused(net.output(net.op("Relu", net.input((2, 3)))).model())
    model = Net(13).output().model()
    model.opset_import[0].version = 1000
    assert "pip install -U onnx" in refused(model)


def test_malformed_models_are_problems_not_crashes() -> None:
    cases: list[tuple[Callable[[Net], str], str]] = [
        (lambda n: n.op("Conv", n.input(P4), n.weights(4, 3, 3, 3), strides=(2,)), "do not fit a window of 2 axes"),
        (lambda n: n.op("Conv", n.input(P4), n.weights(4, 3, 3, 3), kernel_shape=(5, 5)), "differs from the weights'"),
        (lambda n: n.op("Conv", n.input(P4), n.weights(4, 3, 3, 3), strides=2), "attribute 'strides' is no list of integers"),
        (lambda n: n.op("Conv", n.input(P4), n.weights(4, 3, 3)), "do not fit an input of 4"),
        (lambda n: n.op("Conv", n.input(P4)), "a required input is missing"),
        (lambda n: n.op("Relu", "nothing"), "input 'nothing' is made by nothing before this node"),
        (lambda n: n.op("Transpose", n.input((2, 3)), perm=(0, 0)), "perm (0, 0) does not order 2 dimensions"),
        (lambda n: n.op("Concat", n.input((2, 3)), "x"), "attribute 'axis' is missing"),
        (lambda n: n.op("Concat", n.input((2, 3)), "x", axis=5), "axis 5 is outside the 2 dimensions"),
        (lambda n: n.op("MaxPool", n.input(P4), kernel_shape=(0, 2)), "the window (0, 2) is empty"),
        (lambda n: n.op("Slice", n.input(P4), n.ints(0), n.ints(1, 2)), "do not fit each other"),
        (lambda n: n.op("Pad", n.input(P4), n.ints(0, 1)), "2 pads do not fit 4 dimensions"),
        (lambda n: n.op("Reshape", n.input(P4), n.const([1.5])), "is no list of integers"),
    ]
    for build, message in cases:
        net = Net(13)
        text = refused(net.output(build(net)).model(), ModelError)
        assert message in text, text


@pytest.mark.parametrize("data", [b"", b"\x00", b"no protobuf at all", b"\x08\x08"], ids=["empty", "zero", "text", "no graph"])
def test_other_files(data: bytes) -> None:
    assert "is no ONNX model" in refused(data, FormatError)


def test_truncated_models_are_refused() -> None:
    net = Net(13)
    data = net.output(net.conv(net.input(P4), 3, 4)).model().SerializeToString()
    for n in range(0, len(data), 7):
        with pytest.raises((FormatError, ModelError)):
            importer.load(data[:n])


def test_a_missing_file(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "none.onnx", FileError)


def test_external_data(library: Path, tmp_path: Path) -> None:
    net = Net(13)
    model = net.output(net.op("MatMul", net.input((2, 64)), net.weights(64, 32, name="w"))).model()
    wanted = importer.load(model)
    external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, str(tmp_path / "net.onnx"))
    graph = importer.load(tmp_path / "net.onnx")
    loaded, original = graph.nodes[0].inputs[1], wanted.nodes[0].inputs[1]
    assert loaded is not None and original is not None and loaded.data is not None and original.data is not None
    assert np.array_equal(loaded.data, original.data)
    assert "load the model by its path" in refused((tmp_path / "net.onnx").read_bytes(), ModelError)
    (tmp_path / "weights.bin").unlink()
    text = refused(tmp_path / "net.onnx", FileError)
    assert "'w' is kept in 'weights.bin', which does not exist: keep it beside the model" in text
    moved = onnx.load(str(tmp_path / "net.onnx"), load_external_data=False)
    for entry in moved.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../../../etc/passwd"
    (tmp_path / "net.onnx").write_bytes(moved.SerializeToString())
    assert "'../../../etc/passwd', which" in refused(tmp_path / "net.onnx", FileError)


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile", "Range", "Add", "Pad"])
def test_no_model_makes_us_allocate_much(op: str) -> None:
    net = Net(13)
    huge = 1 << 20
    if op == "ConstantOfShape":
        big = net.op(op, net.ints(huge, huge))
    elif op == "Expand":
        big = net.op(op, net.const([1.0]), net.ints(huge, huge))
    elif op == "Tile":
        big = net.op(op, net.const([[1.0]]), net.ints(huge, huge))
    elif op == "Range":
        big = net.op(op, net.const(0.0), net.const(1e9), net.const(1e-3))
    elif op == "Add":
        big = net.op(op, net.const(np.zeros((40000, 1))), net.const(np.zeros((1, 40000))))
    else:
        big = net.op(op, net.const([[1.0]]), net.ints(0, 0, huge, huge))
    text = refused(net.output(net.op("Add", net.input((1,)), big)).model(), ModelError)
    assert "elements is too large to be computed in advance" in text


def test_the_graph_of_a_failed_import_is_not_half_made() -> None:
    net = Net(13)
    net.output(net.op("Relu", net.op("Hardmax", net.input((2, 3)))))
    assert "Hardmax" in refused(net.model())


def test_a_view_of_all_that_is_imported_is_sound(library: Path) -> None:
    net = Net(13)
    graph = importer.load(net.output(net.batch_norm(net.conv(net.input(P4), 3, 4), 4)).model())
    ir.verify(graph)
