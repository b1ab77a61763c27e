"""Plans: which kernel, where tensors lie, what is refused and in which words."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ops_nn import errors, lib
from ops_nn import modelfile as F
from planner import library as P
from planner.library import Net, tail, target

X = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
NBYTES = 128  # of such a tensor in the arena: 96, at a multiple of 64


@pytest.fixture(scope="module")
def library() -> lib.Library:
    return lib.library(P.build())


@pytest.fixture(autouse=True)
def nothing_is_leaked(library: lib.Library) -> Iterator[None]:
    yield
    if library.memory_usage()[0]:
        gc.collect()  # caught exceptions hold frames that hold objects
    assert library.memory_usage()[0] == 0


def plan(library: lib.Library, data: bytes, *arguments: Any, **options: Any) -> lib.Handle:
    return library.plan_create(library.model_open_memory(data), *arguments, **options)


def results(library: lib.Library, data: bytes, *feeds: Any) -> list[P.Array]:
    """The outputs, which may depend neither on reuse of memory, nor on threads, nor on what was in the arena before."""
    usual = plan(library, data)
    executor = library.exec_create(usual)
    got = P.run_again(library, usual, executor, feeds)
    again = P.run_again(library, usual, executor, feeds)
    roomy = P.run(library, plan(library, data, flags=lib.PLAN_NO_REUSE), feeds)
    for other in (again, roomy, *(P.run(library, usual, feeds, threads) for threads in (2, 3, 4))):
        assert [o.tobytes() for o in other] == [g.tobytes() for g in got]
    return got


def arena(library: lib.Library, data: bytes, flags: int = 0) -> int:
    return library.plan_info(plan(library, data, flags=flags)).arena_bytes


def kernels(library: lib.Library, handle: lib.Handle) -> list[str]:
    return [node.kernel for node in library.plan_nodes(handle)]


def place(library: lib.Library, executor: lib.Handle, what: str, index: int) -> int:
    return int(library.ffi.cast("uintptr_t", getattr(library._c, f"opsnn_exec_{what}")(executor.c, index)))


# --- views ----------------------------------------------------------------------------------------------------------------


def test_views_compute_nothing(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    y = net.node("reshape", net.node("flatten", net.node("identity", x), axis=2), shape=(3, 8))
    z = net.node("clip", y, lo=0.0)
    data = net.bytes(z)
    (got,) = results(library, data, X)
    assert np.array_equal(got, np.maximum(X, 0).reshape(3, 8))
    made = plan(library, data)
    assert kernels(library, made)[:3] == ["view", "view", "view"]
    assert (
        library.plan_nodes(made)[0].macs == library.plan_nodes(made)[0].moved_bytes == library.plan_nodes(made)[0].n_tasks == 0
    )
    assert library.plan_candidates(made, 0) == []
    assert library.plan_info(made).arena_bytes == NBYTES, "input, views and the result share one place"


def test_views_as_outputs(library: lib.Library) -> None:
    """A view of an input, the input itself, and a view of an intermediate, beside the intermediate."""
    net = Net()
    x = net.input(2, 3, 4)
    flat = net.node("flatten", x)
    y = net.node("clip", flat, lo=0.0)
    data = net.bytes(flat, x, net.node("reshape", y, shape=(24,)), y, y)
    got = results(library, data, X)
    positive = np.maximum(X, 0)
    for array, expected in zip(
        got, (X.reshape(2, 12), X, positive.reshape(24), positive.reshape(2, 12), positive.reshape(2, 12))
    ):
        assert np.array_equal(array, expected)
    made = plan(library, data)
    executor = library.exec_create(made)
    places = [place(library, executor, "output", i) for i in range(5)]
    assert places[0] == places[1] == place(library, executor, "input", 0)
    assert places[2] == places[3] == places[4] != places[0]
    assert library.plan_info(made).arena_bytes == 2 * NBYTES


def test_views_of_constants_are_constants(library: lib.Library) -> None:
    weights = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    net = Net()
    x = net.input(1, 2, 2, 3)
    w = net.node("reshape", net.node("identity", net.const(weights)), shape=(4, 1, 1, 3))
    data = net.bytes(net.node("conv2d", x, w), w)
    image = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    made = plan(library, data)
    assert kernels(library, made)[2] == "conv2d_f32_nhwc_pack_neon", "packing needs a constant"
    got, stored = results(library, data, image)
    assert np.allclose(got, image @ weights.T) and np.array_equal(stored.reshape(4, 3), weights)


def test_blocked_constants_are_not_viewed(library: lib.Library) -> None:
    net = Net()
    view = net.node("reshape", net.const(np.ones((8, 2)), block=4), shape=(4, 4), name="v")
    with pytest.raises(errors.ShapeError, match=r"node 'v' \(reshape\): .*block"):
        plan(library, net.bytes(view))


# --- sharing memory -------------------------------------------------------------------------------------------------------


def test_chain_runs_in_place(library: lib.Library) -> None:
    net = Net()
    t = net.input(2, 3, 4)
    for i in range(6):
        t = net.node("clip", t, lo=-1.0 + i / 10)
    data = net.bytes(t)
    assert arena(library, data) == NBYTES
    assert arena(library, data, lib.PLAN_NO_REUSE) == 7 * NBYTES
    assert np.array_equal(results(library, data, X)[0], np.maximum(X, np.float32(-0.5)))


def test_input_twice(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    data = net.bytes(net.node("add", x, x))
    assert arena(library, data) == NBYTES
    assert np.array_equal(results(library, data, X)[0], X + X)


def test_second_operand_is_taken_over(library: lib.Library) -> None:
    """The first one is needed later, or of another shape."""
    net = Net()
    x, other = net.input(2, 3, 4), net.input(4)
    y = net.node("transpose", x, perm=(1, 0, 2))
    z = net.node("sub", other, net.node("transpose", y, perm=(1, 0, 2)))
    data = net.bytes(net.node("sub", z, other))
    b = np.arange(4, dtype=np.float32)
    assert np.array_equal(results(library, data, X, b)[0], (b - X) - b)
    assert arena(library, data) == 2 * NBYTES + 64


def test_broadcast_operand_is_not_taken_over(library: lib.Library) -> None:
    net = Net()
    a, b = net.input(4, 1), net.input(1, 4)
    data = net.bytes(net.node("add", a, b))
    column, row = X[0, 0].reshape(4, 1), X[1, 1].reshape(1, 4)
    assert np.array_equal(results(library, data, column, row)[0], column + row)
    assert arena(library, data) == 3 * 64


def test_equal_bytes_in_another_shape_are_not_taken_over(library: lib.Library) -> None:
    """[4] and [1, 4] give [1, 4]: only an operand of the result's own shape is taken over."""
    net = Net()
    a, b = net.input(4), net.const(np.ones((1, 4)))
    data = net.bytes(net.node("add", a, b))
    assert np.array_equal(results(library, data, X[0, 0])[0], X[0, :1] + 1)
    assert arena(library, data) == 2 * 64


