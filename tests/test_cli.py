"""The command line, and libraries that are trimmed to a model."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import ROOT, Build, configure
from numpy.testing import assert_array_equal
from onnx_net import Net
from ops_nn import __main__ as cli
from ops_nn import __version__, compiler, lib
from ops_nn.compiler import compile_model, kernels_for
from ops_nn.errors import FileError, ModelError, ShapeError, UnsupportedOperator
from ops_nn.lib import Target
from ops_nn.runtime import Model
from ops_nn.tools import common
from tiny import conv_sigmoid, elementwise

from models import get
from models.fetch import FetchError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ops_nn(host_build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """ops_nn("verb", ...) -> exit code, what it printed, what it complained of."""
    monkeypatch.setenv(lib.ENVIRONMENT, str(host_build.lib))

    def run(*words: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def squeeze(tmp_path: Path) -> Path:
    """A piece of a SqueezeNet: a convolution, two branches that are joined, a pool."""
    net = Net()
    x = net.op("Relu", net.op("Conv", net.input((1, 3, 16, 16)), net.weights(8, 3, 1, 1), name="squeeze"))
    one = net.op("Conv", x, net.weights(8, 8, 1, 1), name="expand1x1")
    three = net.op("Conv", x, net.weights(8, 8, 3, 3), name="expand3x3", pads=[1, 1, 1, 1])
    joined = net.op("Relu", net.op("Concat", one, three, name="join", axis=1))
    net.output(net.op("MaxPool", joined, name="pool", kernel_shape=[2, 2], strides=[2, 2], output="y"))
    onnx.save(net.model(), tmp_path / "squeeze.onnx")
    return tmp_path / "squeeze.onnx"


# --- usage -------------------------------------------------------------------------------------------------------------------


def test_help_and_version(ops_nn: Run) -> None:
    code, out, _ = ops_nn("--help")
    assert code == 0 and all(verb in out for verb in cli.VERBS)
    for verb in cli.VERBS:
        code, out, _ = ops_nn(verb, "--help")
        assert code == 0 and f"ops-nn {verb}" in out
    assert ops_nn("--version")[:2] == (0, f"ops-nn {__version__}\n")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["bake"],
        ["compile"],
        ["compile", "net.onnx", "--shape", "x=1,3"],
        ["compile", "net.onnx", "--shape", "1x3"],
        ["compile", "net.onnx", "--io-layout", "hwc"],
        ["run", "m.opsnn", "--input", "x"],
    ],
)
def test_wrong_usage(ops_nn: Run, words: list[str]) -> None:
    code, out, err = ops_nn(*words)
    assert code == 2 and not out and "usage: ops-nn" in err


def test_errors_are_one_line_without_traceback(ops_nn: Run, host_build: Build, tmp_path: Path) -> None:
    (tmp_path / "bad.opsnn").write_bytes(b"nonsense")
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    for words in (
        ["run", tmp_path / "none.opsnn"],
        ["run", tmp_path / "bad.opsnn"],
        ["info", tmp_path / "bad.opsnn"],
        ["info", tmp_path],
        ["info", sys.executable],
        ["explain", tmp_path / "bad.onnx"],
        ["compile", tmp_path / "none.onnx"],
        ["check", tmp_path / "bad.opsnn", tmp_path / "bad.opsnn"],
        ["check", tmp_path / "bad.opsnn", host_build.lib],
        ["run", tmp_path / "bad.opsnn", "--lib", "/nowhere.so"],
    ):
        code, out, err = ops_nn(*words)
        assert code == 1 and not out and err.startswith(f"ops-nn {words[0]}: ") and err.count("\n") == 1, (words, err)
        assert str(words[1]) in err or "bad" in err or "/nowhere.so" in err, (words, err)
    with pytest.raises(FileError):
        cli.main(["run", str(tmp_path / "none.opsnn"), "--debug"])


def test_as_a_program_into_a_closed_pipe(host_build: Build, tmp_path: Path) -> None:
    (tmp_path / "m.opsnn").write_bytes(conv_sigmoid())
    command = f"{shlex.quote(sys.executable)} -m ops_nn explain m.opsnn | true; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), lib.ENVIRONMENT: str(host_build.lib)}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


# --- compile -----------------------------------------------------------------------------------------------------------------


def test_compile(ops_nn: Run, squeeze: Path, tmp_path: Path) -> None:
    code, out, err = ops_nn("compile", squeeze, "-o", tmp_path / "net.opsnn", "--kernels-json", tmp_path / "k.json", "-v")
    assert code == 0 and "net.opsnn" in out and "layout" in out, err
    model = Model(tmp_path / "net.opsnn")
    assert [i.name for i in model.inputs] == ["x"] and [o.name for o in model.outputs] == ["y"]
    assert model.meta("producer") == f"ops-nn {__version__}" and model.meta("source") == "squeeze.onnx"
    assert len(model.meta("source_sha256") or "") == 64 and model.meta("opset") == "17"
    needs = json.loads((tmp_path / "k.json").read_text())
    assert {"conv2d", "max_pool", "concat"} <= set(needs["ops"])
    assert set(needs["kernels"]) <= set(lib.library().kernels())
    assert {lib.op_of(kernel) for kernel in needs["kernels"]} <= set(needs["ops"])


def test_compile_with_open_dimensions(ops_nn: Run, tmp_path: Path) -> None:
    net = Net()
    y = net.op("Conv", net.input(("batch", 3, "h", "w")), net.weights(4, 3, 3, 3), pads=[1, 1, 1, 1])
    onnx.save(net.output(net.op("Relu", y, output="y")).model(), tmp_path / "net.onnx")
    output = tmp_path / "net.opsnn"
    assert ops_nn("compile", tmp_path / "net.onnx", "-o", output)[0] == 0
    assert Model(output).inputs[0].dims == (-1, 3, -1, -1)
    assert ops_nn("compile", tmp_path / "net.onnx", "-o", output, "--shape", "x=1x3x8x6", "--io-layout", "nhwc")[0] == 0
    assert Model(output).inputs[0].dims == (1, 8, 6, 3)
    assert ops_nn("compile", tmp_path / "net.onnx", "-o", output, "--shape", "batch=2")[0] == 0
    assert Model(output).inputs[0].dims == (2, 3, -1, -1)
    code, _, err = ops_nn("compile", tmp_path / "net.onnx", "-o", output, "--shape", "z=1x3")
    assert code == 1 and "'z'" in err and "x" in err
    assert ops_nn("compile", tmp_path / "net.onnx", "-o", output)[0] == 0
    code, _, err = ops_nn("run", output)
    assert code == 1 and "give --shape x=DIMS" in err
    code, _, err = ops_nn("explain", output)
    assert code == 1 and "give --shape x=DIMS" in err
    assert ops_nn("run", output, "--shape", "x=1x3x8x6")[0] == 0


def test_all_problems_at_once(ops_nn: Run, tmp_path: Path) -> None:
    net = Net()
    y = net.op("NonZero", net.op("LSTMish", net.input((1, 3)), name="first"), name="second")
    onnx.save(net.output(y).model(), tmp_path / "net.onnx")
    code, out, err = ops_nn("compile", tmp_path / "net.onnx", "-o", tmp_path / "net.opsnn")
    assert code == 1 and not out and "'first'" in err and "'second'" in err and "Traceback" not in err
    assert not (tmp_path / "net.opsnn").exists()
    with pytest.raises(ModelError) as caught:
        compile_model(tmp_path / "net.onnx")
    assert len(caught.value.problems) == 2


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.opsnn"
    compiler.save(path, b"old")
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"m\.opsnn cannot be written: No space left on device"):
        compiler.save(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileError, match=r"nowhere.*cannot be written"):
        compiler.save(tmp_path / "nowhere" / "m.opsnn", b"new")


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        compiler.save(pipe, b"model")
        assert os.read(reader, 100) == b"model"
        assert pipe.is_fifo()
    finally:
        os.close(reader)
    with pytest.raises(FileError, match="/dev/full cannot be written: No space left on device"):
        compiler.save("/dev/full", b"model")


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- run, explain, info ------------------------------------------------------------------------------------------------------


def test_run_reads_and_writes_arrays(ops_nn: Run, squeeze: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    x.tofile(tmp_path / "x.raw")
    expected = Model(compile_model(squeeze)[0]).session().run(x)["y"]
    for name in ("x.npy", "x.raw"):
        y = tmp_path / f"y-{name}"
        code, out, err = ops_nn("run", squeeze, "--input", f"x={tmp_path / name}", "--output", f"y={y}", "--repeat", "3")
        assert code == 0 and "y: float32[1x16x8x8]" in out and "3 runs: median" in out, err
        result = np.load(y) if name.endswith(".npy") else np.fromfile(y, np.float32).reshape(expected.shape)
        assert_array_equal(result, expected)
    (tmp_path / "short.raw").write_bytes(b"1234")
    for words, says in (
        (["--input", f"x={tmp_path / 'short.raw'}"], "has 4 bytes; 'x', f32[1x3x16x16], has 3072"),
        (["--input", f"q={tmp_path / 'x.npy'}"], "'q': the model's inputs are x"),
        (["--output", "q=q.npy"], "--output q: the model's outputs are y"),
        (["--repeat", "0"], "at least one run"),
        (["--input", f"x={tmp_path / 'none.npy'}"], "none.npy cannot be read"),
    ):
        code, _, err = ops_nn("run", squeeze, *words)
        assert code == 1 and says in err


def test_explain(ops_nn: Run, squeeze: Path) -> None:
    code, out, err = ops_nn("explain", squeeze)
    assert code == 0, err
    assert "join" in out and "concat_any_any_ref" in out and "MACs" in out and "arena" in out
    assert "cannot: not a depthwise convolution" in out
    brief = ops_nn("explain", squeeze, "--brief")[1]
    assert "cannot:" not in brief and len(brief) < len(out)


def test_explain_for_a_board(ops_nn: Run, squeeze: Path, tmp_path: Path, armhf_build: Build) -> None:
    code, out, err = ops_nn("explain", squeeze, "--target", "raspberrypi-zero", "--brief")
    assert code == 0 and "raspberrypi-zero: arm with no special features" in out and "neon" not in out, err
    out = ops_nn("explain", squeeze, "--target", "raspberrypi-4b", "--brief")[1]
    assert "raspberrypi-4b: aarch64 with neon, fma, a64" in out
    out = ops_nn("explain", squeeze, "--target", armhf_build.dir / "config.json", "--brief")[1]
    assert "arm with neon, fma\n" in out
    out = ops_nn("explain", squeeze, "--target", '{"name": "mine", "arch": "arm", "gflops": 1e-6}')[1]
    assert "mine: arm" in out
    for text, says in (
        ("raspberrypi-9", "nor a board; boards are beaglebone-black"),
        ("{", "no JSON"),
        ('{"a": 1}', "field 'a'"),
    ):
        code, _, err = ops_nn("explain", squeeze, "--target", text)
        assert code == 2 and says in err


def test_info(ops_nn: Run, squeeze: Path, tmp_path: Path, armhf_build: Build) -> None:
    ops_nn("compile", squeeze, "-o", tmp_path / "net.opsnn")
    code, out, err = ops_nn("info", tmp_path / "net.opsnn", "--tensors")
    assert code == 0 and "x: f32[1x3x16x16]" in out and "conv2d" in out and "squeeze.onnx" in out, err
    code, out, err = ops_nn("info", armhf_build.stripped, "--tensors")
    assert code == 0 and "ARM (32-bit, hard-float)" in out and "arm-linux-gnueabihf" in out, err
    assert "conv2d_f32_nhwc_gemm_neon" in out
    code, out, err = ops_nn("info", squeeze)
    assert code == 1 and f"compile it first: ops-nn compile {squeeze}" in err


# --- trimming ----------------------------------------------------------------------------------------------------------------


def test_kernels_for_a_target(host_build: Build, squeeze: Path) -> None:
    library = lib.library(host_build.lib)
    data, _ = compile_model(squeeze, library=library)
    neon = kernels_for(data, Target("a", "arm", ("neon", "fma")), library)
    plain = kernels_for(data, Target("b", "arm"), library)
    assert any(k.endswith("_neon") for k in neon.kernels) and not any("neon64" in k for k in neon.kernels)
    assert all(k.endswith("_ref") for k in plain.kernels) and neon.ops == plain.ops
    few = kernels_for(data, Target("a", "arm", ("neon", "fma")), library, few=True)
    assert len(few.kernels) <= len(neon.kernels) and few.ops == neon.ops


def test_targets_as_configure_writes_them() -> None:
    features = ["neon", "fma", "a64", "fp16", "dotprod"]
    facts = {"name": "t", "arch": "aarch64", "features": features, "n_threads": 4, "gflops": 8.0, "gbytes_per_s": 4.0}
    assert common.target_from(facts).features == tuple(features)
    assert common.target_from({**facts, "isas": ["ref", "neon", "neon64"]}).features == ("neon", "fma", "a64")
    assert common.target_from({**facts, "isas": ["ref", "neon", "neondot"]}).features == ("neon", "fma", "dotprod")


@pytest.fixture(scope="module")
def dogs() -> Path:
    try:
        return get.network("mobilenetv2-dogs")
    except FetchError as error:
        pytest.skip(f"the network cannot be had: {error}")


@pytest.fixture(scope="module")
def trimmed(make_build: Callable[..., Build], dogs: Path) -> Build:
    """This machine's library with what the dog network needs and nothing else."""
    return make_build("test-trimmed", f"--model={dogs}", "--disable-unused-ops")


