"""The intermediate representation: its questions, its changes, and what verify refuses."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ops_nn import ir
from ops_nn.ir import Graph, GraphError, Node, Tail, Value


def value(name: str, *shape: ir.Dim) -> Value:
    return Value(name, "f32", shape)


def constant(name: str, *shape: int) -> Value:
    return Value(name, "f32", shape, np.zeros(shape, np.float32))


def chain() -> Graph:
    """x -> clip a -> sigmoid b -> add(b, x) c"""
    x, a, b, c = (value(n, "N", 3) for n in "xabc")
    nodes = [
        Node("clip", "clip", [x], [a], {"lo": 0.0}),
        Node("sigmoid", "sigmoid", [a], [b]),
        Node("add", "add", [b, x], [c]),
    ]
    return Graph("chain", [x], [c], nodes)


def test_a_sound_graph_passes() -> None:
    ir.verify(chain())


def test_attributes_are_completed_from_the_schema() -> None:
    node = chain().nodes[0]
    assert node.attrs == {"lo": 0.0, "hi": float("inf")}
    assert Tail("add", {}, constant("c", 3)).attrs["lo"] == -float("inf")


def test_consumers_count_every_use() -> None:
    graph = chain()
    clip, sigmoid, add = graph.nodes
    x, a, b = graph.inputs[0], clip.y, sigmoid.y
    assert ir.consumers(graph)[x] == [clip, add]
    assert ir.single_consumer(graph, a) is sigmoid
    assert ir.single_consumer(graph, x) is None
    assert ir.producer(graph, b) is sigmoid and ir.producer(graph, x) is None
    add.inputs = [b, b]
    assert ir.single_consumer(graph, b) is None, "twice by one node"
    add.inputs = [b, x]
    sigmoid.tail.append(Tail("add", {}, a))
    assert ir.single_consumer(graph, a) is None, "by a node and by its own fused step"
    sigmoid.tail.clear()
    graph.outputs.append(a)
    assert ir.single_consumer(graph, a) is None, "an output of the graph"
    assert ir.single_consumer(graph, add.y) is None, "nobody"


def test_replacing_an_output_keeps_its_name() -> None:
    graph = chain()
    b = graph.nodes[1].y
    ir.replace_value(graph, graph.outputs[0], b)
    assert graph.outputs == [b] and b.name == "c"


def test_fresh_names_are_new() -> None:
    graph = chain()
    names = [graph.fresh("x"), graph.fresh("x"), graph.fresh("x~1"), graph.fresh("new")]
    assert names == ["x~1", "x~2", "x~3", "new"]


def test_sort_restores_an_order_and_finds_cycles() -> None:
    graph = chain()
    wanted = list(graph.nodes)
    graph.nodes.reverse()
    with pytest.raises(GraphError, match=r"node 'add' .* reads 'b', which nothing before it makes"):
        ir.verify(graph)
    ir.sort(graph)
    assert graph.nodes == wanted
    graph.nodes[0].inputs = [graph.nodes[2].y]
    with pytest.raises(GraphError, match="waits for its own result"):
        ir.sort(graph)


@pytest.mark.parametrize(
    ("other", "output", "kind"),
    [
        (None, (1, 4, 4, 3), "unary"),
        ((), (1, 4, 4, 3), "scalar"),
        ((1, 1), ("N", 3), "scalar"),
        ((1, 4, 4, 3), (1, 4, 4, 3), "same"),
        (("N", 3), ("N", 3), "same"),
        ((3,), ("N", 3), "channel"),
        ((1, 1, 1, 3), (2, 4, 4, 3), "channel"),
        ((2, 1, 1, 3), (2, 4, 4, 3), None),
        ((4, 1), (4, 3), None),
        ((None, 3), (None, 3), None),
        (("M", 3), ("N", 3), None),
        ((1, 1, 1), (1, 3), None),
    ],
)
def test_kinds_of_other_operands(other: ir.Shape, output: ir.Shape, kind: str) -> None:
    assert ir.tail_kind(None if other is None else Value("o", "f32", other), output) == kind


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        (("N", 2, 3), ("N", 6), (0, 6)),
        (("N", 2, 3), (6, "N"), (6, -1)),
        ((2, 3), (3, 2), (3, 2)),
        ((None, 3), (None, 3), (-1, 3)),
        (("N", "M"), ("N", "M"), (0, 0)),
        (("N", "M"), ("M", "N"), None),
        ((0, 3), (0, 9), (0, 9)),
    ],
)
def test_reshape_to(source: ir.Shape, target: ir.Shape, shape: object) -> None:
    assert ir.reshape_to(source, target) == shape


def _set(path: str, new: object) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        target: object = graph
        *steps, last = path.split(".")
        for step in steps:
            target = target[int(step)] if isinstance(target, list) else getattr(target, step)
        if isinstance(target, dict):
            target[last] = new
        else:
            setattr(target, last, new)

    return change


def _tail(*tails: Tail) -> Callable[[Graph], None]:
    return lambda graph: graph.nodes[1].tail.extend(tails)


def _bad_constant(graph: Graph) -> None:
    graph.nodes[2].inputs[1] = Value("w", "f32", (3,), np.zeros(3, np.float64))


def _wrong_shape(graph: Graph) -> None:
    graph.nodes[2].inputs[1] = Value("w", "f32", (4,), np.zeros(3, np.float32))


def _step_of_a_view(graph: Graph) -> None:
    graph.nodes[1].op = "identity"
    graph.nodes[1].tail.append(Tail("abs"))


def _same_name(graph: Graph) -> None:
    graph.nodes[2].inputs[1] = constant("a", 3)


FAULTS: list[tuple[str, Callable[[Graph], None], str]] = [
    ("operator", _set("nodes.0.op", "relu"), "node 'clip' (relu): no such operator"),
    ("attribute", _set("nodes.0.attrs.alpha", 1.0), "has no attribute 'alpha'"),
    ("attribute type", _set("nodes.0.attrs.lo", "zero"), "attribute lo='zero' is no number"),
    ("missing attribute", _set("nodes.0.attrs", {"lo": 0.0}), "attribute 'hi' is missing"),
    ("layout", _set("nodes.0.layout", "nhwc"), "layout 'nhwc' is wrong here"),
    ("no layout", _set("nodes.0.op", "global_max_pool"), "layout 'any' is wrong here"),
    ("inputs", _set("nodes.2.inputs", [value("x", 3)]), "1 inputs, wants 2 to 2"),
    ("required input", lambda g: g.nodes[2].inputs.__setitem__(1, None), "input 1 is required"),
    ("outputs", lambda g: g.nodes[1].outputs.append(value("d", 1)), "2 outputs, wants 1"),
    ("made twice", lambda g: g.nodes[1].outputs.__setitem__(0, g.nodes[0].y), "makes 'a', which exists already"),
    ("made constant", _set("nodes.1.outputs", [constant("k", 3)]), "makes 'k', which is a constant"),
    ("unmade output", lambda g: g.outputs.__setitem__(0, value("z", 1)), "output 'z' is made by no node"),
    ("input as output", lambda g: g.outputs.__setitem__(0, g.inputs[0]), "output 'x' is made by no node"),
    ("output twice", lambda g: g.outputs.append(g.outputs[0]), "output 'c' is listed twice"),
    ("no outputs", lambda g: g.outputs.clear(), "it has no outputs"),
    ("input twice", lambda g: g.inputs.append(g.inputs[0]), "input 'x' is listed twice"),
    ("constant input", lambda g: g.inputs.append(constant("k", 1)), "input 'k' is a constant"),
    ("value names", _same_name, "two values are named 'a'"),
    ("node names", _set("nodes.1.name", "clip"), "two nodes are named 'clip'"),
    ("no name", _set("nodes.1.name", ""), "one of the nodes has no name"),
    ("data type", _bad_constant, "value 'w' is declared as f32 but its data are float64"),
    ("data shape", _wrong_shape, "value 'w' is declared as (4,) but its data are (3,)"),
    ("type", _set("inputs.0.dtype", "float"), "value 'x' has the unknown type 'float'"),
    ("rank", _set("inputs.0.shape", (1,) * 9), "no tuple of at most 8 dimensions"),
    ("dimension", _set("inputs.0.shape", (-1, 3)), "a dimension out of range"),
    ("block", _set("inputs.0.block", 8), "value 'x' is blocked but no constant"),
    ("step", _tail(Tail("softmax")), "'softmax' is no element-wise operator"),
    ("steps", _tail(*(Tail("abs") for _ in range(5))), "5 fused steps are more than 4"),
    ("step attribute", _tail(Tail("clip", {"lo": None})), "fused step clip: attribute lo=None is no number"),
    ("step without operand", _tail(Tail("add")), "fused step add has no other operand"),
    ("step with operand", _tail(Tail("abs", {}, constant("k", 3))), "fused step abs has an other operand"),
    ("step order", _tail(Tail("abs", {}, None, True)), "has no other operand to come first"),
    ("step shape", _tail(Tail("add", {}, constant("k", 4))), "'k' (4,) fits neither way to the output ('N', 3)"),
    ("step type", _tail(Tail("add", {}, Value("k", "s32", (3,), np.zeros(3, np.int32)))), "'k' is s32, the output f32"),
    ("step block", _tail(Tail("add", {}, Value("k", "f32", (3,), np.zeros(3, np.float32), 8))), "'k' is blocked"),
    ("step of a view", _step_of_a_view, "identity cannot have fused steps"),
]


@pytest.mark.parametrize(("change", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_verify_refuses(change: Callable[[Graph], None], message: str) -> None:
    graph = chain()
    change(graph)
    with pytest.raises(GraphError) as caught:
        ir.verify(graph)
    assert message in str(caught.value) and str(caught.value).startswith("graph 'chain': ")
