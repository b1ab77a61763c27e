"""What a newcomer does first works, and says what is wrong where it cannot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.board import ROOT
from models import get
from models.card import Card, CardError
from models.preprocess import best


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "COLUMNS": "100"}
    command = [sys.executable, "demo/demo.py", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_demo_takes_the_whole_road() -> None:
    coffee = get.photograph("coffee.png")
    folder = ROOT / "build" / "test-demo"
    result = demo("--picture", str(coffee), "--build-dir", str(folder))
    assert result.returncode == 0, result.stderr + result.stdout
    text = result.stdout
    assert "$ ./configure.py --target=arm-linux-gnueabihf --enable-neon" in text
    assert "$ scons" in text
    assert text.index("Egyptian cat") < text.index("espresso")
    assert text.count("the same five as ONNX Runtime's") == 2
    assert "instructions per inference" in text
    assert (folder / "stripped" / "libops_nn.so").stat().st_size <= 150_000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--model", "absent.onnx"), "there is no network"),
        (("--model", "README.md"), "cannot be read as an ONNX file"),
        (("--picture", "README.md"), "cannot be read as a picture"),
    ],
)
def test_mistakes_cost_no_build(arguments: tuple[str, ...], reason: str) -> None:
    result = demo(*arguments)
    assert result.returncode == 1
    assert "configure.py" not in result.stdout
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def make_network(path: Path, shape: tuple[object, ...]) -> None:
    """Something that turns a picture into four numbers."""
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, shape)
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 4])
    nodes = [
        helper.make_node("Flatten", ["picture"], ["flat"]),
        helper.make_node("Softmax", ["flat"], ["scores"]),
    ]
    graph = helper.make_graph(nodes, "network", [picture], [scores])
    onnx.save(helper.make_model(graph), path)


def test_a_network_without_a_card_is_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    make_network(path, (1, 3, 64, 64))
    card = Card.of(path)
    assert (card.input, card.output, card.output_is) == ("picture", "scores", "probabilities")
    assert card.preprocessing.size == 64
    assert len(card.labels) == 4
    assert "mine.json" in card.guessed


def test_open_sizes_become_usual_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    make_network(path, ("n", 3, "h", "w"))
    assert Card.of(path).preprocessing.size == 224


def test_other_networks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    make_network(path, (1, 1, 64, 64))
    with pytest.raises(CardError, match="three channels"):
        Card.of(path)
    make_network(path, (1, 10))
    with pytest.raises(CardError, match="one picture as input"):
        Card.of(path)


def test_a_card_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    shutil.copy(get.network("mobilenetv2-dogs"), path)
    card = path.with_suffix(".json")
    shutil.copy(get.network("mobilenetv2-dogs").with_suffix(".json"), card)
    assert Card.of(path).labels[0] == "Chihuahua"
    fields = json.loads(card.read_text())
    del fields["preprocessing"]
    card.write_text(json.dumps(fields))
    with pytest.raises(CardError, match="is not the card of a network"):
        Card.of(path)


def test_classes_without_names_get_numbers() -> None:
    import numpy as np

    assert best(np.array([0.1, 0.2, 0.7]), ["tench"], 2) == [("class 2", 0.7), ("class 1", 0.2)]