def test_a_trimmed_library_runs_its_model(trimmed: Build, host_build: Build, ops_nn: Run, dogs: Path) -> None:
    own = trimmed.dir / "models" / "mobilenetv2-dogs.opsnn"
    small, full = lib.library(trimmed.lib), lib.library(host_build.lib)
    assert set(small.kernels()) < set(full.kernels())
    x = np.random.default_rng(0).standard_normal((1, *Model(own, full).inputs[0].dims[1:])).astype(np.float32)
    (ours,), (theirs,) = (Model(own, library).session().run(x).values() for library in (small, full))
    assert_array_equal(ours, theirs)
    assert trimmed.stripped.stat().st_size < host_build.stripped.stat().st_size * 0.6
    code, out, err = ops_nn("check", own, trimmed.stripped)
    assert code == 0 and "runs" in out and not err


def test_a_trimmed_library_refuses_another_model(trimmed: Build, host_build: Build, squeeze: Path, ops_nn: Run) -> None:
    data, _ = compile_model(squeeze, library=lib.library(host_build.lib))
    with pytest.raises(UnsupportedOperator) as caught:
        Model(data, lib.library(trimmed.lib)).session()
    said = str(caught.value)
    assert "join" in said and "concat" in said and "configure.py --ops=+concat" in said
    code, out, err = ops_nn("check", squeeze, trimmed.stripped)
    assert code == 1 and not err
    assert "lacking: concat, for node 'join" in out and "lacking: max_pool, for node 'pool" in out
    assert re.search(r"--model=mobilenetv2-dogs\.onnx --disable-unused-ops --ops=\+(clip,)?concat,max_pool && scons", out)


