"""What docs/ shows is what works: its Python examples and command lines are run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import onnx
import pytest
from conftest import ROOT, Build
from onnx_net import Net
from ops_nn import __main__ as cli
from ops_nn import lib


@pytest.fixture
def folder(host_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with net.onnx, as the examples assume it, and the library."""
    net = Net()
    y = net.op("Relu", net.op("Conv", net.input(("batch", 3, "h", "w"), "image"), net.weights(8, 3, 3, 3), strides=[2, 2]))
    net.output(net.op("Flatten", net.op("GlobalAveragePool", y), output="scores"))
    onnx.save(net.model(), tmp_path / "net.onnx")
    shutil.copy(host_build.stripped, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(lib.ENVIRONMENT, str(host_build.lib))
    return tmp_path


def examples(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)


def test_python_api(folder: Path) -> None:
    blocks = examples("python-api.md", "python")
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "python-api.md", "exec"), {})


def test_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in examples("command-line.md", "console") for line in block.splitlines()]
    verbs = set()
    for line in lines:
        prompt, program, verb, *words = shlex.split(line)
        assert (prompt, program) == ("$", "ops-nn"), line
        verbs.add(verb)
        assert cli.main([verb, *words]) == 0, f"{line}\n{capsys.readouterr().err}"
    assert verbs == set(cli.VERBS)
    for text in examples("command-line.md", "json"):
        assert cli.main(["explain", "net.opsnn", "--brief", "--target", text.strip()]) == 0
