"""Passes: what each must do and must not do, and that results stay the same (against onnxruntime)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Build
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx_net import Net, check, ops, random_feeds, reference, run, steps, tools
from ops_nn import ir, passes, shapes
from ops_nn.errors import ArgumentError, ShapeError, UnsupportedOperator
from ops_nn.importers import onnx as importer
from ops_nn.ir import Graph, GraphError, Node
from ops_nn.passes.dead_code import dead_code


@pytest.fixture(scope="session")
def library(host_build: Build) -> Path:
    return host_build.lib


def node_of(graph: Graph, op: str) -> Node:
    (found,) = [n for n in graph.nodes if n.op == op]
    return found


def clamp(node: Node) -> tuple[float, float]:
    return node.attrs["lo"], node.attrs["hi"]


RELU = (0.0, float("inf"))
NONE = (-float("inf"), float("inf"))

# --- fusion, and the single-consumer rule ------------------------------------------------------------------------------------


def test_convolution_normalisation_activation_become_one_node(library: Path) -> None:
    net = Net()
    y = net.batch_norm(net.conv(net.input((1, 3, 8, 8)), 3, 5, bias=False), 5)
    graph = check(net.output(net.op("Clip", y, net.const(0), net.const(6))), library)
    assert ops(graph) == {"transpose": 2, "conv2d": 1}
    assert clamp(node_of(graph, "conv2d")) == (0.0, 6.0)


def test_a_convolution_read_by_relu_and_add_keeps_its_own_value(library: Path) -> None:
    net = Net()
    y = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    graph = check(net.output(net.op("Add", net.op("Relu", y), y)), library)
    conv = node_of(graph, "conv2d")
    assert clamp(conv) == NONE and not conv.tail
    assert ops(graph)["clip"] == 1 and steps(graph) == ["add"], "the sum is a step of the relu"


def test_a_convolution_that_is_an_output_keeps_its_own_value(library: Path) -> None:
    net = Net()
    y = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    graph = check(net.output(net.op("Relu", y), y), library)
    assert clamp(node_of(graph, "conv2d")) == NONE and ops(graph)["clip"] == 1
    net = Net()
    y = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    graph = check(net.output(net.batch_norm(y, 4), y), library)
    assert clamp(node_of(graph, "conv2d")) == NONE and ops(graph)["mul"] == 1


def test_relu_before_normalisation_is_not_after_it(library: Path) -> None:
    net = Net()
    y = net.op("Relu", net.conv(net.input((1, 3, 8, 8)), 3, 4))
    graph = check(net.output(net.batch_norm(y, 4)), library)
    conv = node_of(graph, "conv2d")
    assert clamp(conv) == RELU and [t.op for t in conv.tail] == ["mul", "add"]
    assert ops(graph) == {"transpose": 2, "conv2d": 1}


def test_a_value_read_twice_by_one_node(library: Path) -> None:
    net = Net()
    y = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    graph = check(net.output(net.op("Mul", y, y)), library)
    assert not steps(graph) and ops(graph)["mul"] == 1


def test_residual_sums_are_steps_of_the_later_convolution(library: Path) -> None:
    net = Net()
    x = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    y = net.op("Relu", net.op("Add", net.conv(net.op("Relu", net.conv(x, 4, 4)), 4, 4), x))
    graph = check(net.output(y), library)
    assert ops(graph) == {"transpose": 2, "conv2d": 3} and steps(graph) == ["add"]
    last = graph.nodes[-2]
    assert last.op == "conv2d" and clamp(last) == NONE
    assert (last.tail[0].attrs["lo"], last.tail[0].attrs["hi"]) == RELU, "the relu behind the sum is the sum's"


@pytest.mark.parametrize("swap", [False, True])
def test_the_step_waits_for_its_other_operand(library: Path, swap: bool) -> None:
    """Sum of a projection and a main branch: whichever convolution comes first, the later takes the sum."""
    net = Net()
    x = net.op("Relu", net.conv(net.input((1, 3, 8, 8)), 3, 4))
    short = net.conv(x, 4, 6, 1)
    main = net.conv(net.op("Sigmoid", net.conv(x, 4, 4)), 4, 6)
    graph = check(net.output(net.op("Sub", *((short, main) if swap else (main, short)))), library)
    assert ops(graph) == {"transpose": 2, "conv2d": 4} and steps(graph) == ["sigmoid", "sub"]
    assert graph.nodes[-2].tail[0].other_first is swap


def test_reordering_for_a_step(library: Path) -> None:
    """The only producer that can take the sum stands before the other operand: it moves behind it."""
    net = Net()
    x = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    first = net.conv(x, 4, 4)
    second = net.conv(x, 4, 4)
    graph = check(net.output(net.op("Add", first, second), net.op("Sigmoid", second)), library)
    assert steps(graph) == ["add"]
    ir.verify(graph)


def test_broadcasts_that_enlarge_are_no_steps(library: Path) -> None:
    net = Net()
    row = net.op("MatMul", net.input((1, 4)), net.weights(4, 5))
    graph = check(net.output(net.op("Add", row, net.input((3, 5), "z"))), library)
    assert ops(graph) == {"matmul": 1, "add": 1}


def test_squeeze_and_excite_with_one_picture_and_with_many(library: Path) -> None:
    for batch, tail in ((1, ["clip", "mul"]), (2, [])):
        net = Net()
        y = net.op("HardSwish", net.conv(net.input((batch, 3, 8, 8)), 3, 8))
        s = net.op("GlobalAveragePool", y)
        s = net.op("Sigmoid", net.conv(net.op("Relu", net.conv(s, 8, 4, 1)), 4, 8, 1))
        graph = check(net.output(net.conv(net.op("Mul", y, s), 8, 4, 1)), library)
        found = ops(graph)
        assert found["conv2d"] == 4 and found["transpose"] == 2 and "reshape" not in found, (batch, tail, found)
        assert found.get("mul", 0) == 1


def test_no_more_steps_than_allowed(library: Path) -> None:
    net = Net()
    y = net.input((2, 3))
    for _ in range(11):
        y = net.op("Tanh", y)
    graph = check(net.output(y), library)
    assert [len(n.tail) for n in graph.nodes] == [4, 4, 0]


def test_clamps_follow_each_other(library: Path) -> None:
    net = Net()
    y = net.conv(net.input((1, 3, 8, 8)), 3, 4)
    for low, high in ((-1.0, 1.0), (0.25, 3.0), (-5.0, 0.5)):
        y = net.op("Clip", y, net.const(low), net.const(high))
    graph = check(net.output(y), library)
    assert clamp(node_of(graph, "conv2d")) == (0.25, 0.5) and ops(graph) == {"transpose": 2, "conv2d": 1}


def test_disjoint_clamps(library: Path) -> None:
    net = Net()
    y = net.op("Relu", net.input((2, 3)))
    graph = check(net.output(net.op("Clip", y, net.const(-3.0), net.const(-1.0))), library)
    assert clamp(node_of(graph, "clip")) == (-1.0, -1.0)


# --- constants and linear operators ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shape", [(), (4, 1, 1), (1, 4, 1, 1)])
def test_a_constant_per_channel_goes_into_the_weights(library: Path, op: str, first: bool, shape: tuple[int, ...]) -> None:
    net = Net()
    y = net.conv(net.input((1, 3, 6, 6)), 3, 4)
    c = net.const(net.random.uniform(1, 2, shape))
    graph = check(net.output(net.op(op, *((y, c) if first else (c, y)))), library)
    if op == "Div" and not first:
        assert steps(graph) == ["div"]
    else:
        assert ops(graph) == {"transpose": 2, "conv2d": 1} and not steps(graph)


def test_a_constant_per_pixel_does_not(library: Path) -> None:
    net = Net()
    y = net.conv(net.input((1, 3, 6, 6)), 3, 4)
    graph = check(net.output(net.op("Mul", y, net.weights(1, 1, 1, 6))), library)
    assert ops(graph)["mul"] == 1


def test_a_bias_behind_a_matrix_product(library: Path) -> None:
    net = Net()
    y = net.op("MatMul", net.input((2, 3, 5)), net.weights(5, 4))
    y = net.op("Relu", net.op("Mul", net.op("Add", y, net.weights(4)), net.const(0.5)))
    graph = check(net.output(y), library)
    product = node_of(graph, "matmul")
    assert len(graph.nodes) == 1 and clamp(product) == RELU and product.attrs["trans_b"] == 1
    assert product.inputs[1] is not None and product.inputs[1].shape == (4, 5) and product.inputs[1].block == 8


def test_a_transposition_before_a_product_is_absorbed(library: Path) -> None:
    net = Net()
    x = net.input((2, 3, 5))
    graph = check(net.output(net.op("MatMul", x, net.op("Transpose", x, perm=(0, 2, 1)))), library)
    assert ops(graph) == {"matmul": 1} and graph.nodes[0].attrs["trans_b"] == 1


def test_constants_are_folded(library: Path) -> None:
    net = Net()
    w = net.op("Softsign", net.op("MatMul", net.weights(5, 6), net.weights(6, 4)))
    graph = check(net.output(net.op("MatMul", net.input((2, 5)), w)), library)
    assert ops(graph) == {"matmul": 1}


def test_a_constant_picture(library: Path) -> None:
    """A convolution of constants: there are no nchw kernels, so it is folded once it is nhwc."""
    net = Net()
    y = net.conv(net.weights(1, 3, 6, 6), 3, 4)
    graph = check(net.output(net.op("Add", net.input((1, 4, 6, 6)), y)), library)
    assert ops(graph) == {"add": 1}


def test_small_models_do_not_become_large(library: Path) -> None:
    net = Net()
    big = net.op("MatMul", net.weights(2000, 1), net.weights(1, 2000))
    graph = check(net.output(net.op("MatMul", net.input((1, 2000)), big)), library)
    assert ops(graph) == {"matmul": 2}


def test_shared_weights_are_not_changed_for_others(library: Path) -> None:
    net = Net()
    w = net.weights(4, 3, 3, 3)
    x = net.input((1, 3, 6, 6))
    first = net.batch_norm(net.op("Conv", x, w), 4)
    graph = check(net.output(first, net.op("Conv", x, w), net.op("Add", net.input((4, 3, 3, 3), "z"), w)), library)
    assert ops(graph)["conv2d"] == 2
    convs = [n.inputs[1] for n in graph.nodes if n.op == "conv2d"]
    assert all(w is not None and w.block == 8 for w in convs)


BLOCKS = [(3, 5, 1, 8), (6, 6, 6, 8), (6, 12, 6, 8), (6, 8, 2, 0), (4, 32, 2, 8)]


@pytest.mark.parametrize(("c_in", "c_out", "group", "block"), BLOCKS)
def test_blocks(library: Path, c_in: int, c_out: int, group: int, block: int) -> None:
    net = Net()
    graph = check(net.output(net.conv(net.input((1, c_in, 6, 6)), c_in, c_out, group=group)), library)
    w = node_of(graph, "conv2d").inputs[1]
    assert w is not None and w.block == block


# --- padding -----------------------------------------------------------------------------------------------------------------


def padded(net: Net, *pads: int, value: float = 0.0, mode: str = "constant") -> str:
    return str(net.op("Pad", net.input((1, 3, 8, 8)), net.ints(*pads), net.const(value), mode=mode))


def test_borders_of_zeros_go_into_convolutions(library: Path) -> None:
    net = Net()
    x = padded(net, 0, 0, 1, 2, 0, 0, 3, 0)
    graph = check(net.output(net.conv(x, 3, 4, pads=(1, 0, 0, 1)), net.conv(x, 3, 4, auto_pad="VALID")), library)
    assert "pad" not in ops(graph)
    assert [n.attrs["pads"] for n in graph.nodes if n.op == "conv2d"] == [(2, 2, 3, 1), (1, 2, 3, 0)]


@pytest.mark.parametrize("pads", [(0, 1, 1, 1, 0, 0, 0, 0), (0, 0, -1, 0, 0, 0, 1, 1)])
def test_other_borders_stay(library: Path, pads: tuple[int, ...]) -> None:
    net = Net()
    channels = 3 + pads[1]
    assert ops(check(net.output(net.conv(padded(net, *pads), channels, 4)), library))["pad"] == 1


def test_borders_that_are_not_zero_stay(library: Path) -> None:
    net = Net()
    assert ops(check(net.output(net.conv(padded(net, 0, 0, 1, 1, 0, 0, 1, 1, value=1.0), 3, 4)), library))["pad"] == 1
    net = Net()
    assert ops(check(net.output(net.conv(padded(net, 0, 0, 1, 1, 0, 0, 1, 1, mode="edge"), 3, 4)), library))["pad"] == 1
    net = Net()
    x = padded(net, 0, 0, 1, 1, 0, 0, 1, 1)
    assert ops(check(net.output(net.op("MaxPool", x, kernel_shape=(3, 3))), library))["pad"] == 1


@pytest.mark.parametrize(
    ("attrs", "folded"),
    [
        ({"kernel_shape": (3, 3)}, True),
        ({"kernel_shape": (3, 3), "pads": (1, 0, 1, 0), "count_include_pad": 1}, True),
        ({"kernel_shape": (3, 3), "pads": (1, 0, 1, 0)}, False),
        ({"kernel_shape": (2, 2), "pads": (1, 0, 1, 0), "count_include_pad": 1}, False),
        ({"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}, False),
    ],
)
def test_borders_of_zeros_go_into_average_pools(library: Path, attrs: dict[str, Any], folded: bool) -> None:
    net = Net()
    graph = check(net.output(net.op("AveragePool", padded(net, 0, 0, 1, 1, 0, 0, 1, 1), **attrs)), library)
    assert ("pad" not in ops(graph)) is folded


# --- layout ------------------------------------------------------------------------------------------------------------------


def test_only_the_entry_is_transposed(library: Path) -> None:
    """Everything that can work on either order: no transposition inside, none at the end."""
    net = Net()
    x = net.op("Relu", net.conv(net.input((2, 3, 12, 12)), 3, 8))
    a = net.op("MaxPool", x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    b = net.op("AveragePool", x, kernel_shape=(2, 2), strides=(2, 2))
    y = net.op("Concat", a, net.op("PRelu", b, net.weights(8, 1, 1)), axis=1)
    y = net.op("Pad", y, net.ints(0, 0, 1, 0, 0, 0, 0, 1), net.const(0.5))
    y = net.op("Slice", y, net.ints(2), net.ints(14), net.ints(1))
    y = net.op("Softmax", net.op("Mul", y, net.weights(1, 12, 7, 7)), axis=1)
    y = net.op("Add", y, net.weights(7, 1))
    y = net.op("Flatten", net.op("GlobalAveragePool", net.conv(y, 12, 6)))
    graph = check(net.output(net.op("Gemm", y, net.weights(6, 5))), library)
    assert ops(graph)["transpose"] == 1 and graph.nodes[0].op == "transpose"


def test_pictures_in_and_out_stay_nchw(library: Path) -> None:
    net = Net()
    graph = check(net.output(net.conv(net.input((2, 3, 8, 6)), 3, 5)), library)
    assert graph.inputs[0].shape == (2, 3, 8, 6) and graph.outputs[0].shape == (2, 5, 8, 6)
    assert [n.op for n in graph.nodes] == ["transpose", "conv2d", "transpose"]


def test_pictures_in_and_out_can_be_nhwc(library: Path) -> None:
    net = Net()
    model = net.output(net.op("Relu", net.conv(net.input((2, 3, 8, 6)), 3, 5), output="y")).model()
    graph = importer.load(model)
    passes.optimize(graph, tools(library), io_layout="nhwc")
    assert [n.op for n in graph.nodes] == ["conv2d"]
    assert (graph.inputs[0].name, graph.outputs[0].name) == ("x", "y")
    assert graph.inputs[0].shape == (2, 8, 6, 3) and graph.outputs[0].shape == (2, 8, 6, 5)
    feeds = random_feeds(model, {})
    found = run(graph, library, {"x": np.ascontiguousarray(feeds["x"].transpose(0, 2, 3, 1))})["y"]
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), reference(model, feeds)["y"], rtol=1e-4, atol=1e-5)


def test_one_channel_is_a_view(library: Path) -> None:
    net = Net()
    graph = check(net.output(net.conv(net.input((1, 1, 8, 8)), 1, 4)), library)
    assert [n.op for n in graph.nodes] == ["reshape", "conv2d", "transpose"]


def test_a_flattened_picture_before_a_matrix(library: Path) -> None:
    """The weights' rows are put in order instead of the picture."""
    net = Net()
    y = net.op("Flatten", net.op("Relu", net.conv(net.input(("N", 3, 4, 5)), 3, 6)))
    graph = check(net.output(net.op("Gemm", y, net.weights(120, 7), net.weights(7))), library, {"N": 3})
    assert ops(graph) == {"transpose": 1, "conv2d": 1, "reshape": 1, "matmul": 1}


