"""Turns spatial operators to NHWC, where a pixel's channels lie together, and gets rid of the transpositions that this takes.

Each nchw node is put between a transposition to nhwc and one back; constants are rearranged at once. Then the transpositions
sink through whatever can work on either order, and those that meet their inverse vanish. What is left stands at the model's
inputs and outputs (unless io_layout is 'nhwc': then these are nhwc themselves), and around operators that really mix the axes.
"""
from __future__ import annotations

from typing import Optional

import numpy as np

from ..ir import Graph, Node, Shape, Value, count, insert_after, producer, producers, rank, reshape_to, single_consumer
from ..schema import BY_NAME
from .tools import Tools
from .views import VIEWS

Perm = tuple[int, ...]
TO_NHWC: Perm = (0, 2, 3, 1)
TO_NCHW: Perm = (0, 3, 1, 2)


def layout(graph: Graph, tools: Tools, io_layout: str = "nchw") -> int:
    changes = _outside(graph) if io_layout == "nhwc" else 0
    for node in list(graph.nodes):
        if node.layout == "nchw" and rank(node.x) == 4:
            _to_nhwc(graph, node)
            changes += 1
    return changes


def _outside(graph: Graph) -> int:
    """The model's own pictures become nhwc: those inputs that spatial operators or transpositions see as nchw, and all outputs
    of four dimensions."""
    changes = 0
    for i, x in enumerate(graph.inputs):
        if rank(x) != 4:
            continue
        inside = Value(graph.fresh(f"{x.name}/nchw"), x.dtype, x.shape)
        for node in graph.nodes:
            node.inputs = [inside if v is x else v for v in node.inputs]
        graph.inputs[i] = x
        x.shape = permuted(x.shape, TO_NHWC)
        graph.nodes.insert(0, transpose(graph, x, inside, TO_NCHW))
        changes += 1
    for i, y in enumerate(graph.outputs):
        made_by = producer(graph, y)
        if rank(y) != 4 or made_by is None:
            continue
        outside = Value(graph.fresh(f"{y.name}/nchw"), y.dtype, permuted(y.shape, TO_NHWC))
        y.name, outside.name = outside.name, y.name
        insert_after(graph, made_by, transpose(graph, y, outside, TO_NHWC))
        graph.outputs[i] = outside
        changes += 1
    return changes


def _to_nhwc(graph: Graph, node: Node) -> None:
    x, y = node.x, node.y
    before = Value(graph.fresh(f"{x.name}/nhwc"), x.dtype, permuted(x.shape, TO_NHWC))
    after = Value(graph.fresh(f"{y.name}/nhwc"), y.dtype, permuted(y.shape, TO_NHWC))
    node.layout = "nhwc"
    node.inputs[0], node.outputs = before, [after]
    around = [transpose(graph, x, before, TO_NHWC)]
    if node.op == "conv2d":
        w = node.inputs[1]
        assert w is not None
        if w.data is not None:
            node.inputs[1] = graph.constant(w.name, np.ascontiguousarray(w.data.transpose(TO_NHWC)))
        else:
            moved = Value(graph.fresh(f"{w.name}/nhwc"), w.dtype, permuted(w.shape, TO_NHWC))
            node.inputs[1] = moved
            around.append(transpose(graph, w, moved, TO_NHWC))
    i = next(i for i, n in enumerate(graph.nodes) if n is node)
    graph.nodes[i : i + 1] = [*around, node, transpose(graph, after, y, TO_NCHW)]


# --- transpositions --------------------------------------------------------------------------------------------------------


def transpose(graph: Graph, x: Value, y: Value, perm: Perm) -> Node:
    return Node("transpose", graph.fresh_node(f"{x.name}/transpose"), [x], [y], {"perm": perm})


def permuted(shape: Optional[Shape], perm: Perm) -> Optional[Shape]:
    return None if shape is None else tuple(shape[p] for p in perm)


def inverse(perm: Perm) -> Perm:
    return tuple(perm.index(i) for i in range(len(perm)))


def moves_nothing(shape: Optional[Shape], perm: Perm) -> bool:
    """The elements keep their places: only dimensions of 1 move."""
    if shape is None:
        return False
    moved = [p for p in perm if shape[p] != 1]
    return moved == sorted(moved)


def transposes(graph: Graph, tools: Tools) -> int:
    """Joins transpositions that follow each other, and lets them sink."""
    changes = 0
    made_by = producers(graph)
    for node in list(graph.nodes):
        above = next((s for v in node.inputs if v is not None and (s := _source(made_by, v)) is not None), None)
        if node.tail or len(node.outputs) != 1:
            continue
        if node.op == "transpose" and node.attrs["perm"]:
            changed = _join(above, node) if above is not None else _lift(graph, node, made_by)
        elif above is None:
            continue
        elif node.op in VIEWS:
            changed = _sink_view(graph, above, node)
        else:
            changed = _sink(graph, node, made_by)
        if changed:
            changes += 1
            made_by = producers(graph)
    return changes


