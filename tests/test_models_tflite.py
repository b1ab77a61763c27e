"""Real networks, those of TensorFlow Lite above all: their right answers, and the numbers that docs/models.md tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Union

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("ai_edge_litert")

from ai_edge_litert.interpreter import Interpreter
from conftest import ROOT, Build
from ops_nn.compiler import compile_model
from ops_nn.importers import tflite as importer
from ops_nn.ir import NUMPY
from ops_nn.lib import Library
from ops_nn.runtime import Model

from models import compare, get
from models.tflite_files import NETWORKS


@pytest.fixture(scope="module")
def library(host_build: Build) -> Library:
    return Library(host_build.lib)


def open_batches(name: str) -> list[str]:
    """The names of the open dimensions of a network's inputs."""
    return [d for x in importer.load(get.get(name)).inputs for d in x.shape or () if isinstance(d, str)]


def load(name: str, library: Library) -> Model:
    data, _ = compile_model(get.get(name), library=library)
    return Model(data, library)


@pytest.mark.parametrize("name", [*compare.FLOAT, *compare.INTEGER])
def test_same_numbers_as_the_judge(name: str, library: Library) -> None:
    told = (ROOT / "docs" / "models.md").read_text()
    # Rounding after every operator, as integers do it, is felt in the second digit.
    bound = 0.15 if name in compare.INTEGER else 1e-4 if name.startswith("selfie") else 1e-5
    for d in compare.compare(name, library):
        assert d.error <= d.largest * bound, d
        assert f"| {name} | {d.output} |" in told


def picture(name: str, size: int) -> NDArray[np.uint8]:
    opened = Image.open(get.photograph(name)).convert("RGB")
    return np.asarray(opened.resize((size, size), Image.Resampling.BILINEAR))[None]


def test_blazeface_finds_the_astronaut(library: Library) -> None:
    pixels = picture("astronaut.png", 128).astype(np.float32) / 127.5 - 1
    found = load("blazeface", library).session().run(pixels)["classificators"]
    scores = 1 / (1 + np.exp(-np.clip(found.reshape(-1), -80, 80)))
    assert scores.max() == pytest.approx(0.92, abs=0.04)
    assert 1 <= (scores > 0.5).sum() < 20  # the anchors around one face


@pytest.mark.parametrize("board", ["armhf_build", "aarch64_build"])
@pytest.mark.parametrize("name", [n for n in (*compare.FLOAT, *compare.INTEGER) if n in NETWORKS])
def test_emulated_boards_agree(request: pytest.FixtureRequest, name: str, board: str, library: Library, tmp_path: Path) -> None:
    if name not in ("blazeface", "selfie-segmentation", "person-detector-int8") and not request.config.getoption("--long"):
        pytest.skip("with --long: a minute for all")
    own: Build = request.getfixturevalue(board)
    data, _ = compile_model(get.get(name), dict.fromkeys(open_batches(name), 1), library=library)
    model = Model(data, library)
    (tmp_path / "net.opsnn").write_bytes(data)
    command: list[Union[str, Path]] = [own.runner, tmp_path / "net.opsnn"]
    feeds = {}
    for i, x in enumerate(model.inputs):
        feeds[x.name] = compare.feed(name, x.dims, np.dtype(NUMPY[x.dtype]), True)
        np.save(tmp_path / f"in{i}.npy", feeds[x.name])
        command += ["--input", f"{x.name}={tmp_path}/in{i}.npy"]
    wanted = model.session().run(feeds)
    for i, output in enumerate(wanted):
        command += ["--output", f"{output}={tmp_path}/out{i}.npy"]
    done = own.run(*command)
    assert done.returncode == 0, done.stderr
    for i, (output, array) in enumerate(wanted.items()):
        found = np.load(tmp_path / f"out{i}.npy")
        assert (
            abs(compare.real(found, 1, 0) - compare.real(array, 1, 0)).max() <= 1e-4 * abs(compare.real(array, 1, 0)).max()
        ), output


def test_selfie_segmentation_cuts_the_astronaut_out(library: Library) -> None:
    pixels = picture("astronaut.png", 256).astype(np.float32) / 255
    mask = load("selfie-segmentation", library).session().run(pixels)["activation_10"][0, :, :, 0]
    assert ((mask < 0.1) | (mask > 0.9)).mean() > 0.9  # nearly nowhere undecided
    assert mask[100:, 100:130].mean() > 0.9 and mask[:60, 220:].mean() < 0.1


def test_a_wake_word_network_keeps_its_state(library: Library) -> None:
    """Its variables are inputs and outputs here; sixty steps of noise that swells and fades."""
    judge = Interpreter(str(get.get("alexa")))
    judge.allocate_tensors()
    x, y = judge.get_input_details()[0], judge.get_output_details()[0]
    model, rng = load("alexa", library), np.random.default_rng(0)
    states = {i.name: np.zeros(i.dims, np.float32) for i in model.inputs if i.name != x["name"]}
    assert len(states) == 6
    given = next(i for i in model.inputs if i.name == x["name"])
    session = model.session()
    for step in range(60):
        sound = np.clip(rng.normal(20, 40, x["shape"]) * abs(np.sin(step / 7)), -128, 127).astype(np.int8)
        judge.set_tensor(x["index"], sound)
        judge.invoke()
        wanted = compare.real(judge.get_tensor(y["index"]), *y["quantization"])
        feed = sound if given.dtype == "s8" else compare.real(sound, *x["quantization"]).astype(np.float32)
        result = session.run({x["name"]: feed, **states})
        states = {name: result[f"{name}/next"] for name in states}
        assert abs(compare.real(result[y["name"]], *y["quantization"]) - wanted).max() < 0.02


def test_integer_efficientnet_knows_the_labelled_pictures(library: Library) -> None:
    model = load("efficientnet-lite0-int8", library)
    session, hits = model.session(), 0
    for path, label in get.labelled_pictures():
        opened = Image.open(path).convert("RGB")
        side = round(min(opened.size) * 0.875)
        left, top = (opened.width - side) // 2, (opened.height - side) // 2
        cut = opened.resize((224, 224), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
        pixels: NDArray[Any] = np.asarray(cut)[None]
        if model.inputs[0].dtype == "f32":
            pixels = ((pixels - 131.0) * 0.01256602).astype(np.float32)
        hits += int(session.run(pixels)["Softmax"].argmax()) == label
    assert hits >= 17
