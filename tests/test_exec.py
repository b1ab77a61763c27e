"""Running plans: whose memory, how many threads, in which order objects go, and what happens when memory runs out."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ops_nn import errors, lib
from planner import library as P
from planner.library import Net, tail


@pytest.fixture(scope="module")
def library() -> lib.Library:
    return lib.library(P.build())


@pytest.fixture(autouse=True)
def nothing_is_leaked(library: lib.Library) -> Iterator[None]:
    yield
    if library.memory_usage()[0]:
        gc.collect()  # caught exceptions hold frames that hold objects
    assert library.memory_usage()[0] == 0


def network() -> bytes:
    """Something of everything: packed weights, scratch memory, views, fused steps, in-place nodes."""
    rng = np.random.default_rng(7)
    net = Net()
    x = net.input(2, 9, 9, 4)
    y = net.node(
        "conv2d",
        x,
        net.const(rng.standard_normal((4, 3, 3, 4))),
        pads=(1, 1, 1, 1),
        tails=[tail("add", x), tail("clip", lo=0.0)],
    )
    z = net.node("add", net.node("sigmoid", y), y)
    flat = net.node("reshape", z, shape=(-1, 36))
    scores = net.node("softmax", net.node("matmul", flat, net.const(rng.standard_normal((36, 10)))))
    return net.bytes(scores, z)


FEED = np.random.default_rng(8).standard_normal((2, 9, 9, 4)).astype(np.float32)


def bits(outputs: list[P.Array]) -> list[bytes]:
    return [o.tobytes() for o in outputs]


def test_threads_do_not_change_a_bit(library: lib.Library) -> None:
    plan = library.plan_create(library.model_open_memory(network()))
    kernels = {node.kernel for node in library.plan_nodes(plan)}
    assert {"conv2d_f32_nhwc_pack_neon", "softmax_f32_any_scratch_neon"} <= kernels, "scratch memory is tested, too"
    assert library.plan_info(plan).n_tasks_max > 4
    alone = bits(P.run(library, plan, [FEED]))
    for threads in (2, 3, 4):
        for _ in range(5):
            assert bits(P.run(library, plan, [FEED], threads)) == alone


def random_net(r: random.Random) -> tuple[bytes, list[P.Array]]:
    """A graph of 24-element tensors of two shapes that share memory in every way that there is."""
    net = Net()
    shapes = ((4, 6), (2, 2, 6))
    values = [(net.input(*shapes[i % 2]), i % 2) for i in range(r.randint(1, 3))]
    feeds = [
        np.random.default_rng(r.randrange(1000)).standard_normal(shapes[i % 2]).astype(np.float32) for i in range(len(values))
    ]
    if r.random() < 0.5:
        values.append((net.const(np.linspace(-1, 1, 24).reshape(shapes[0])), 0))
    channel, scalar = net.const(np.linspace(-2, 2, 6)), net.const(0.75)

    def like(shape: int) -> int:
        """A tensor of that shape, by a view where there is none."""
        found = [v for v, s in values if s == shape]
        if found and r.random() < 0.8:
            return r.choice(found[-4:])
        return net.node("reshape", r.choice(values)[0], shape=shapes[shape])

    for _ in range(r.randint(1, 14)):
        shape = r.randrange(2)
        kind = r.randrange(6)
        tails = []
        for _ in range(r.choice([0, 0, 1, 2])):
            other = r.choice([like(shape), like(shape), channel, scalar])
            tails.append(
                tail(r.choice(["add", "sub", "mul"]), other, r.random() < 0.5) if r.random() < 0.8 else tail("sigmoid")
            )
        if kind == 0:
            new = net.node("reshape", like(shape), shape=shapes[1 - shape])
            shape = 1 - shape
        elif kind == 1:
            new = net.node(r.choice(["sigmoid", "softmax"]), like(shape), tails=tails)
        elif kind == 2:
            pair = [like(shape), r.choice([channel, scalar])]
            r.shuffle(pair)
            new = net.node(r.choice(["add", "sub", "mul"]), *pair, tails=tails)
        elif kind == 3:
            perm = (0, 1) if shape == 0 else (1, 0, 2)
            new = net.node("transpose", like(shape), perm=perm)
        else:
            new = net.node(r.choice(["add", "sub", "mul"]), like(shape), like(shape), lo=-3.0, hi=3.0, tails=tails)
        values.append((new, shape))
    outputs = [v for v, _ in r.sample(values, r.randint(1, min(3, len(values))))] + [values[-1][0]]
    return net.bytes(*outputs), feeds


@pytest.mark.parametrize("seed", range(0, 400, 50))
def test_reuse_of_memory_changes_nothing(library: lib.Library, seed: int) -> None:
    saved = 0
    for s in range(seed, seed + 50):
        data, feeds = random_net(random.Random(s))
        model = library.model_open_memory(data)
        tight, roomy = library.plan_create(model), library.plan_create(model, flags=lib.PLAN_NO_REUSE)
        expected = bits(P.run(library, roomy, feeds))
        executor = library.exec_create(tight)
        assert bits(P.run_again(library, tight, executor, feeds)) == expected, s
        assert bits(P.run_again(library, tight, executor, feeds)) == expected, f"{s}: the arena's old contents matter"
        assert bits(P.run(library, tight, feeds, threads=3)) == expected, s
        saved += library.plan_info(roomy).arena_bytes - library.plan_info(tight).arena_bytes
        assert saved >= 0
    assert saved > 10_000


# --- the caller's arena ---------------------------------------------------------------------------------------------------


def aligned(library: lib.Library, n: int) -> tuple[Any, int]:
    """A buffer, and a multiple of 64 within it that has n bytes behind it and 64 before."""
    buffer = library.ffi.new("char[]", n + 256)
    start = int(library.ffi.cast("uintptr_t", buffer))
    return buffer, -(-start // 64) * 64 - start + 64


def exec_in(library: lib.Library, plan: lib.Handle, place: Any, n: int) -> lib.Handle:
    return library._create("exec_create", "exec", plan.c, library.ffi.NULL, place, n, lent=plan.lent)


def test_arena_of_the_caller(library: lib.Library) -> None:
    plan = library.plan_create(library.model_open_memory(network()))
    n = library.plan_info(plan).arena_bytes
    buffer, at = aligned(library, n)
    library.ffi.buffer(buffer)[:] = b"\xff" * (n + 256)  # NaN, wherever something is read that was not written
    before = library.memory_usage()[0]
    executor = exec_in(library, plan, buffer + at, n)
    assert library.memory_usage()[0] - before < n, "there is no second arena"
    assert bits(P.run_again(library, plan, executor, [FEED])) == bits(P.run(library, plan, [FEED]))
    content = bytes(library.ffi.buffer(buffer))
    assert set(content[:at]) == {255} and set(content[at + n :]) == {255}, "nothing outside is written"


def test_arenas_that_do_not_fit(library: lib.Library) -> None:
    plan = library.plan_create(library.model_open_memory(network()))
    n = library.plan_info(plan).arena_bytes
    buffer, at = aligned(library, n)
    for shift, size in ((0, n - 1), (32, n), (1, n + 1), (0, 0)):
        with pytest.raises(
            errors.ArgumentError, match=f"the arena of {size} bytes at 0x.* must have at least {n} bytes .* multiple of 64"
        ):
            exec_in(library, plan, buffer + at + shift, size)


# --- times and other questions --------------------------------------------------------------------------------------------


def test_times(library: lib.Library) -> None:
    plan = library.plan_create(library.model_open_memory(network()))
    executor = library.exec_create(plan)
    n = library.plan_info(plan).n_nodes
    times = library.exec_times(executor, n)
    P.run_again(library, plan, executor, [FEED])
    assert times[0] > 0 and all(0 <= times[i] < 1e9 for i in range(n))
    for i in range(n):
        times[i] = -1
    library._c.opsnn_exec_set_times(executor.c, library.ffi.NULL)
    library.exec_run(executor)
    assert all(times[i] == -1 for i in range(n))


def test_calls_that_make_no_sense(library: lib.Library) -> None:
    c, ffi = library._c, library.ffi
    plan = library.plan_create(library.model_open_memory(network()))
    executor = library.exec_create(plan)
    out, error, null = ffi.new("opsnn_exec **"), ffi.new("opsnn_error *"), ffi.NULL
    assert c.opsnn_exec_create(null, null, null, 0, out, error) == 1
    assert c.opsnn_exec_create(plan.c, null, null, 0, null, error) == 1
    assert c.opsnn_exec_run(null, error) == 1 and b"must not be NULL" in ffi.string(error.text)
    assert c.opsnn_exec_input(executor.c, 1) == null and c.opsnn_exec_output(executor.c, 2) == null
    assert c.opsnn_exec_input(null, 0) == null and c.opsnn_exec_output(null, 0) == null
    c.opsnn_exec_set_times(null, null)


# --- objects go in any order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(["model", "plan", "pool", "exec"])))
def test_freed_in_any_order(library: lib.Library, order: tuple[str, ...]) -> None:
    c, ffi = library._c, library.ffi
    data = network()
    view = ffi.from_buffer(data)
    made = {kind: ffi.new(f"opsnn_{kind} **") for kind in order}
    error = ffi.new("opsnn_error *")
    assert c.opsnn_model_open_memory(view, len(data), made["model"], error) == 0
    assert c.opsnn_plan_create(made["model"][0], ffi.NULL, ffi.NULL, 0, made["plan"], error) == 0
    assert c.opsnn_pool_create(2, made["pool"], error) == 0
    assert c.opsnn_exec_create(made["plan"][0], made["pool"][0], ffi.NULL, 0, made["exec"], error) == 0
    everything = library.memory_usage()[0]
    for kind in order:
        if "exec" not in order[: order.index(kind)]:
            ffi.memmove(c.opsnn_exec_input(made["exec"][0], 0), FEED.tobytes(), FEED.nbytes)
            assert c.opsnn_exec_run(made["exec"][0], error) == 0
            assert library.memory_usage()[0] == everything, "the executor keeps all that it needs"
        getattr(c, f"opsnn_{kind}_free")(made[kind][0])
    assert library.memory_usage()[0] == 0


# --- memory runs out ------------------------------------------------------------------------------------------------------


class Allocator:
    """malloc that fails at the n-th call and counts what is given back."""

    def __init__(self, library: lib.Library) -> None:
        self.library, self.calls, self.fail_at = library, 0, 0
        self.blocks: dict[Any, Any] = {}
        ffi = library.ffi
        self.alloc = ffi.callback("void *(size_t, void *)", self._alloc)
        self.release = ffi.callback("void(void *, void *)", self._release)

    def _alloc(self, n: int, _: Any) -> Any:
        self.calls += 1
        if self.calls == self.fail_at:
            return self.library.ffi.NULL
        block = self.library.ffi.new("char[]", n)
        self.blocks[self.library.ffi.cast("void *", block)] = block
        return block

    def _release(self, p: Any, _: Any) -> None:
        del self.blocks[p]

    def __enter__(self) -> Allocator:
        self.library._c.opsnn_set_allocator(self.alloc, self.release, self.library.ffi.NULL)
        return self

    def __exit__(self, *_: object) -> None:
        self.library._c.opsnn_set_allocator(self.library.ffi.NULL, self.library.ffi.NULL, self.library.ffi.NULL)

    def start(self, fail_at: int) -> None:
        self.calls, self.fail_at = 0, fail_at


def test_every_allocation_may_fail(library: lib.Library) -> None:
    c, ffi = library._c, library.ffi
    error, plan, executor = ffi.new("opsnn_error *"), ffi.new("opsnn_plan **"), ffi.new("opsnn_exec **")
    model = library.model_open_memory(network())
    pool = library.pool_create(2)
    with Allocator(library) as allocator:
        for n in itertools.count(1):
            allocator.start(n)
            failed = c.opsnn_plan_create(model.c, ffi.NULL, ffi.NULL, 0, plan, error)
            if not failed:
                break
            assert (failed, error.code, error.node) == (2, 2, -1) and ffi.string(error.text).startswith(b"no memory "), n
            assert plan[0] == ffi.NULL and not allocator.blocks, n
        assert allocator.calls == n - 1 and n > 8
        kept = len(allocator.blocks)
        for n in itertools.count(1):
            allocator.start(n)
            failed = c.opsnn_exec_create(plan[0], pool.c, ffi.NULL, 0, executor, error)
            if not failed:
                break
            assert (failed, error.code) == (2, 2) and ffi.string(error.text).startswith(b"no memory "), n
            assert executor[0] == ffi.NULL and len(allocator.blocks) == kept, n
        assert n > 4
        allocator.start(1)  # the next would fail: but a run needs none
        assert c.opsnn_exec_run(executor[0], error) == 0 and allocator.calls == 0
        c.opsnn_exec_free(executor[0])
        c.opsnn_plan_free(plan[0])
        assert not allocator.blocks