def test_a_channel_shuffle_takes_one_transposition(library: Path) -> None:
    net = Net()
    y = net.op("Reshape", net.conv(net.input((1, 3, 6, 6)), 3, 8), net.ints(0, 2, 4, 6, 6))
    y = net.op("Reshape", net.op("Transpose", y, perm=(0, 2, 1, 3, 4)), net.ints(0, 8, 6, 6))
    graph = check(net.output(net.op("GlobalMaxPool", net.conv(y, 8, 4))), library)
    assert ops(graph)["transpose"] == 2, "the entry's and the shuffle's own"


def test_a_detection_head(library: Path) -> None:
    """[N, C, H, W] -> [N, H * W, C]: nhwc already."""
    net = Net()
    y = net.op("Reshape", net.conv(net.input((1, 3, 6, 4)), 3, 8), net.ints(0, 8, 24))
    graph = check(net.output(net.op("Sigmoid", net.op("Transpose", y, perm=(0, 2, 1)))), library)
    assert ops(graph) == {"transpose": 1, "conv2d": 1, "reshape": 1} and steps(graph) == ["sigmoid"]


def test_a_network_that_is_nhwc_outside(library: Path) -> None:
    """As converters from TensorFlow leave them: nothing has to be transposed at all."""
    net = Net()
    y = net.op("Transpose", net.input((1, 8, 8, 3)), perm=(0, 3, 1, 2))
    y = net.op("Relu", net.conv(y, 3, 4))
    y = net.op("Add", net.op("Transpose", y, perm=(0, 2, 3, 1)), net.weights(4))
    y = net.op("Transpose", net.conv(net.op("Transpose", y, perm=(0, 3, 1, 2)), 4, 2), perm=(0, 2, 3, 1))
    graph = check(net.output(net.op("ReduceMean", y, axes=(1, 2), keepdims=0)), library)
    assert "transpose" not in ops(graph)


