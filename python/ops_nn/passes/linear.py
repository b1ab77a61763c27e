"""Folds products and sums with one constant per channel into the weights and bias of the convolution or matrix product before
them. Nobody else may see the value in between."""
from __future__ import annotations

from typing import Optional

import numpy as np

from ..ir import Array, Graph, Node, Value, rank, remove_nodes, single_consumer
from ..schema import INF
from .tools import Tools


@np.errstate(all="ignore")  # overflow gives infinities, as it would at run time
def linear(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in list(graph.nodes):
        while _fold(graph, node):
            changes += 1
    return changes


def _fold(graph: Graph, node: Node) -> bool:
    channels = _channels(node)
    after = single_consumer(graph, node.y) if channels else None
    if channels is None or after is None or after.op not in ("mul", "div", "add", "sub") or after.tail:
        return False
    a, b = after.inputs
    first = a is node.y  # node.y is the first operand
    other = b if first else a
    vector = _per_channel(node, other, channels)
    if vector is None:
        return False
    # y * scale + shift
    scale: Optional[Array] = None
    shift: Optional[Array] = None
    if after.op == "mul":
        scale = vector
    elif after.op == "div":
        if not first:
            return False
        scale = 1 / vector
    elif after.op == "add":
        shift = vector
    else:
        scale = None if first else np.full(1, -1.0)
        shift = -vector if first else vector
    if not all(x is None or np.isfinite(x).all() for x in (scale, shift)):
        return False
    _apply(graph, node, channels, scale, shift)
    node.attrs["lo"], node.attrs["hi"] = after.attrs["lo"], after.attrs["hi"]
    remove_nodes(graph, [after])
    node.outputs = after.outputs
    return True


def _channels(node: Node) -> Optional[int]:
    """Output channels of a node that weights can be folded into; None if it is no such node."""
    if node.op not in ("conv2d", "matmul") or node.tail or (node.attrs["lo"], node.attrs["hi"]) != (-INF, INF):
        return None
    w, b = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if w is None or w.data is None or (b is not None and b.data is None) or w.block:
        return None
    if node.op == "conv2d":
        return int(w.data.shape[0])
    return None if w.data.ndim != 2 else int(w.data.shape[0 if node.attrs["trans_b"] else 1])


def _per_channel(node: Node, other: Optional[Value], channels: int) -> Optional[Array]:
    """other's elements as float64, one or one per channel; None if it is anything else, or makes the result larger."""
    n_axes = rank(node.y)
    if other is None or other.data is None or n_axes is None or other.data.ndim > n_axes:
        return None
    axis = 1 if node.layout == "nchw" else n_axes - 1
    shape = (1,) * (n_axes - other.data.ndim) + other.data.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, channels):
        return None
    return other.data.astype(np.float64).reshape(-1)


def _apply(graph: Graph, node: Node, channels: int, scale: Optional[Array], shift: Optional[Array]) -> None:
    w, b = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    assert w is not None and w.data is not None
    if scale is not None:
        axis = 0 if node.op == "conv2d" or node.attrs["trans_b"] else 1
        factor = scale.reshape([-1 if i == axis else 1 for i in range(w.data.ndim)])
        w = graph.constant(w.name, (w.data * factor).astype(np.float32))
    if b is not None or shift is not None:
        bias = np.zeros(channels) if b is None or b.data is None else b.data.astype(np.float64)
        bias = bias * (1 if scale is None else scale) + (0 if shift is None else shift)
        b = graph.constant(b.name if b is not None else f"{node.name}/bias", bias.astype(np.float32))
    node.inputs = [node.x, w, *([b] if b is not None else [])]