def test_intermediate_that_is_an_output(library: lib.Library) -> None:
    net = Net()
    y = net.node("clip", net.input(2, 3, 4), lo=0.0)
    z = net.node("clip", y, hi=1.0)
    data = net.bytes(y, z)
    got = results(library, data, X)
    assert np.array_equal(got[0], np.maximum(X, 0)) and np.array_equal(got[1], np.clip(X, 0, 1))
    assert arena(library, data) == 2 * NBYTES


def test_view_keeps_its_storage_alive(library: lib.Library) -> None:
    """The base has no further use of its own, but a view of it has, behind a node that would like its place."""
    net = Net()
    y = net.node("transpose", net.input(2, 3, 4), perm=(2, 1, 0))
    late = net.node("reshape", y, shape=(24,))
    z = net.node("clip", y, lo=0.0)
    data = net.bytes(net.node("sub", net.node("reshape", z, shape=(24,)), late))
    t = X.transpose(2, 1, 0).reshape(24)
    assert np.array_equal(results(library, data, X)[0], np.maximum(t, 0) - t)


def test_operand_of_a_fused_step_is_not_overwritten(library: lib.Library) -> None:
    """The kernel writes its own result before the step reads x."""
    net = Net()
    x = net.input(2, 3, 4)
    data = net.bytes(net.node("mul", x, net.const([3.0]), tails=[tail("sub", x, other_first=True)]))
    assert np.array_equal(results(library, data, X)[0], X - X * np.float32(3))
    assert arena(library, data) == 2 * NBYTES


def test_view_of_the_operand_of_a_fused_step_is_not_overwritten(library: lib.Library) -> None:
    net = Net()
    x = net.input(24)
    data = net.bytes(net.node("mul", x, net.const([3.0]), tails=[tail("add", net.node("reshape", x, shape=(1, 24)))]))
    with pytest.raises(errors.ShapeError):  # more dimensions than the output
        plan(library, data)
    net = Net()
    x = net.input(1, 24)
    data = net.bytes(net.node("mul", x, net.const([3.0]), tails=[tail("add", net.node("reshape", x, shape=(24,)))]))
    flat = X.reshape(1, 24)
    assert np.array_equal(results(library, data, flat)[0], flat * np.float32(3) + flat)


