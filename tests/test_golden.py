"""A real network on real photographs: this machine and two emulated boards against onnxruntime."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Build
from ops_nn import lib
from ops_nn.compiler import compile_model
from ops_nn.runtime import Model

from benchmarks.board import BoardError, board_python
from models import get
from models.card import Card
from models.fetch import FetchError
from models.preprocess import load_picture, probabilities

ort = pytest.importorskip("onnxruntime")
Array = Any


@dataclass(frozen=True)
class Golden:
    """Twenty labelled pictures as the network wants them, and what onnxruntime makes of them."""

    model: Path
    inputs: Array  # [20, 3, 224, 224]
    labels: list[int]
    logits: Array  # [20, 1000]

    def check(self, logits: Array, tolerance: float) -> None:
        """tolerance: of the logits, relative to the largest of a picture."""
        assert logits.shape == self.logits.shape
        scale = np.abs(self.logits).max(axis=1, keepdims=True)
        assert (np.abs(logits - self.logits) / scale).max() < tolerance
        for ours, theirs in zip(logits, self.logits):
            assert list(np.argsort(-ours)[:5]) == list(np.argsort(-theirs)[:5])
            assert np.abs(probabilities(ours) - probabilities(theirs)).max() < 1e-3
        assert sum(row.argmax() == label for row, label in zip(logits, self.labels)) == 18


@pytest.fixture(scope="module")
def golden(host_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    try:
        network, pictures = get.network("efficientnet-lite0"), get.labelled_pictures()
    except FetchError as error:
        pytest.skip(f"the network cannot be had: {error}")
    data, _ = compile_model(network, library=lib.library(host_build.lib))
    model = tmp_path_factory.mktemp("golden") / "efficientnet.opsnn"
    model.write_bytes(data)
    card = Card.load(network.with_suffix(".json"))
    inputs = np.concatenate([load_picture(path, card.preprocessing) for path, _ in pictures])
    reference = ort.InferenceSession(network)
    logits = np.concatenate([reference.run([card.output], {card.input: x[np.newaxis]})[0] for x in inputs])
    return Golden(model, inputs, [label for _, label in pictures], logits)


@pytest.mark.parametrize("threads", [1, 0])
def test_this_machine(golden: Golden, host_build: Build, threads: int) -> None:
    session = Model(golden.model, lib.library(host_build.lib)).session(threads)
    golden.check(np.concatenate([session.run(x[np.newaxis])["logits"] for x in golden.inputs]), 1e-4)


def test_the_reference_kernels(golden: Golden, host_build: Build) -> None:
    session = Model(golden.model, lib.library(host_build.lib)).session(reference=True)
    logits = session.run(golden.inputs[:1])["logits"]
    np.testing.assert_allclose(logits, golden.logits[:1], atol=1e-4 * np.abs(golden.logits[0]).max())


def test_channels_last(golden: Golden, host_build: Build) -> None:
    library = lib.library(host_build.lib)
    data, _ = compile_model(get.network("efficientnet-lite0"), io_layout="nhwc", library=library)
    model = Model(data, library)
    assert model.inputs[0].dims == (1, 224, 224, 3)
    logits = model.session().run(golden.inputs[:1].transpose(0, 2, 3, 1))["logits"]
    np.testing.assert_allclose(logits, golden.logits[:1], atol=1e-4 * np.abs(golden.logits[0]).max())


def test_compiling_is_deterministic(golden: Golden, host_build: Build) -> None:
    data, _ = compile_model(get.network("efficientnet-lite0"), library=lib.library(host_build.lib))
    assert data == golden.model.read_bytes()


def test_memory(golden: Golden, host_build: Build) -> None:
    """The arena is hardly more than the largest pair of tensors alive at once; weights are read in place."""
    plan = Model(golden.model, lib.library(host_build.lib)).plan()
    pair = 4 * 96 * (112 * 112 + 56 * 56)  # float32 before and behind the second depthwise convolution
    assert pair <= plan.info.arena_bytes <= 1.1 * pair
    assert plan.info.packed_bytes == 0 and plan.info.const_bytes > 18e6


_ON_BOARD = """
import json, sys
import numpy, ops_nn
session = ops_nn.Model(sys.argv[1]).session()
rows = [session.run(x[numpy.newaxis])["logits"][0] for x in numpy.load(sys.argv[2], mmap_mode="r")]
numpy.save(sys.argv[3], rows)
kernels = [node.kernel for node in session.plan.nodes]
print(json.dumps({"kernels": kernels, "target": ops_nn.library().target_detect().to_dict()}))
"""


@pytest.fixture(scope="module")
def inputs_file(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("inputs") / "inputs.npy"
    np.save(path, golden.inputs)
    yield path
    path.unlink()


@pytest.mark.parametrize(("board", "build"), [("armhf", "armhf_build"), ("arm64", "aarch64_build")])
def test_boards(
    request: pytest.FixtureRequest, golden: Golden, inputs_file: Path, tmp_path: Path, board: str, build: str
) -> None:
    """All pictures in one emulated Python process, which runs the cross-built library."""
    own: Build = request.getfixturevalue(build)
    try:
        files = map(str, (golden.model, inputs_file, tmp_path / "out.npy"))
        command, environment = board_python(board, ["-c", _ON_BOARD, *files])
    except BoardError as error:
        pytest.skip(str(error))
    environment.update(PYTHONPATH=str(ROOT / "python"), OPS_NN_LIB=str(own.stripped))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    golden.check(np.load(tmp_path / "out.npy"), 1e-4)
    told = json.loads(done.stdout)
    assert told["target"]["arch"] == own.config["arch"]
    convolutions = [kernel for kernel in told["kernels"] if kernel.startswith("conv2d")]
    assert convolutions and all("neon" in kernel for kernel in convolutions)