def test_one_dimensional_networks(library: Path) -> None:
    net = Net()
    x = net.input((2, 3, 16))
    y = net.op("Conv", x, net.weights(8, 3, 3), pads=(1, 1))
    y = net.op("Relu", net.batch_norm(y, 8))
    z = net.batch_norm(net.op("Conv", y, net.weights(8, 8, 3), pads=(1, 1)), 8)
    y = net.op("Relu", net.op("Add", y, z))
    graph = check(net.output(net.op("Flatten", net.op("GlobalAveragePool", y))), library)
    assert ops(graph)["conv2d"] == 2 and not {"mul", "add", "clip"} & set(ops(graph)) and ops(graph)["transpose"] == 1


# --- activations -------------------------------------------------------------------------------------------------------------


def silu(n: Net, x: str) -> str:
    return str(n.op("Mul", x, n.op("Sigmoid", x)))


def hard_swish(n: Net, x: str) -> str:
    gate = n.op("Clip", n.op("Add", x, n.const(3)), n.const(0), n.const(6))
    return str(n.op("Div", n.op("Mul", x, gate), n.const(6)))


def hard_swish_inside(n: Net, x: str) -> str:
    gate = n.op("Clip", n.op("Add", n.const(3), x), n.const(0), n.const(6))
    return str(n.op("Mul", n.op("Mul", gate, n.const(1 / 6)), x))


