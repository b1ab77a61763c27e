"""Brings matrix products into the form that kernels want: constant weights as [N, K] with trans_b, b not transposed before."""
from __future__ import annotations

import numpy as np

from ..ir import Graph, producer
from .tools import Tools


def matrices(graph: Graph, tools: Tools) -> int:
    changes = 0
    for node in graph.nodes:
        if node.op != "matmul":
            continue
        b = node.inputs[1]
        assert b is not None
        if b.data is not None and b.data.ndim == 2 and not node.attrs["trans_b"]:
            node.inputs[1] = graph.constant(b.name, np.ascontiguousarray(b.data.T))
            node.attrs["trans_b"] = 1
            changes += 1
            continue
        made_by = producer(graph, b)
        if made_by is None or made_by.op != "transpose" or made_by.tail or len(made_by.attrs["perm"]) < 2:
            continue
        n = len(made_by.attrs["perm"])
        if made_by.attrs["perm"] == (*range(n - 2), n - 1, n - 2):
            node.inputs[1] = made_by.x
            node.attrs["trans_b"] = int(not node.attrs["trans_b"])
            changes += 1
    return changes
