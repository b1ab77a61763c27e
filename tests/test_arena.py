"""The arena's layout: tensors that live together never overlap, and little memory is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cffi
import pytest
from planner import library as P

ALIGN = 64


class Interval(NamedTuple):
    bytes: int
    first: int
    last: int


Layout = Callable[[Sequence[Interval]], tuple[list[int], int]]


@pytest.fixture(scope="module")
def raw() -> tuple[Any, Any]:
    """cffi's view of the internal function, which the tests' library does not hide."""
    ffi = cffi.FFI()
    ffi.cdef("""
        typedef struct { int32_t code, node; char text[504]; } opsnn_error;
        typedef struct { size_t bytes; uint32_t first, last; size_t offset; } opsnn_interval;
        int opsnn_arena_layout(opsnn_interval *intervals, uint32_t n, size_t *arena_bytes, opsnn_error *err);
    """)
    return ffi, ffi.dlopen(str(P.build()))


@pytest.fixture(scope="module")
def layout(raw: tuple[Any, Any]) -> Layout:
    def run(intervals: Sequence[Interval]) -> tuple[list[int], int]:
        ffi, c = raw
        given = ffi.new("opsnn_interval[]", [(i.bytes, i.first, i.last, 12345) for i in intervals] or 1)
        total, error = ffi.new("size_t *"), ffi.new("opsnn_error *")
        status = c.opsnn_arena_layout(given, len(intervals), total, error)
        assert status == 0, ffi.string(error.text)
        return [given[k].offset for k in range(len(intervals))], total[0]

    return run


def lower_bound(intervals: Sequence[Interval]) -> int:
    """Bytes alive at the worst step: no layout can do with less."""
    steps = {i.first for i in intervals}
    return max((sum(i.bytes for i in intervals if i.first <= s <= i.last) for s in steps), default=0)


def check(layout: Layout, intervals: Sequence[Interval]) -> int:
    offsets, total = layout(intervals)
    placed = [(i, o) for i, o in zip(intervals, offsets) if i.bytes]
    assert all(o == 0 for i, o in zip(intervals, offsets) if not i.bytes)
    assert all(o % ALIGN == 0 and o + i.bytes <= total for i, o in placed)
    for k, (a, x) in enumerate(placed):
        for b, y in placed[:k]:
            if a.first <= b.last and b.first <= a.last:
                assert x + a.bytes <= y or y + b.bytes <= x, (a, x, b, y)
    assert total % ALIGN == 0 and total >= lower_bound(intervals)
    return total


def test_nothing(layout: Layout) -> None:
    assert layout([]) == ([], 0)
    assert layout([Interval(0, 0, 9), Interval(0, 3, 3)]) == ([0, 0], 0)


def test_bounds_of_life_are_inclusive(layout: Layout) -> None:
    assert check(layout, [Interval(64, 0, 1), Interval(64, 2, 3)]) == 64
    assert check(layout, [Interval(64, 0, 2), Interval(64, 2, 3)]) == 128
    assert check(layout, [Interval(1, 0, 0), Interval(1, 0, 0)]) == 128


def test_smallest_sufficient_gap_is_taken(layout: Layout) -> None:
    # Four blocks in a row, of which the second (large) and the fourth, between two others, die: the newcomer fits both gaps.
    blocks = [Interval(6400, 0, 9), Interval(3200, 0, 4), Interval(3100, 0, 9), Interval(1280, 0, 4), Interval(1216, 0, 9)]
    offsets, _ = layout([*blocks, Interval(1200, 5, 9)])
    assert offsets[5] == offsets[3]
    # Here the larger gap, of two that die, is the second.
    blocks = [Interval(6400, 0, 9), Interval(3200, 0, 4), Interval(3100, 0, 9), Interval(3000, 0, 4), Interval(2900, 0, 4)]
    offsets, _ = layout([*blocks, Interval(2800, 0, 9), Interval(2700, 5, 9)])
    assert offsets[6] == offsets[1] < offsets[2] < offsets[3] < offsets[4] < offsets[5]


@pytest.mark.parametrize("seed", range(60))
def test_random(layout: Layout, seed: int) -> None:
    r = random.Random(seed)
    intervals = []
    for _ in range(r.choice([1, 2, 5, 30, 120])):
        first = r.randrange(60)
        size = r.choice([0, 1, 63, 64, 65, r.randrange(5000), 64 * r.randrange(1, 200)])
        intervals.append(Interval(size, first, first + r.choice([0, 0, 1, 1, 2, r.randrange(60)])))
    check(layout, intervals)
    assert layout(intervals) == layout(list(intervals)), "the same every time"


@pytest.mark.parametrize("seed", range(20))
def test_chains_waste_little(layout: Layout, seed: int) -> None:
    """As in MobileNet-like networks: each tensor lives until the next one is made, some until a residual addition behind."""
    r = random.Random(seed)
    intervals, size = [], 64 * 1000.0
    for step in range(60):
        grow = 6 if step % 3 == 0 else 1 if step % 3 == 1 else 1 / 6
        size = max(64.0, size * grow * r.choice([1, 1, 0.5]))
        intervals.append(Interval(int(size), step, step + (4 if step % 3 == 2 and r.random() < 0.6 else 1)))
    assert check(layout, intervals) <= 1.10 * lower_bound(intervals)


def test_larger_than_memory(raw: tuple[Any, Any]) -> None:
    ffi, c = raw
    size_max = 2 ** (8 * ffi.sizeof("size_t")) - 1
    half = size_max // 4 + 1
    for sizes in ([size_max], [size_max // 2], [size_max // 2 - 62], [half, half], [half] * 5, [64, size_max - 63]):
        given = ffi.new("opsnn_interval[]", [(s, 0, 1, 0) for s in sizes])
        total, error = ffi.new("size_t *", 7), ffi.new("opsnn_error *")
        assert c.opsnn_arena_layout(given, len(sizes), total, error) == 9, sizes  # OPSNN_E_LIMIT
        assert total[0] == 0 and b"more memory than this machine can address" in ffi.string(error.text)
    given = ffi.new("opsnn_interval[]", [(half, 0, 0, 0), (half, 1, 1, 0), (half - 128, 1, 1, 0)])
    assert c.opsnn_arena_layout(given, 3, total, error) == 0 and total[0] == 2 * half - 128


def test_more_than_can_be_planned(raw: tuple[Any, Any]) -> None:
    ffi, c = raw
    given, total, error = ffi.new("opsnn_interval[]", 16385), ffi.new("size_t *"), ffi.new("opsnn_error *")
    assert c.opsnn_arena_layout(given, 16385, total, error) == 9
    assert b"16385 tensors are more than the memory planner takes" in ffi.string(error.text)
    for i in range(16384):
        given[i].bytes, given[i].first, given[i].last = 1 + i % 640, i, i + 1
    assert c.opsnn_arena_layout(given, 16384, total, error) == 0 and total[0] < 2000