def hard_sigmoid(n: Net, x: str) -> str:
    return str(n.op("Div", n.op("Clip", n.op("Add", x, n.const(3)), n.const(0), n.const(6)), n.const(6)))


def hard_swish_of_sigmoid(n: Net, x: str) -> str:
    return str(n.op("Mul", n.op("HardSigmoid", x, alpha=1 / 6, beta=0.5), x))


def mish(n: Net, x: str) -> str:
    return str(n.op("Mul", x, n.op("Tanh", n.op("Softplus", x))))


def gelu(n: Net, x: str) -> str:
    erf = n.op("Add", n.op("Erf", n.op("Div", x, n.const(2**0.5))), n.const(1))
    return str(n.op("Mul", n.op("Mul", x, erf), n.const(0.5)))


def gelu_half_first(n: Net, x: str) -> str:
    erf = n.op("Add", n.const(1), n.op("Erf", n.op("Mul", x, n.const(0.5**0.5))))
    return str(n.op("Mul", n.op("Mul", n.const(0.5), x), erf))


def max_min(n: Net, x: str) -> str:
    return str(n.op("Min", n.op("Max", n.const(0), x), n.const(0.75)))


@pytest.mark.parametrize(
    ("build", "op"),
    [
        (silu, "silu"), (hard_swish, "hard_swish"), (hard_swish_inside, "hard_swish"), (hard_sigmoid, "hard_sigmoid"),
        (hard_swish_of_sigmoid, "hard_swish"), (mish, "mish"), (gelu, "gelu"), (gelu_half_first, "gelu"), (max_min, "clip"),
    ],
)  # fmt: skip
def test_activations_are_recognised(library: Path, build: Any, op: str) -> None:
    net = Net()
    graph = check(net.output(build(net, net.input((2, 40)))), library)
    assert ops(graph) == {op: 1} and not steps(graph)
    net = Net()
    graph = check(net.output(build(net, net.conv(net.input((1, 3, 6, 6)), 3, 4))), library)
    assert ops(graph) == {"transpose": 2, "conv2d": 1} and steps(graph) == ([op] if op != "clip" else [])