def test_batch_normalization_takes_over_only_its_input(library: lib.Library) -> None:
    """Its scale may be of the output's size, too, but it is read more than once."""
    net = Net()
    x, scale = net.input(1, 1, 1, 8), net.input(8)
    ones, zeros = net.const(np.ones(8)), net.const(np.zeros(8))
    y = net.node("batch_normalization", x, scale, zeros, zeros, ones, epsilon=0.0)
    same = net.node(
        "batch_normalization", net.node("reshape", scale, shape=(1, 1, 1, 8)), scale, zeros, zeros, ones, epsilon=0.0
    )
    data = net.bytes(y, same)
    row = X.reshape(24)[:8]
    assert arena(library, data) == 3 * 64
    got = results(library, data, row.reshape(1, 1, 1, 8) + 1, row)
    assert np.allclose(got[0].reshape(8), (row + 1) * row) and np.allclose(got[1].reshape(8), row * row)


def test_what_nobody_needs(library: lib.Library) -> None:
    """An input that is not read, a result that is not used, a constant as an output, no node at all."""
    net = Net()
    x, unused = net.input(2, 3, 4), net.input(100)
    net.node("transpose", x, perm=(1, 0, 2), name="dead")
    constant = net.const([1.0, 2.0])
    data = net.bytes(constant, net.node("clip", x, lo=0.0))
    got = results(library, data, X, np.zeros(100))
    assert np.array_equal(got[0], [1, 2]) and np.array_equal(got[1], np.maximum(X, 0))
    assert unused == net.inputs[1]
    net = Net()
    x = net.input(2, 3, 4)
    assert np.array_equal(results(library, net.bytes(x), X)[0], X)


def test_empty_tensors(library: lib.Library) -> None:
    net = Net()
    x = net.input(0, 3)
    y = net.node("add", x, net.const(np.ones((1, 3))))
    data = net.bytes(y, net.node("concat", y, net.const(np.ones((2, 3))), axis=0))
    got = results(library, data, np.zeros((0, 3)))
    assert got[0].shape == (0, 3) and np.array_equal(got[1], np.ones((2, 3)))