def test_the_configure_line_brings_it_back(
    trimmed: Build, dogs: Path, squeeze: Path, ops_nn: Run, make_build: Callable[..., Build]
) -> None:
    out = ops_nn("check", squeeze, trimmed.stripped)[1]
    (line,) = (text for text in out.splitlines() if "./configure.py" in text)
    words = shlex.split(line.replace("mobilenetv2-dogs.onnx", str(dogs)).split("&&")[0])[1:]
    again = make_build("test-trimmed-again", *words)
    assert ops_nn("check", squeeze, again.stripped)[0] == 0
    assert ops_nn("check", dogs, again.stripped)[0] == 0
    data, _ = compile_model(squeeze)
    x = np.ones((1, 3, 16, 16), np.float32)
    ours, theirs = (Model(data, library).session().run(x)["y"] for library in (lib.library(again.lib), lib.library()))
    assert_array_equal(ours, theirs)


def test_check_of_a_board(ops_nn: Run, squeeze: Path, armhf_build: Build, aarch64_build: Build) -> None:
    for build in (armhf_build, aarch64_build):
        code, out, err = ops_nn("check", squeeze, build.stripped)
        assert code == 0 and f"runs {squeeze} on" in out and "slower" not in out, err


def test_a_model_that_configure_cannot_compile(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"nonsense")
    done = configure("--build-dir", tmp_path / "out", f"--model={tmp_path / 'net.onnx'}", "--disable-unused-ops")
    assert done.returncode != 0 and "net.onnx" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_kernels_for_open_dimensions(host_build: Build, tmp_path: Path) -> None:
    library = lib.library(host_build.lib)
    net = Net()
    y = net.op("Conv", net.input(("n", 3, "h", "w")), net.weights(8, 3, 3, 3))
    onnx.save(net.output(net.op("Relu", y)).model(), tmp_path / "net.onnx")
    assert "conv2d" in kernels_for(compile_model(tmp_path / "net.onnx", library=library)[0], library=library).ops
    with pytest.raises(ShapeError, match=r"planned for in0=1x224, in1=1x224x7, as dimensions are open"):
        kernels_for(elementwise("add", [("n", "k"), ("n", "k", 7)]), library=library)
    few = kernels_for(elementwise("add", [("n", "k"), ("n", "k")]), library=library, shapes=[(2, 3), (2, 3)])
    assert few.ops == ("add",)