def test_what_only_looks_like_an_activation(library: Path) -> None:
    net = Net()
    x = net.input((2, 40))
    gate = net.op("Clip", net.op("Add", x, net.const(2)), net.const(0), net.const(6))
    graph = check(net.output(net.op("Div", net.op("Mul", x, gate), net.const(6))), library)
    assert "hard_swish" not in ops(graph)
    net = Net()
    graph = check(net.output(net.op("Mul", net.input((2, 40)), net.op("Sigmoid", net.input((2, 40), "z")))), library)
    assert "silu" not in ops(graph)


# --- cleaning up -------------------------------------------------------------------------------------------------------------


def test_what_does_nothing_vanishes(library: Path) -> None:
    net = Net()
    y = net.op("Identity", net.op("Dropout", net.input((2, 3, 4))))
    y = net.op("Transpose", net.op("Clip", y), perm=(0, 1, 2))
    y = net.op("Pad", net.op("Reshape", y, net.ints(2, 3, 4)), net.ints(0, 0, 0, 0, 0, 0))
    y = net.op("Slice", net.op("Concat", y, axis=1), net.ints(0), net.ints(99))
    graph = check(net.output(net.op("Relu", y)), library)
    assert [n.op for n in graph.nodes] == ["clip"]


def test_views_become_one(library: Path) -> None:
    net = Net()
    y = net.op("Flatten", net.op("Unsqueeze", net.op("Squeeze", net.input(("N", 1, 3, 4)), net.ints(1)), net.ints(2)))
    graph = check(net.output(net.op("Reshape", y, net.ints(0, 4, 3))), library, {"N": 2})
    assert [n.op for n in graph.nodes] == ["reshape"] and graph.nodes[0].attrs["shape"] == (0, 4, 3)


