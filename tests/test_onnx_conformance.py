"""ONNX's own node tests: whatever imports gives the expected result; the rest is refused, and for a reason that is told."""
from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from conftest import Build
from onnx.backend.test.case.node import collect_testcases
from onnx_net import Net, run, tools
from ops_nn import passes
from ops_nn.errors import ModelError, UnsupportedOperator
from ops_nn.importers import onnx as importer
from ops_nn.importers.onnx_ops import CONVERTERS

# Cases that pass as these lines are written, with onnx 1.23; other versions have some more or less. A converter that stops
# working would show as a much lower number.
LEAST = 300


def test_node_cases(host_build: Build) -> None:
    wrong: list[str] = []
    n_right = n_refused = 0
    toolbox = tools(host_build.lib)
    for case in collect_testcases(None):
        model, (inputs, outputs) = case.model, case.data_sets[0]
        if not any(n.op_type in CONVERTERS for n in model.graph.node):
            continue
        try:
            graph = importer.load(model)
        except UnsupportedOperator as error:
            assert error.problems
            n_refused += 1
            continue
        passes.optimize(graph, toolbox)
        found = run(graph, host_build.lib, dict(zip((i.name for i in model.graph.input), map(np.asarray, inputs))))
        n_right += 1
        wrong += [f"{case.name}: {o.name}" for o, w in zip(model.graph.output, outputs) if not _alike(found[o.name], w)]
    assert not wrong
    assert n_right >= LEAST and n_refused > 0


def _alike(found: Any, wanted: Any) -> bool:
    return found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-3, atol=1e-5, equal_nan=True)


def test_damaged_models_are_refused_or_imported(host_build: Build) -> None:
    """Flipped bytes of a model's file: an error of ours or a graph, never another exception."""
    net = Net(13)
    y = net.op("Relu", net.batch_norm(net.conv(net.input((1, 2, 4, 4)), 2, 2), 2))
    y = net.op("Reshape", net.op("Pad", y, net.ints(0, 0, 1, 1, 0, 0, 1, 1)), net.ints(0, -1))
    data = bytearray(net.output(net.op("Gemm", y, net.weights(72, 2))).model().SerializeToString())
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), 3):
            damaged[place] = random.integers(0, 256)
        with contextlib.suppress(ModelError):
            passes.optimize(importer.load(bytes(damaged)), tools(host_build.lib))