def _source(made_by: dict[Value, Node], value: Value) -> Optional[Node]:
    """The transposition that makes a value."""
    node = made_by.get(value)
    return node if node is not None and node.op == "transpose" and node.attrs["perm"] and not node.tail else None


def _join(before: Node, node: Node) -> bool:
    node.inputs = [before.x]
    node.attrs["perm"] = tuple(before.attrs["perm"][p] for p in node.attrs["perm"])
    return True


MOVABLE = ("concat", "softmax", "pad", "slice")  # beside the element-wise operators


def _rearrange(node: Node, perm: Perm) -> None:
    """Lets an operator's attributes speak of the axes before a transposition."""
    n, attrs = len(perm), node.attrs
    if node.op in ("concat", "softmax"):
        attrs["axis"] = perm[attrs["axis"] % n]
    elif node.op == "pad":
        there = inverse(perm)
        attrs["pads"] = tuple(attrs["pads"][there[i] + end] for end in (0, n) for i in range(n))
    elif node.op == "slice":
        axes = attrs["axes"] or tuple(range(len(attrs["starts"])))
        attrs["axes"] = tuple(perm[a % n] for a in axes)


def _sink(graph: Graph, node: Node, made_by: dict[Value, Node]) -> bool:
    """Moves the transpositions of a node's inputs behind it, where that does not make more of them.

    Of the two orders of pictures only nchw sinks, and nhwc is what others adapt to: both would chase each other for ever."""
    sources = [s for v in node.inputs if v is not None and (s := _source(made_by, v)) is not None]
    above = next((s for s in sources if not moves_nothing(s.x.shape, s.attrs["perm"])), sources[0])
    perm: Perm = above.attrs["perm"]
    back, n = inverse(perm), len(perm)
    if perm == TO_NHWC or rank(node.y) != n or not (BY_NAME[node.op].map or node.op in MOVABLE):
        return False
    inputs: list[Value] = []
    new: list[Node] = []
    gained = cost = 0  # transpositions that move something
    for value in node.inputs:
        assert value is not None
        source = _source(made_by, value)
        if source is not None and source.attrs["perm"] == perm:
            inputs.append(source.x)
            gained += not moves_nothing(source.x.shape, perm)
        elif value.data is not None and value.data.ndim <= n:
            inputs.append(_constant(graph, value, perm))
        elif count(value.shape) == 1 and (rank(value) or 0) <= n and BY_NAME[node.op].map:
            inputs.append(value)
        elif rank(value) == n:
            inputs.append(Value(graph.fresh(f"{value.name}/transposed"), value.dtype, permuted(value.shape, back)))
            new.append(transpose(graph, value, inputs[-1], back))
            # Some other node may have a use for the same transposition: common_subexpressions.py makes them one.
            alike = (c for c in graph.nodes if c.op == "transpose" and c.x is value and c.attrs["perm"] == back)
            cost += not (perm == TO_NCHW and any(alike)) and not moves_nothing(value.shape, back)
        else:
            return False
    if (new and not gained) or (cost and cost >= gained):
        return False
    _rearrange(node, perm)
    y = node.y
    node.inputs = list(inputs)
    node.outputs = [Value(graph.fresh(f"{y.name}/transposed"), y.dtype, permuted(y.shape, back))]
    i = next(i for i, other in enumerate(graph.nodes) if other is node)
    graph.nodes[i : i + 1] = [*new, node, transpose(graph, node.y, y, perm)]
    return True


def _constant(graph: Graph, value: Value, perm: Perm) -> Value:
    """A constant operand as it must be before a transposition by perm: its missing leading dimensions are 1."""
    assert value.data is not None
    if value.data.size == 1:
        return value
    full = value.data.reshape((1,) * (len(perm) - value.data.ndim) + value.data.shape)
    return graph.constant(value.name, np.ascontiguousarray(full.transpose(inverse(perm))))


def _sink_view(graph: Graph, above: Node, node: Node) -> bool:
    """transposition, reshape -> reshape, transposition: where the reshape splits single axes, or joins axes that lie together
    before the transposition, too."""
    perm: Perm = above.attrs["perm"]
    source, target = above.x.shape, node.y.shape
    blocks = _blocks(node.x.shape, target)
    if source is None or target is None or blocks is None:
        return False
    # For each block its axes in the source, which must be neighbours in the same order.
    moved = [[perm[a] for a in axes] for axes, _ in blocks]
    if any(axes != list(range(axes[0], axes[0] + len(axes))) for axes in moved):
        return False
    order = sorted(range(len(blocks)), key=lambda b: moved[b][0])
    if order == list(range(len(blocks))):
        return False  # the transposition would vanish: views.py does that, once it is a view itself
    middle = [a for b in order for a in blocks[b][1]]  # axes of the target, in the source's order
    shape = reshape_to(source, tuple(target[a] for a in middle))
    if shape is None or len(middle) != len(target):
        return False
    y = node.y
    new_perm = inverse(tuple(middle))
    node.op, node.attrs = "reshape", {"shape": shape, "allowzero": int(0 in target)}
    node.inputs = [above.x]
    node.outputs = [Value(graph.fresh(f"{y.name}/transposed"), y.dtype, tuple(target[a] for a in middle))]
    insert_after(graph, node, transpose(graph, node.y, y, new_perm))
    return True


