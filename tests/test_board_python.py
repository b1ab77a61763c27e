"""The wheel on emulated boards: their own Python, numpy and cffi, 32 and 64 bits."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Build
from ops_nn import lib
from ops_nn.runtime import Model
from tiny import conv_sigmoid

from benchmarks.board import BoardError, board_python


@dataclass(frozen=True)
class Board:
    """A board on which the wheel is installed in `site`."""

    name: str
    build: Build
    site: Path

    def python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command, own = board_python(self.name, arguments)
        own.update({"PYTHONPATH": str(self.site), **environment})
        return subprocess.run(command, env=own, cwd=self.site, capture_output=True, text=True)


@pytest.fixture(scope="module", params=["armhf", "arm64"])
def board(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Board:
    build: Build = request.getfixturevalue({"armhf": "armhf_build", "arm64": "aarch64_build"}[request.param])
    site = tmp_path_factory.mktemp("site")
    try:
        board_python(request.param, [])
    except BoardError as error:
        pytest.skip(str(error))
    wheel = [sys.executable, str(ROOT / "site_scons/make_wheel.py"), str(build.dir), str(site / "dist")]
    subprocess.run(wheel, check=True, capture_output=True)
    (path,) = (site / "dist").glob("*.whl")
    # As pip does it on the board: it refuses a wheel of another platform.
    platform = path.stem.split("-")[-1]
    assert platform == {"armhf": "linux_armv7l", "arm64": "linux_aarch64"}[request.param]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(site)]
    subprocess.run([*pip, "--platform", platform, "--only-binary=:all:", str(path)], check=True)
    return Board(request.param, build, site)


def test_the_wheel_runs_a_model(board: Board, host_build: Build, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "m.opsnn").write_bytes(conv_sigmoid("h", 40))
    program = """
import json, sys
import numpy, ops_nn
folder = sys.argv[1]
session = ops_nn.Model(folder + "/m.opsnn").session(threads=2)
x = numpy.load(folder + "/x.npy")
y = session.run(x)["z"]
assert (session.run(x.astype(">f4"))["z"] == y).all() and session.run(x[:, :5])["z"].shape == (1, 5, 8, 40)
numpy.save(folder + "/y.npy", y)
library = ops_nn.library()
heavy = sorted({"onnx", "rich", "elftools"} & set(sys.modules))
print(json.dumps([str(library.path), library.target_detect().to_dict(), library.build_info()["target"], heavy]))
"""
    done = board.python("-c", program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    path, target, triple, heavy = json.loads(done.stdout)
    assert Path(path) == board.site / "ops_nn" / "libops_nn.so"
    assert target["arch"] == board.build.config["arch"] and "neon" in target["features"]
    assert triple == board.build.config["target"] and heavy == []
    here = Model(conv_sigmoid("h", 40), lib.library(host_build.lib)).session().run(x)["z"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), here, rtol=1e-5, atol=1e-6)


def test_the_command_line(board: Board, tmp_path: Path) -> None:
    (tmp_path / "m.opsnn").write_bytes(conv_sigmoid())
    done = board.python("-m", "ops_nn", "run", str(tmp_path / "m.opsnn"))
    assert done.returncode == 0 and "z: float32[1x8x8x4]" in done.stdout, done.stderr


def test_libraries_for_other_machines(board: Board, host_build: Build, armhf_build: Build, aarch64_build: Build) -> None:
    program = """
import sys, ops_nn
for path in sys.argv[1:]:
    try:
        ops_nn.Library(path)
    except ops_nn.LibraryError as error:
        print(error)
"""
    arm, arm64 = "ARM (32-bit, hard-float)", "AArch64 (64-bit)"
    here, other, theirs = (arm, arm64, aarch64_build) if board.name == "armhf" else (arm64, arm, armhf_build)
    done = board.python("-c", program, str(host_build.lib), str(theirs.lib))
    assert done.returncode == 0, done.stderr
    for line, machine in zip(done.stdout.splitlines(), ("x86-64 (64-bit)", other)):
        assert f"it is a library for {machine}, but this Python is a program for {here}" in line
        assert f"configure.py --target={board.build.config['target']}" in line
    assert len(done.stdout.splitlines()) == 2
