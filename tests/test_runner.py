"""ops-nn-run: its command line, files of numpy, and what it prints, here and under emulation."""
from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Build, PathLike, run
from ops_nn.modelfile import ModelFile, NodeRecord, Tensor, write

SUM = np.arange(4, dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + [0, 1, 2, 3], z = tanh(y); x has an open dimension and an awkward name."""
    tensors = [
        Tensor("x=1", "f32", "input", (-1, 4)), Tensor("k", "f32", "const", (4,), SUM.tobytes()),
        Tensor("y", "f32", "value"), Tensor("z", "f32", "value"),
    ]  # fmt: skip
    nodes = [NodeRecord("plus", "add", "any", [0, 1], [2]), NodeRecord('the "end"', "tanh", "any", [2], [3])]
    path = tmp_path / "model.opsnn"
    path.write_bytes(write(ModelFile(tensors, nodes, [0], [2, 3])))
    return path


@pytest.mark.parametrize("fixture", ["host_build", "armhf_build", "aarch64_build"])
def test_files_in_and_out(fixture: str, model: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(fixture)
    x = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.raw").write_bytes(x.tobytes())
    outputs = ["--output", f"y={tmp_path}/y.npy", f"--output=z={tmp_path}/z.raw"]
    for source in (["--input", f"x=1={tmp_path}/x.npy"], ["--input", f"x=1={tmp_path}/x.raw", "--shape", "x=1=5x4"]):
        done = build.run(build.runner, model, *source, *outputs, "--repeat=3", "--warmup=1", "--threads=2")
        assert done.returncode == 0, done.stderr
        y = np.load(tmp_path / "y.npy")
        assert (y == x + SUM).all() and y.dtype == np.float32
        z = np.frombuffer((tmp_path / "z.raw").read_bytes(), np.float32).reshape(5, 4)
        np.testing.assert_allclose(z, np.tanh(x + SUM), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
def test_data_types(dtype: str, host_build: Build, tmp_path: Path) -> None:
    name = {"f": "f", "i": "s", "u": "u", "b": "bool"}[dtype[0]] + ("" if dtype == "b1" else str(8 * int(dtype[1])))
    tensors = [Tensor("x", name, "input", (2, 3)), Tensor("y", name, "value")]
    model = ModelFile(tensors, [NodeRecord("n", "identity", "any", [0], [1])], [0], [1])
    (tmp_path / "m.opsnn").write_bytes(write(model))
    x = np.arange(6).reshape(2, 3).astype(dtype)
    with (tmp_path / "x.npy").open("wb") as f:
        np.lib.format.write_array(f, x, version=(2, 0))
    for source in (f"{tmp_path}/x.npy", "random", "zeros"):
        options = ["--input", f"x={source}", "--output", f"y={tmp_path}/y.npy"]
        done = host_build.run(host_build.runner, tmp_path / "m.opsnn", *options)
        assert done.returncode == 0, done.stderr
        y = np.load(tmp_path / "y.npy")
        assert y.dtype == x.dtype and y.shape == x.shape
        if source == "random":
            assert len(np.unique(y)) > 1 and np.isfinite(y.astype(np.float64)).all() and (dtype[0] != "f" or abs(y).max() <= 1)
        else:
            assert (y == (x if source != "zeros" else 0)).all()


def test_random_numbers_are_the_same_everywhere(
    host_build: Build, armhf_build: Build, model: Path, tmp_path: Path
) -> None:
    found = []
    for build in (host_build, armhf_build):
        done = build.run(build.runner, model, "--shape", "x=1=3x4", "--output", f"y={tmp_path}/y.npy")
        assert done.returncode == 0, done.stderr
        found.append(np.load(tmp_path / "y.npy"))
    assert (found[0] == found[1]).all()


def test_json(host_build: Build, model: Path) -> None:
    options = ["--shape=x=1=3x4", "--json", "--times", "--repeat", "4", "--threads", "1", "--ref"]
    done = host_build.run(host_build.runner, model, *options)
    facts: dict[str, Any] = json.loads(done.stdout)
    assert (facts["n_nodes"], facts["threads"], len(facts["times_ns"])) == (2, 1, 4)
    assert facts["min_ns"] == facts["times_ns"][0] <= facts["median_ns"]
    assert facts["inputs"] == [{"name": "x=1", "dtype": "f32", "dims": [3, 4]}]
    assert [o["name"] for o in facts["outputs"]] == ["y", "z"]
    assert [(n["name"], n["op"], n["kernel"]) for n in facts["nodes"]] == [
        ("plus", "add", "add_f32_any_ref"), ('the "end"', "tanh", "tanh_f32_any_ref"),
    ]  # fmt: skip
    assert facts["arena_bytes"] >= 3 * 4 * 4 and facts["alloc_peak_bytes"] >= facts["arena_bytes"]
    assert 0 < facts["peak_rss_bytes"] < 2**30 and facts["macs"] > 0 and facts["predicted_ns"] > 0


def test_text(host_build: Build, model: Path) -> None:
    done = host_build.run(host_build.runner, model, "--shape=x=1=3x4", "--times", "--threads=1")
    assert all(part in done.stdout for part in ("2 nodes", "1 thread\n", "add_f32_any", "peak RSS"))


def test_marks(armhf_build: Build, model: Path) -> None:
    words: list[PathLike] = [*armhf_build.emulator, "-strace", armhf_build.runner, model]
    words += ["--shape=x=1=3x4", "--repeat=3", "--warmup=2"]
    assert run(*words, "--mark").stderr.count("close(-7701)") == 6
    assert run(*words).stderr.count("close(-7701)") == 0


def npy(path: Path, header: str, data: bytes = b"", version: int = 1) -> Path:
    text = header.encode()
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + data)
    return path


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEADER, "ends after 0 of 16 bytes"),
        (HEADER + "x" * 17, "has more than the 16 bytes that the input takes"),
        (HEADER.replace("<f4", "<f8"), "holds '<f8', .* but input 'x=1' is f32"),
        (HEADER.replace("<f4", ">f4"), "holds big-endian numbers: save it as '<f4'"),
        (HEADER.replace("False", "True"), "is in Fortran order"),
        (HEADER.replace("(1, 4)", "(1, -4)"), "has a shape that no tensor has"),
        (HEADER.replace("(1, 4)", "(1, 99999999999)"), "has a shape that no tensor has"),
        (HEADER.replace("(1, 4)", "(" + "1, " * 9 + ")"), "has a shape that no tensor has"),
        (HEADER.replace("(1, 4)", "(1, 4"), "has a shape that no tensor has"),
        (HEADER.replace("(1, 4)", "()"), "input 'x=1'"),
        (HEADER.replace("'shape'", "'form'"), "has no 'shape'"),
        (" " * 5000, "5000 bytes, more than any plain array's"),
    ],
)
def test_bad_npy(content: str, message: str, host_build: Build, model: Path, tmp_path: Path) -> None:
    header, newline, data = content.partition("\n")
    path = npy(tmp_path / "x.npy", header + newline, data.encode())
    done = host_build.run(host_build.runner, model, "--input", f"x=1={path}")
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize("n", range(0, 80, 7))
def test_npy_cut_off(n: int, host_build: Build, model: Path, tmp_path: Path) -> None:
    path = npy(tmp_path / "x.npy", HEADER, bytes(16))
    path.write_bytes(path.read_bytes()[:n])
    done = host_build.run(host_build.runner, model, "--input", f"x=1={path}")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, "", "which model?"),
        (2, "MODEL", "input 'x=1' is ?x4: give its shape, --shape x=1=..."),
        (2, "MODEL MODEL", "one model at a time"),
        (2, "MODEL --frobnicate", "unknown option '--frobnicate'"),
        (2, "MODEL --repeatx=3", "unknown option '--repeatx=3'"),
        (2, "MODEL --repeat 0", "--repeat takes a number of at least 1, not '0'"),
        (2, "MODEL --threads -1", "--threads takes a number of at least 0, not '-1'"),
        (2, "MODEL --repeat", "--repeat needs a value"),
        (2, "MODEL --input q=zeros", "--input q=zeros: write NAME=VALUE with one of the model's tensors 'x=1'"),
        (2, "MODEL --shape x=1=3x4 --output w=f.npy", "one of the model's tensors 'y', 'z'"),
        (2, "MODEL --shape x=1=3x", "'3x' is no shape"),
        (2, "MODEL --shape x=1=3,4", "'3,4' is no shape"),
        (1, "MODEL --shape x=1=3x5", "dimension 1 is fixed in the model"),
        (1, "MODEL --shape x=1=3x4 --threads 1000", "at most 256 are possible"),
        (1, "MODEL --input x=1=/nowhere/x.npy", "cannot open '/nowhere/x.npy': No such file or directory"),
        (1, "MODEL --shape x=1=3x4 --output y=/nowhere/y.npy", "cannot create '/nowhere/y.npy': No such file"),
        (1, "/nowhere/model.opsnn", "cannot open '/nowhere/model.opsnn'"),
    ],
)
def test_errors(code: int, arguments: str, message: str, host_build: Build, model: Path) -> None:
    done = host_build.run(host_build.runner, *(str(model) if word == "MODEL" else word for word in arguments.split()))
    assert (done.returncode, done.stdout) == (code, "") and message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_and_version(host_build: Build) -> None:
    done = host_build.run(host_build.runner, "--help")
    assert done.returncode == 0 and all(group in done.stdout for group in ("tensors:", "running:", "printing:"))
    assert all(len(line) <= 128 for line in done.stdout.splitlines())
    assert host_build.run(host_build.runner, "--version").stdout.startswith("ops-nn-run 0.")