def test_equal_nodes_become_one(library: Path) -> None:
    net = Net()
    x = net.input((2, 3))
    graph = check(net.output(net.op("Add", net.op("Exp", x), net.op("Exp", x))), library)
    assert ops(graph) == {"exp": 1, "add": 1}


def test_outputs_keep_names_and_order(library: Path) -> None:
    net = Net()
    x = net.input((2, 3))
    y = net.op("Exp", x, output="b")
    z = net.op("Identity", y, output="a")
    w = net.op("Exp", x, output="c")
    graph = check(net.output(z, y, w), library)
    assert [v.name for v in graph.outputs] == ["a", "b", "c"]


def test_nothing_needed_is_nothing_kept(library: Path) -> None:
    net = Net()
    x = net.input((2, 3))
    net.op("Exp", x)
    assert ops(check(net.output(net.op("Abs", x)), library)) == {"abs": 1}


# --- the pass manager --------------------------------------------------------------------------------------------------------


def test_counts_and_stopping(library: Path) -> None:
    net = Net()
    model = net.output(net.op("Relu", net.batch_norm(net.conv(net.input((1, 3, 6, 6)), 3, 4), 4))).model()
    graph = importer.load(model)
    counts = dict(passes.optimize(graph, tools(library)))
    assert counts["batch_norm"] == 1 and counts["linear"] == 2 and counts["clamps"] == 1 and counts["padding"] == 0
    graph = importer.load(model)
    passes.optimize(graph, tools(library), stop_after="batch_norm")
    assert ops(graph) == {"conv2d": 1, "mul": 1, "add": 1, "clip": 1}
    with pytest.raises(ArgumentError, match="there is no pass 'magic'; there are no_ops, views"):
        passes.optimize(graph, tools(library), stop_after="magic")
    with pytest.raises(ArgumentError, match="io_layout 'chw' is neither"):
        passes.optimize(graph, tools(library), io_layout="chw")


