"""Turns batch normalisation with constant statistics into a product and a sum per channel, which linear.py folds into the
weights of the convolution or matrix product before it, where there is one."""
from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Node, Value, rank
from .tools import Tools


@np.errstate(all="ignore")  # strange statistics give what the operator itself would give: infinities and NaN
def batch_norm(graph: Graph, tools: Tools) -> int:
    changes = 0
    nodes: list[Node] = []
    for node in graph.nodes:
        parameters = [v.data for v in node.inputs[1:] if v is not None and v.data is not None]
        n_axes = rank(node.x)
        if node.op != "batch_normalization" or len(parameters) != 4 or n_axes is None:
            nodes.append(node)
            continue
        scale, bias, mean, var = (p.astype(np.float64) for p in parameters)
        factor = scale / np.sqrt(var + node.attrs["epsilon"])
        shape = (-1,) if node.layout == "nhwc" else (-1, *(1,) * (n_axes - 2))

        def constant(role: str, data: Array, of: Node = node, to: tuple[int, ...] = shape) -> Value:
            return graph.constant(f"{of.name}/{role}", data.astype(np.float32).reshape(to))

        product = Value(graph.fresh(f"{node.name}/scaled"), node.y.dtype, node.y.shape)
        nodes.append(Node("mul", graph.fresh_node(f"{node.name}/mul"), [node.x, constant("scale", factor)], [product]))
        shift = constant("shift", bias - mean * factor)
        nodes.append(Node("add", node.name, [product, shift], [node.y], tail=node.tail))
        changes += 1
    graph.nodes = nodes
    return changes