def _lift(graph: Graph, node: Node, made_by: dict[Value, Node]) -> bool:
    """transposition, reshape, transposition -> transposition, reshape: where the second can be done before the reshape."""
    view = made_by.get(node.x)
    above = _source(made_by, view.x) if view is not None and view.op in VIEWS else None
    blocks = _blocks(view.x.shape, view.y.shape) if view is not None else None
    if view is None or above is None or blocks is None or single_consumer(graph, view.y) is not node:
        return False
    place = inverse(node.attrs["perm"])
    moved = [[place[a] for a in axes] for _, axes in blocks]
    if any(axes != list(range(axes[0], axes[0] + len(axes))) for axes in moved):
        return False
    perm = tuple(above.attrs["perm"][a] for b in sorted(range(len(blocks)), key=lambda b: moved[b][0]) for a in blocks[b][0])
    before = Value(graph.fresh(f"{above.x.name}/transposed"), node.y.dtype, permuted(above.x.shape, perm))
    target = reshape_to(before.shape, node.y.shape)
    if target is None:
        return False
    i = next(i for i, n in enumerate(graph.nodes) if n is node)
    graph.nodes.insert(i, transpose(graph, above.x, before, perm))
    node.op, node.attrs = "reshape", {"shape": target, "allowzero": int(0 in (node.y.shape or ()))}
    node.inputs = [before]
    return True


def _blocks(source: Optional[Shape], target: Optional[Shape]) -> Optional[list[tuple[list[int], list[int]]]]:
    """Cuts both shapes into the smallest runs of axes with the same number of elements; None if open dimensions forbid to tell.
    Runs are never empty on either side."""
    if source is None or target is None or None in source or None in target or 0 in source:
        return None
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        if i == len(source) or j == len(target):
            # What is left on one side are dimensions of 1: they go with the last run.
            if not blocks:
                return None
            blocks[-1][0].extend(range(i, len(source)))
            blocks[-1][1].extend(range(j, len(target)))
            break
        a, b = [i], [j]
        left, right = source[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if not isinstance(left, int) or not isinstance(right, int):
                return None
            if left < right:
                if i == len(source) or not isinstance(more := source[i], int):
                    return None
                left *= more
                a.append(i)
                i += 1
            else:
                if j == len(target) or not isinstance(more := target[j], int):
                    return None
                right *= more
                b.append(j)
                j += 1
        blocks.append((a, b))
    return blocks


# --- what is left ----------------------------------------------------------------------------------------------------------


def free_transposes(graph: Graph, tools: Tools) -> int:
    """Makes views of transpositions that move dimensions of 1 only, and lets matrix products take the order that comes."""
    changes = 0
    for node in graph.nodes:
        if node.op == "transpose" and not node.tail and node.attrs["perm"] and moves_nothing(node.x.shape, node.attrs["perm"]):
            shape = reshape_to(node.x.shape, node.y.shape)
            if shape is not None:
                node.op, node.attrs = "reshape", {"shape": shape, "allowzero": int(0 in (node.y.shape or ()))}
                changes += 1
        elif node.op == "matmul":
            changes += _absorb(graph, node)
    return changes


def _absorb(graph: Graph, node: Node) -> bool:
    """transposition, flattening to a matrix, product with constant weights: the weights' rows change places instead."""
    view = producer(graph, node.x)
    if view is None or view.op not in ("reshape", "flatten") or single_consumer(graph, node.x) is not node:
        return False
    above, w = producer(graph, view.x), node.inputs[1]
    if above is None or above.op != "transpose" or above.tail or not above.attrs["perm"]:
        return False
    if w is None or w.data is None or w.data.ndim != 2:
        return False
    perm, shape, flat = above.attrs["perm"], view.x.shape, view.y.shape
    if perm[0] != 0 or shape is None or flat is None or len(flat) != 2 or shape[0] != flat[0] or flat[0] is None:
        return False
    inner = [d for d in shape[1:] if isinstance(d, int)]
    if len(inner) != len(shape) - 1 or above.x.shape is None:
        return False
    k_axis = 1 if node.attrs["trans_b"] else 0
    rows = np.arange(w.data.shape[k_axis]).reshape(inner)  # row of w for each element of the transposed tensor
    rows = rows.transpose([p - 1 for p in inverse(perm)[1:]]).reshape(-1)
    node.inputs[1] = graph.constant(w.name, np.ascontiguousarray(np.take(w.data, rows, k_axis)))
    view.inputs = [above.x]
    view.op, view.attrs = "reshape", {"shape": (0, len(rows)), "allowzero": 0}
    return True