def mobilenet_v2(net: Net) -> tuple[int, list[tuple[int, int, int]]]:
    """The chain of MobileNetV2 1.0 at 224: its last tensor, and (bytes, first step, last step) of every tensor in the arena."""
    lives: list[list[int]] = []
    x, side, channels = net.input(1, 224, 224, 3), 224, 3
    lives.append([224 * 224 * 3 * 4, 0, 0])

    def conv(
        source: int, n_in: int, n_out: int, kernel: int, stride: int, side: int, group: int = 1, add: int = -1
    ) -> tuple[int, int]:
        out, pad = -(-side // stride), kernel // 2
        weights = net.const(np.zeros((n_out, kernel, kernel, n_in // group)))
        step = len(net.nodes)
        t = net.node(
            "conv2d",
            source,
            weights,
            strides=(stride, stride),
            pads=(pad,) * 4,
            group=group,
            tails=[tail("add", add)] if add >= 0 else [],
        )
        lives.append([out * out * n_out * 4, step, step])
        return t, out

    x, side = conv(x, 3, 32, 3, 2, side)
    lives[0][2] = 0
    channels = 32
    for expand, width, repeats, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(repeats):
            source, source_life, inner = x, lives[-1], channels * expand
            t = x
            if expand > 1:
                source_life[2] = len(net.nodes)
                t, side = conv(t, channels, inner, 1, 1, side)
            lives[-1][2] = len(net.nodes)
            t, side = conv(t, inner, inner, 3, stride if i == 0 else 1, side, group=inner)
            lives[-1][2] = len(net.nodes)
            residual = i > 0
            if residual:
                source_life[2] = len(net.nodes)
            x, side = conv(t, inner, width, 1, 1, side, add=source if residual else -1)
            channels = width
    lives[-1][2] = len(net.nodes)
    x, side = conv(x, channels, 1280, 1, 1, side)
    lives[-1][2] += 1
    return x, [(a, b, c) for a, b, c in lives]


def test_arena_of_mobilenet_v2(library: lib.Library) -> None:
    net = Net()
    last, lives = mobilenet_v2(net)
    made = plan(library, net.bytes(last))
    steps = len(net.nodes)
    alive = max(sum(size for size, first, end in lives if first <= step <= end) for step in range(steps))
    info = library.plan_info(made)
    assert alive > 5_000_000
    assert alive <= info.arena_bytes <= 1.10 * alive
    assert info.macs == pytest.approx(300e6, rel=0.03), "its authors' figure, less the classifier"


# --- fused steps ----------------------------------------------------------------------------------------------------------


def test_operands_of_fused_steps(library: lib.Library) -> None:
    net = Net()
    x, same = net.input(2, 3, 4), net.input(2, 3, 4)
    y = net.node(
        "mul",
        x,
        net.const([2.0]),
        tails=[
            tail("add", same),
            tail("sub", net.const(np.float32(0.5)), other_first=True),
            tail("mul", net.const(np.arange(4).reshape(1, 4))),
            tail("clip", lo=-0.25),
        ],
    )
    data = net.bytes(y)
    other = X[::-1] * 3
    expected = np.maximum((np.float32(0.5) - (X * 2 + other)) * np.arange(4, dtype=np.float32), np.float32(-0.25))
    assert np.array_equal(results(library, data, X, other)[0], expected)
    (node,) = library.plan_nodes(plan(library, data))
    assert node.tail_kernels == ("add_f32_any_ref", "sub_f32_any_ref", "mul_f32_any_ref", "clip_f32_any_ref")
    assert node.macs == 5 * 24
    assert node.moved_bytes == 3 * 96 + 4 + 4 + 16


def test_moved_bytes_count_each_tensor_once(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    (node,) = library.plan_nodes(plan(library, net.bytes(net.node("mul", x, x, tails=[tail("add", x)]))))
    assert node.moved_bytes == 2 * 96


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (
            [("add", np.ones((3, 1)))],
            r"node 'n' \(mul\): fused step add: its operand \[3, 1\] is neither like the output \[2, 3, 4\]",
        ),
        ([("add", np.ones((5, 1, 1, 4)))], "fused step add: its operand"),
        ([("add", np.ones((1, 1, 1, 4)))], "fused step add: its operand"),
        ([("add", np.ones(3))], r"fused step add: .*\[3\]"),
        ([("add", np.ones((3, 4)))], "fused step add: its operand"),
        ([("add", np.ones((2, 1, 4)))], "fused step add: its operand"),
        ([("add", np.ones((8, 4)))], "fused step add: "),
    ],
)
def test_operands_that_no_fused_step_takes(library: lib.Library, steps: Any, text: str) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    y = net.node("mul", x, x, name="n", tails=[tail(op, net.const(value)) for op, value in steps])
    with pytest.raises(errors.ShapeError, match=text) as caught:
        plan(library, net.bytes(y))
    assert caught.value.node == 0


def test_fused_step_of_another_type(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    y = net.node("mul", x, x, tails=[tail("add", net.const(np.ones(4), dtype="s8"))])
    with pytest.raises(errors.ShapeError, match="fused step add: input 1 is s8, but input 0 is f32"):
        plan(library, net.bytes(y))


def test_parameters_of_fused_steps_are_checked(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    y = net.node("mul", x, x, tails=[tail("clip", lo=2.0, hi=1.0)])
    with pytest.raises(errors.ShapeError, match="fused step clip: lo 2 and hi 1 are no range"):
        plan(library, net.bytes(y))


def test_fused_step_without_a_map_function(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    y = net.node("mul", x, x, tails=[tail("sqrt")], name="n")
    with pytest.raises(
        errors.UnsupportedOperator, match=r"node 'n' needs sqrt/f32.*sqrt_f32_any_nan_neon: cannot be a fused step"
    ):
        plan(library, net.bytes(y))


def test_no_kernel_applies_fused_steps(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    y = net.node("sqrt", x, tails=[tail("clip", lo=0.0)], name="n")
    text = r"node 'n' needs sqrt/f32 with fused steps, which no kernel .*\(sqrt_f32_any_nan_neon: does not apply"
    with pytest.raises(errors.UnsupportedOperator, match=text):
        plan(library, net.bytes(y))


# --- choosing kernels -----------------------------------------------------------------------------------------------------


def added(*dims: int) -> bytes:
    net = Net()
    return net.bytes(net.node("add", net.input(2, 3, 4), net.input(*dims)))


def test_cpu_features_decide(library: lib.Library) -> None:
    fast, plain = "add_f32_any_equal_neondot", "add_f32_any_ref"
    every = ("neon", "fma", "dotprod")
    assert kernels(library, plan(library, added(2, 3, 4), target(*every))) == [fast]
    for missing in every:
        features = [f for f in every if f != missing]
        made = plan(library, added(2, 3, 4), target(*features))
        assert kernels(library, made) == [plain]
        assert [(c.kernel, c.why, c.chosen) for c in library.plan_candidates(made, 0)] == [
            (fast, f"needs cpu feature {missing}", False),
            (plain, None, True),
        ]


def test_candidates_tell_why(library: lib.Library) -> None:
    every = target("neon", "fma", "dotprod", "i8mm")
    first = library.plan_candidates(plan(library, added(4), every), 0)
    assert [c.why for c in first] == ["equal shapes only", None]
    made = plan(library, added(2, 3, 4), every)
    candidates = library.plan_candidates(made, 0)
    assert candidates == library.plan_candidates(made, 0)
    assert candidates[0].predicted_ns == 1 and candidates[0].chosen and not candidates[1].chosen
    assert candidates[1].predicted_ns > 1
    assert library.plan_nodes(made)[0].predicted_ns == 1
    reference = plan(library, added(2, 3, 4), every, flags=lib.PLAN_REF)
    assert kernels(library, reference) == ["add_f32_any_ref"]
    assert library.plan_candidates(reference, 0)[0].why == "only reference kernels are asked for"


def test_tails_exclude_a_faster_kernel(library: lib.Library) -> None:
    net = Net()
    x = net.input(2, 3, 4)
    made = plan(library, net.bytes(net.node("add", x, x, tails=[tail("clip")])), target("neon", "fma", "dotprod"))
    assert [c.why for c in library.plan_candidates(made, 0)] == ["does not apply fused steps", None]


def test_blocked_weights_exclude_a_faster_kernel(library: lib.Library) -> None:
    net = Net()
    data = net.bytes(net.node("conv2d", net.input(1, 4, 4, 3), net.const(np.ones((8, 1, 1, 3)), block=8)))
    made = plan(library, data, target("neon"))
    assert kernels(library, made) == ["conv2d_f32_nhwc_ref"]
    assert library.plan_candidates(made, 0)[0].why == "does not read blocked weights"
    assert np.array_equal(results(library, data, np.ones((1, 4, 4, 3)))[0], np.full((1, 4, 4, 8), 3))


def test_nonsense_from_a_kernel_is_survived(library: lib.Library) -> None:
    net = Net()
    made = plan(library, net.bytes(net.node("sqrt", net.input(3))))
    assert library.plan_nodes(made)[0].n_tasks == 1 and library.plan_info(made).predicted_ns > 1e300


def test_threads_divide_predicted_time(library: lib.Library) -> None:
    net = Net()
    y = net.node("softmax", net.input(3, 5))  # three tasks
    data = net.bytes(y)
    alone, two, many = (library.plan_info(plan(library, data, target(n_threads=n))).predicted_ns for n in (1, 2, 16))
    assert two == pytest.approx(alone * 2 / 3) and many == pytest.approx(alone / 3)


def test_targets_are_made_sound(library: lib.Library) -> None:
    for gflops, bandwidth in ((0.0, 0.0), (-1.0, float("nan")), (float("inf"), -3.0)):
        made = plan(library, added(4), target(n_threads=0, gflops=gflops, gbytes_per_s=bandwidth))
        assert 0 < library.plan_info(made).predicted_ns < 1e6


# --- packed weights -------------------------------------------------------------------------------------------------------


def convolution() -> bytes:
    rng = np.random.default_rng(3)
    net = Net()
    bias, shared = net.const(rng.standard_normal(5)), net.const(rng.standard_normal((5, 3, 3, 5)))
    y = net.node("conv2d", net.input(1, 6, 6, 4), net.const(rng.standard_normal((5, 3, 3, 4))), bias, pads=(1, 1, 1, 1))
    y = net.node("conv2d", y, shared, bias, pads=(1, 1, 1, 1), tails=[tail("add", y)])
    return net.bytes(net.node("conv2d", y, shared, pads=(1, 1, 1, 1)))


def test_packed_weights(library: lib.Library) -> None:
    data, image = convolution(), np.random.default_rng(4).standard_normal((1, 6, 6, 4))
    packing, plain = plan(library, data, target("neon")), plan(library, data, target("neon"), flags=lib.PLAN_REF)
    assert kernels(library, packing) == ["conv2d_f32_nhwc_pack_neon"] * 3
    packed, stored = library.plan_info(packing), library.plan_info(plain)
    sizes = [4 * 5 * 9 * 4, 4 * 5 * 9 * 5]
    assert packed.packed_bytes == sum(-(-n // 64) * 64 for n in (sizes[0], sizes[1], sizes[1])) and packed.const_bytes == 0
    assert packed.scratch_bytes == -(-sizes[1] // 64) * 64
    assert stored.packed_bytes == 0 and stored.const_bytes == sum(sizes) + 20, "each constant once"
    assert P.run(library, packing, [image])[0].tobytes() == P.run(library, plain, [image])[0].tobytes()
    results(library, data, image)


def test_plans_that_are_only_looked_at(library: lib.Library) -> None:
    library.memory_usage(reset_peak=True)
    looked_at = plan(library, convolution(), target("neon"), flags=lib.PLAN_NO_PACK)
    with pytest.raises(errors.ArgumentError, match="OPSNN_PLAN_NO_PACK: it can be looked at, not run"):
        library.exec_create(looked_at)
    assert library.plan_info(looked_at) == library.plan_info(plan(library, convolution(), target("neon")))


# --- what is refused ------------------------------------------------------------------------------------------------------


def test_operators_that_the_library_lacks(library: lib.Library) -> None:
    """The third node's name and all that is missing, fused steps included, in the order of the schema behind the node's own."""
    net = Net()
    x = net.node("clip", net.node("clip", net.input(4)))
    y = net.node("erf", net.node("gelu", x, name="third"), tails=[tail("pow", net.const([2.0]))])
    with pytest.raises(errors.UnsupportedOperator) as caught:
        plan(library, net.bytes(net.node("add", y, y)))
    text = "node 'third' needs gelu, which this library was built without: configure.py --ops=+gelu,pow,erf"
    assert str(caught.value) == text and caught.value.node == 2


def test_types_that_the_library_lacks(library: lib.Library) -> None:
    net = Net()
    data = net.bytes(net.node("add", net.input(4, dtype="s8"), net.const(np.ones(4), dtype="s8"), dtype="s8", name="n"))
    text = r"node 'n' needs add/s8, which this library was built without: configure.py --ops=\+add"
    with pytest.raises(errors.UnsupportedOperator, match=text):
        plan(library, data)


def test_operators_without_a_kernel(library: lib.Library) -> None:
    net = Net()
    with pytest.raises(errors.UnsupportedOperator, match=r"node 'n' needs log/f32, which .*configure.py --ops=\+log"):
        plan(library, net.bytes(net.node("log", net.input(4), name="n")))


def test_cpus_that_lack_a_feature(library: lib.Library) -> None:
    net = Net()
    data = net.bytes(net.node("tanh", net.input(4), name="n"))
    assert kernels(library, plan(library, data, target("neon", "fma", "fp16"))) == ["tanh_f32_any_neonfp16"]
    with pytest.raises(
        errors.CpuError, match=r"node 'n' needs tanh/f32, and 'testboard' lacks .*\(tanh_f32_any_neonfp16 needs fma, fp16\)"
    ):
        plan(library, data, target("neon", "dotprod"))
    with pytest.raises(errors.UnsupportedOperator, match="only reference kernels are asked for"):
        plan(library, data, target("neon", "fma", "fp16"), flags=lib.PLAN_REF)


def test_plans_for_other_machines_do_not_run_here(library: lib.Library) -> None:
    net = Net()
    data = net.bytes(net.node("tanh", net.node("clip", net.input(4)), name="n"))
    if "fp16" in library.target_detect().features:
        pytest.skip("this CPU has float16 arithmetic")
    foreign = plan(library, data, target("neon", "fma", "fp16"))
    with pytest.raises(
        errors.CpuError, match="the plan was made for 'testboard': node 'n' needs fp16, which this CPU lacks"
    ) as caught:
        library.exec_create(foreign)
    assert caught.value.node == 1


def test_shapes_that_do_not_fit(library: lib.Library) -> None:
    net = Net()
    y = net.node("clip", net.input(2, 3))
    with pytest.raises(errors.ShapeError, match=r"node 'n' \(add\): shapes \[2, 3\] and \[4\] do not broadcast") as caught:
        plan(library, net.bytes(net.node("add", y, net.input(4), name="n")))
    assert caught.value.node == 1


def test_types_that_the_model_claims_wrongly(library: lib.Library) -> None:
    net = Net()
    with pytest.raises(errors.ShapeError, match=r"node 'n' \(clip\): output 0 is f32, but the model says s8"):
        plan(library, net.bytes(net.node("clip", net.input(4), dtype="s8", name="n")))


def test_open_dimensions(library: lib.Library) -> None:
    net = Net()
    x = net.input(-1, 3, -1, name="pixels")
    data = net.bytes(net.node("flatten", net.node("clip", x), axis=2))
    text = r"input 'pixels' is \[\?, 3, \?\] and dimension 0 is open: give its shape when the plan is made"
    with pytest.raises(errors.ArgumentError, match=text):
        plan(library, data)
    with pytest.raises(errors.ArgumentError, match=r"\[2, 3, \?\] and dimension 2 is open"):
        plan(library, data, shapes=[(2, 3, -1)])
    with pytest.raises(
        errors.ShapeError, match=r"input 'pixels' is \[\?, 3, \?\], but \[2, 4, 5\] was given: dimension 1 is fixed"
    ):
        plan(library, data, shapes=[(2, 4, 5)])
    with pytest.raises(errors.ShapeError, match=r"input 'pixels' has 3 dimensions, \[\?, 3, \?\], but a shape of 2 was given"):
        plan(library, data, shapes=[(2, 3)])
    for n in (224, 256, 192):
        made = plan(library, data, shapes=[(2, 3, n)])
        assert library.plan_inputs(made)[0].dims == (2, 3, n)
        assert library.plan_outputs(made)[0] == lib.TensorInfo("t2", "f32", (6, n), 6 * n * 4)
        pixels = np.ones((2, 3, n), np.float32)
        assert np.array_equal(P.run(library, made, [pixels])[0], pixels.reshape(6, n))


def test_sizes_beyond_memory(library: lib.Library) -> None:
    def net_of(*dims: int) -> bytes:
        net = Net()
        x = net.input(*[-1] * len(dims), name="x")
        return net.bytes(net.node("concat", x, x, axis=0, name="n"))

    huge = (2**31 - 1,) * 3
    for dims in (huge, (*huge, 0), (0, *huge)):
        with pytest.raises(errors.LimitError, match=r"input 'x', \[.*\], is larger than memory can be"):
            plan(library, net_of(*dims), shapes=[dims])
    board = target(arch="arm")
    with pytest.raises(errors.LimitError, match=r"input 'x', \[536870912\], is larger than memory can be"):
        plan(library, net_of(1), board, [(2**29,)])
    with pytest.raises(
        errors.LimitError, match=r"node 'n' \(concat\): output 0, f32 \[536870912\], is larger than memory can be"
    ):
        plan(library, net_of(1), board, [(2**28,)])
    with pytest.raises(errors.LimitError, match="the tensors need 2400000000 bytes, more than 'testboard' can address"):
        plan(library, net_of(1), board, [(200_000_000,)])
    assert library.plan_info(plan(library, net_of(1), target(), [(200_000_000,)])).arena_bytes == 2_400_000_000


def test_calls_that_make_no_sense(library: lib.Library) -> None:
    c, ffi = library._c, library.ffi
    model = library.model_open_memory(added(4))
    out, error = ffi.new("opsnn_plan **"), ffi.new("opsnn_error *")
    null = ffi.NULL
    assert c.opsnn_plan_create(null, null, null, 0, out, error) == 1 and b"must not be NULL" in ffi.string(error.text)
    assert c.opsnn_plan_create(model.c, null, null, 0, null, error) == 1
    assert c.opsnn_plan_create(model.c, null, null, 64, out, error) == 1 and b"unknown flags 0x40" in ffi.string(error.text)
    assert c.opsnn_plan_create(model.c, null, null, 64, out, null) == 1, "err may be NULL"
    made = library.plan_create(model)
    info, node = ffi.new("opsnn_tensor_info *"), ffi.new("opsnn_node_info *")
    assert (
        c.opsnn_plan_input(made.c, 2, info) == c.opsnn_plan_output(made.c, 1, info) == c.opsnn_plan_node(made.c, 1, node) == 1
    )
    assert c.opsnn_plan_candidates(made.c, 1, null, 0) == 0 and c.opsnn_plan_candidates(made.c, 0, null, 0) == 2
    c.opsnn_plan_free(null)
    c.opsnn_exec_free(null)


def test_parameters_that_an_older_model_lacks_are_zero(library: lib.Library) -> None:
    net = Net()
    data = bytearray(net.bytes(net.node("clip", net.input(2, 3, 4), lo=-1.0, hi=1.0)))
    sections = [F.SECTION.unpack_from(data, F.HEADER.size + i * F.SECTION.size) for i in range(len(F.SECTIONS))]
    nodes = next(offset for kind, _, offset, _ in sections if kind == F.SECTIONS.index("nodes") + 1)
    assert struct.unpack_from("<I", data, nodes + 28) == (8,)
    struct.pack_into("<I", data, nodes + 28, 4)  # lo alone
    assert np.array_equal(results(library, bytes(data), X)[0], np.clip(X, -1, 0))


# --- one node alone -------------------------------------------------------------------------------------------------------


def test_infer(library: lib.Library) -> None:
    assert library.infer("add", "any", {}, [("f32", (2, 1)), ("f32", (3,))]) == [("f32", (2, 3))]
    weights = ("f32", (8, 3, 3, 4))
    window = {"strides": (2, 2), "pads": (1, 1, 1, 1)}
    assert library.infer("conv2d", "nhwc", window, [("f32", (1, 7, 7, 4)), weights, None]) == [("f32", (1, 4, 4, 8))]
    assert library.infer("reshape", "any", {"shape": (-1, 2)}, [("s8", (4, 3))]) == [("s8", (6, 2))]
    with pytest.raises(errors.ShapeError, match=r"^add: shapes \[2\] and \[3\] do not broadcast"):
        library.infer("add", "any", {}, [("f32", (2,)), ("f32", (3,))])
    with pytest.raises(errors.UnsupportedOperator, match=r"gelu .*configure.py --ops=\+gelu"):
        library.infer("gelu", "any", {}, [("f32", (2,))])
    with pytest.raises(errors.LimitError, match=r"concat: output 0"):
        library.infer("concat", "any", {"axis": 0}, [("f64", (2**29, 2**30))] * 3)


@pytest.mark.parametrize(
    ("op", "layout", "inputs", "text"),
    [
        ("add", "nhwc", [(2,), (2,)], r"add has the layout 2; it must be 0 \(any\)"),
        ("conv2d", "any", [(1, 7, 7, 4), (8, 3, 3, 4)], r"conv2d has the layout 0; it must be 1 \(nchw\) or 2 \(nhwc\)"),
        ("add", "any", [(2,)], "add takes 2 to 2 inputs, not 1"),
        ("clip", "any", [], "clip takes 1 to 1 inputs, not 0"),
        ("add", "any", [(2,), None], "add: input 1 must be given"),
        ("add", "any", [None, (2,)], "add: input 0 must be given"),
        ("add", "any", [(2,), (3, -1)], r"add: input 1 is \[3, \?\]; all dimensions must be known"),
    ],
)
def test_infer_calls_that_make_no_sense(library: lib.Library, op: str, layout: str, inputs: Any, text: str) -> None:
    with pytest.raises(errors.ArgumentError, match=text):
        library.infer(op, layout, {}, [None if dims is None else ("f32", dims) for dims in inputs])


def test_infer_raw_arguments(library: lib.Library) -> None:
    c, ffi = library._c, library.ffi
    inputs, outputs, error = ffi.new("opsnn_tensor_info[]", 40), ffi.new("opsnn_tensor_info[]", 1), ffi.new("opsnn_error *")
    params = ffi.new("float[]", [0, 1, 2])
    for i in range(40):
        inputs[i].dtype = 1

    def infer(op: int, n_params: int, n_inputs: int, n_outputs: int) -> str:
        if c.opsnn_infer(op, 0, params, n_params, inputs, n_inputs, outputs, n_outputs, error) == 0:
            return ""
        assert error.code == 1
        return str(ffi.string(error.text).decode())

    assert infer(64, 8, 1, 1) == "" and outputs[0].rank == 0 and outputs[0].bytes == 4 and ffi.string(outputs[0].name) == b""
    assert infer(64, 4, 1, 1) == "", "what is missing is zero"
    assert infer(9999, 0, 1, 1) == "there is no operator 9999"
    assert infer(64, 12, 1, 1) == "clip: its parameters are 8 bytes, not 12"
    assert infer(64, 8, 1, 0) == "clip has 1 outputs, not 0"
    assert infer(25, 0, 33, 1) == "concat takes 1 to 32 inputs, not 33"
    inputs[0].rank = 9
    assert infer(64, 8, 1, 1) == "clip: input 0 has rank 9; at most 8"
    inputs[0].rank, inputs[0].dtype = 0, 99
    assert infer(64, 8, 1, 1) == "clip: input 0 has the unknown type 99"
    assert c.opsnn_infer(64, 0, ffi.NULL, 8, inputs, 1, outputs, 1, error) == 1


def test_table(library: lib.Library) -> None:
    assert library.kernels()[:2] == ["conv2d_f32_nhwc_pack_neon", "conv2d_f32_nhwc_ref"], "by operator, better ISAs first"
    assert sorted(library.kernels()) == library.build_info()["kernels"]
