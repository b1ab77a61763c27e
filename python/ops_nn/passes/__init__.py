"""Rewrites of a graph, one per file, and the order in which they are applied.

A pass is a function (graph, tools) -> number of changes. After each pass that changed something shapes are inferred anew and
the graph is verified, so that a fault is found where it is made. docs/passes.md tells what each is for.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Optional

from .. import shapes
from ..errors import ArgumentError, ShapeError
from ..ir import Graph, GraphError, verify
from .activations import activations
from .batch_norm import batch_norm
from .blocking import blocking
from .clamps import clamps
from .common_subexpressions import common_subexpressions
from .constant_folding import constant_folding
from .dead_code import dead_code
from .layout import free_transposes, layout, transposes
from .linear import linear
from .matrices import matrices
from .no_ops import no_ops
from .padding import padding
from .tails import tails
from .tools import Evaluate, Tools
from .views import sink_views, views

__all__ = ["PASSES", "Evaluate", "Pass", "Tools", "optimize"]

Pass = Callable[[Graph, Tools], int]

CLEAN: tuple[Pass, ...] = (no_ops, views, sink_views, constant_folding, common_subexpressions, dead_code)

# Groups, each repeated until it changes nothing.
PASSES: tuple[tuple[Pass, ...], ...] = (
    (*CLEAN, batch_norm, activations, padding, linear, matrices),
    (layout,),
    (transposes, *CLEAN),
    (free_transposes, transposes, *CLEAN, linear, matrices),
    (clamps, tails, dead_code),
    (blocking,),
)
_ROUNDS = 1000  # far beyond what any graph needs: passes that undo each other are found, not waited for


def optimize(graph: Graph, tools: Tools, io_layout: str = "nchw", stop_after: Optional[str] = None) -> list[tuple[str, int]]:
    """Rewrites a graph into what the library runs best. Returns each pass, in order, and how much it changed.

    io_layout   'nchw': inputs and outputs stay as they are; 'nhwc': those of four dimensions become nhwc
    stop_after  the name of a pass: stop when it has run for the first time

    Raises ShapeError, naming the node, if the graph's shapes do not fit each other; GraphError if a pass is faulty.
    """
    names = [p.__name__ for group in PASSES for p in group]
    if io_layout not in ("nchw", "nhwc"):
        raise ArgumentError(f"io_layout '{io_layout}' is neither nchw nor nhwc")
    if stop_after is not None and stop_after not in names:
        raise ArgumentError(f"there is no pass '{stop_after}'; there are {', '.join(dict.fromkeys(names))}")
    verify(graph)
    shapes.infer(graph, tools.lib)
    counts: dict[str, int] = dict.fromkeys(names, 0)
    for group in PASSES:
        if _repeat(graph, tools, group, io_layout, stop_after, counts):
            break
    return list(counts.items())


def _repeat(
    graph: Graph, tools: Tools, group: Sequence[Pass], io_layout: str, stop_after: Optional[str], counts: dict[str, int]
) -> bool:
    """Applies a group until nothing changes; True: stop here."""
    for _ in range(_ROUNDS):
        changed = False
        for function in group:
            name = function.__name__
            run: Pass = functools.partial(layout, io_layout=io_layout) if function is layout else function
            n = run(graph, tools)
            if n:
                changed = True
                counts[name] += n
                _check(graph, tools, name)
            if name == stop_after:
                return True
        if not changed or len(group) == 1:
            return False
    raise GraphError(f"graph '{graph.name}': the passes {', '.join(p.__name__ for p in group)} undo each other")


def _check(graph: Graph, tools: Tools, name: str) -> None:
    try:
        verify(graph)
        shapes.infer(graph, tools.lib)
        verify(graph)
    except (GraphError, ShapeError) as error:
        raise GraphError(f"pass {name}: {error}") from error
