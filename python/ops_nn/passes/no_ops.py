"""Removes nodes that change nothing: identities, clamps without limits, reshapes to the same shape, empty borders."""
from __future__ import annotations

from ..ir import Graph, Node, remove_nodes, replace_value
from ..schema import BY_NAME, INF
from .tools import Tools


def no_ops(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in list(graph.nodes):
        if not _does_nothing(node):
            continue
        x, y = node.x, node.y
        if y in graph.outputs:
            # An output must be made by a node. Whoever makes x makes y instead, unless x has to stay for the outside, too.
            made = any(x in n.outputs for n in graph.nodes)
            if not made or x in graph.outputs:
                continue
        remove_nodes(graph, [node])
        replace_value(graph, y, x)
        changes += 1
    return changes


def _does_nothing(node: Node) -> bool:
    if node.tail:
        return False
    x, y, attrs = node.x, node.y, node.attrs
    if node.op == "identity":
        return True
    if node.op == "clip":
        return bool(attrs["lo"] == -INF and attrs["hi"] == INF)
    if node.op == "concat":
        return len(node.inputs) == 1
    if node.op == "pad":
        return not any(attrs["pads"])
    if node.op == "transpose":
        perm = attrs["perm"]
        return bool(perm) and perm == tuple(range(len(perm)))
    # The rest show in their shapes, where these are known.
    same = x.shape is not None and None not in x.shape and x.shape == y.shape
    if node.op == "slice":
        return same and all(s >= 1 for s in attrs["steps"])
    return same and BY_NAME[node.op].view