def test_optimising_twice_changes_nothing(library: Path) -> None:
    net = Net()
    y = net.op("Relu", net.batch_norm(net.conv(net.input((1, 3, 6, 6)), 3, 4), 4))
    graph = check(net.output(net.op("Add", y, net.conv(y, 4, 4))), library)
    before = [(n.op, n.name) for n in graph.nodes]
    assert not any(n for _, n in passes.optimize(graph, tools(library)))
    assert [(n.op, n.name) for n in graph.nodes] == before


def test_a_faulty_pass_is_named(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(graph: Graph, _: passes.Tools) -> int:
        graph.nodes[0].attrs["lo"] = None
        return 1

    def never_ends(graph: Graph, _: passes.Tools) -> int:
        return 1

    net = Net()
    model = net.output(net.op("Relu", net.input((2, 3)))).model()
    monkeypatch.setattr(passes, "PASSES", ((breaks,),))
    with pytest.raises(GraphError, match=r"pass breaks: graph 'net': node 'Relu_v0_0' .clip.: attribute lo=None"):
        passes.optimize(importer.load(model), tools(library))
    monkeypatch.setattr(passes, "PASSES", ((never_ends, dead_code),))
    with pytest.raises(GraphError, match="the passes never_ends, dead_code undo each other"):
        passes.optimize(importer.load(model), tools(library))


# --- shapes ------------------------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit_name_the_node(library: Path) -> None:
    net = Net()
    model = net.output(net.op("MatMul", net.input((2, 3)), net.weights(4, 5), name="product")).model()
    with pytest.raises(ShapeError, match=r"node 'product' .matmul.: "):
        passes.optimize(importer.load(model), tools(library))


def test_open_dimensions_that_must_be_equal(library: Path) -> None:
    net = Net()
    net.output(net.op("Add", net.input(("N", 3)), net.input(("M", 3), "z")))
    graph = importer.load(net.model())
    passes.optimize(graph, tools(library))
    assert graph.outputs[0].shape == (None, 3)


def test_a_baked_size_with_an_open_dimension_is_told(library: Path) -> None:
    net = Net()
    y = net.op("Reshape", net.input(("N", 3, 4)), net.ints(1, 12), name="baked")
    model = net.output(net.op("Gemm", y, net.weights(12, 5))).model()
    with pytest.raises(ShapeError, match=r"node 'baked' .*tried with N=2: fix the shapes"):
        passes.optimize(importer.load(model), tools(library))


def test_sums_of_open_sizes_are_steps(library: Path) -> None:
    net = Net()
    x = net.conv(net.input(("N", 3, "H", "W")), 3, 4, strides=(2, 2))
    graph = check(net.output(net.op("Add", net.conv(x, 4, 4), x)), library, {"N": 2, "H": 9, "W": 12})
    assert steps(graph) == ["add"]
    # Sizes rounded down and up are different ones.
    net = Net()
    x = net.input(("N", 3, "H", "W"))
    down = net.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))
    up = net.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2), ceil_mode=1)
    graph = importer.load(net.output(down, up).model())
    passes.optimize(graph, tools(library))
    first, second = (v.shape for v in graph.outputs)
    assert first is not None and second is not None and first[2] != second[2]


def test_a_network_that_needs_even_sizes(library: Path) -> None:
    net = Net()
    x = net.input((1, 2, "H", "W"))
    y = net.op("Concat", x, net.op("DepthToSpace", net.conv(x, 2, 8, strides=(2, 2)), blocksize=2), axis=1)
    with pytest.raises(UnsupportedOperator, match="channels, height and width must be numbers; fix them with --shape"):
        importer.load(net.output(y).model())
    check(net, library, {"H": 8, "W": 8}, {"H": 8, "W": 8})


def test_samples_tell_symbols_apart() -> None:
    (low, high), *_ = shapes.samples([("N", 3, "H", "W"), ("M", "H")])
    assert len(set(low.values())) == 4 and all(low[s] != high[s] for s in low)
    assert shapes.merge((2, 3, low["H"], 7), (3, 3, high["H"], 8), (low, high)) == ("N", 3, "H", "?7/8")
    assert shapes.merge((1,), (1, 2), (low, high)) is None
    assert shapes.samples([(1, 2), None]) == [({}, {})]


# --- random networks ---------------------------------------------------------------------------------------------------------

KINDS = ["conv", "depthwise", "bn", "unary", "const", "binary", "pool", "concat", "pad", "shuffle", "gate"]


@st.composite
def networks(draw: st.DrawFn) -> Net:
    """Networks of spatial, element-wise and moving operators with branches and several outputs."""
    net = Net(13, seed=draw(st.integers(0, 1 << 16)))
    batch = draw(st.sampled_from([1, 2]))
    values: list[tuple[str, tuple[int, int, int]]] = [(net.input((batch, 4, 6, 6)), (4, 6, 6))]
    for _ in range(draw(st.integers(1, 10))):
        x, (c, h, w) = draw(st.sampled_from(values[-4:]))
        same = [v for v, shape in values if shape == (c, h, w)]
        kind = draw(st.sampled_from(KINDS))
        if kind == "conv":
            o = draw(st.sampled_from([4, 5, 8]))
            y, c = net.conv(x, c, o, draw(st.sampled_from([1, 3]))), o
        elif kind == "depthwise":
            y = net.conv(x, c, c, 3, group=c)
        elif kind == "bn":
            y = net.batch_norm(x, c)
        elif kind == "unary":
            y = net.op(draw(st.sampled_from(["Relu", "Sigmoid", "Tanh", "HardSigmoid", "Abs", "Softsign", "Identity"])), x)
        elif kind == "const":
            shape = draw(st.sampled_from([(), (c, 1, 1), (1, c, h, w), (h, w), (1,)]))
            pair = [x, net.const(net.random.uniform(0.5, 1.5, shape))]
            op = draw(st.sampled_from(["Add", "Mul", "Sub", "Div", "Max"]))
            y = net.op(op, *(draw(st.permutations(pair)) if op != "Div" else pair))
        elif kind == "binary":
            y = net.op(draw(st.sampled_from(["Add", "Mul", "Sub", "Min"])), x, draw(st.sampled_from(same)))
        elif kind == "pool":
            op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
            y = net.op(op, x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        elif kind == "concat":
            parts = draw(st.lists(st.sampled_from(same), min_size=2, max_size=3))
            y = net.op("Slice", net.op("Concat", *parts, axis=1), net.ints(1), net.ints(c + 1), net.ints(1))
        elif kind == "pad":
            y = net.op("Pad", x, net.ints(0, 0, 1, 0, 0, 0, 0, 2))
            y = net.op("Slice", y, net.ints(1, 2), net.ints(2**40, 2**40), net.ints(2, 3))
        elif kind == "shuffle":
            y = net.op("Reshape", x, net.ints(0, c, h * w))
            y = net.op("Transpose", net.op("Softmax", net.op("Transpose", y, perm=(0, 2, 1)), axis=-1), perm=(0, 2, 1))
            y = net.op("Reshape", y, net.ints(0, c, h, w))
        else:
            gate = net.op("GlobalAveragePool", x)
            y = net.op("Mul", x, net.op("Sigmoid", net.conv(gate, c, c, 1)))
        values.append((y, (c, h, w)))
    outputs = {values[-1][0], draw(st.sampled_from(values))[0]} - {values[0][0]}
    return net.output(*sorted(outputs))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(net=networks())
def test_random_networks(library: Path, net: Net) -> None:
    graph = check(net, library, rtol=1e-3)
    assert all(n.layout in ("any", "nhwc") for n in graph.nodes)
    assert not any(n for _, n in passes.optimize(graph, tools(library))), "optimising is done at once"


# --- trained networks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted", "sums"),
    [
        ("efficientnet-lite0", {"transpose": 1, "conv2d": 49, "global_average_pool": 1, "reshape": 1, "matmul": 1}, 9),
        ("mobilenetv2-224", {"transpose": 1, "conv2d": 52, "global_average_pool": 1, "reshape": 1, "matmul": 1}, 10),
    ],
)
def test_trained_networks(library: Path, name: str, wanted: dict[str, int], sums: int) -> None:
    path = ROOT / "build" / "models" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not built: python models/get.py {name}")
    graph = importer.load(path)
    passes.optimize(graph, tools(library))
    assert ops(graph) == wanted and graph.nodes[0].op == "transpose"
    assert steps(graph) == ["add"] * sums
    limits = [clamp(n) for n in graph.nodes if n.op == "conv2d"]
    assert limits.count((0.0, 6.0)) == {"efficientnet-lite0": 33, "mobilenetv2-224": 35}[name]
    assert limits.count(NONE) + limits.count((0.0, 6.0)) == len(limits)


