"""ncnn, measured as ops-nn is: in float32, on one thread, by the board's own Python."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import packages
from benchmarks.board import ROOT, BoardError, interpreter
from benchmarks.measure import Measured, run_counted, stripped_bytes
from models.fetch import fetch, publish

GUEST = ROOT / "benchmarks" / "ncnn_guest.py"


def convert(onnx: Path) -> Path:
    """Turn an ONNX file into ncnn's; return the path that .param and .bin have in common."""
    folder = ROOT / "build" / "bench" / "ncnn" / onnx.stem
    model = folder / "model.ncnn"
    if folder.is_dir() and folder.stat().st_mtime > onnx.stat().st_mtime:
        return model
    (program,) = fetch(packages.PNNX).rglob("pnnx/pnnx")
    program.chmod(0o755)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".convert-") as temporary:
        shutil.copy(onnx, Path(temporary) / "model.onnx")
        result = subprocess.run(
            [program, "model.onnx", "fp16=0"],  # 1 would round the weights to 16 bits
            cwd=temporary,
            capture_output=True,
            text=True,
            check=False,
        )
        new = Path(temporary) / "new"
        new.mkdir()
        for ending in (".param", ".bin"):
            made = Path(temporary) / f"model.ncnn{ending}"
            if result.returncode or not made.exists():
                raise BoardError(f"pnnx could not convert {onnx.name}:\n{result.stderr.strip()}")
            made.rename(new / made.name)
        shutil.rmtree(folder, ignore_errors=True)
        publish(new, folder)
    return model


def run(
    board: str, cpu: str, onnx: Path, values: np.ndarray, repeat: int
) -> tuple[Measured, np.ndarray]:
    """Measure inferences, and return the last one's output too.

    Raises BoardError if there is no ncnn for the board's Python, or it fails.
    """
    version = interpreter(board).resolve().name.removeprefix("python")
    package = packages.ncnn(board, version)
    if package is None:
        raise BoardError(
            f"no wheel of ncnn {packages.NCNN_VERSION} is known for {board} and Python {version}"
        )
    folder = fetch(package)
    with tempfile.TemporaryDirectory(prefix="ncnn-") as temporary:
        given, made = Path(temporary) / "input.npy", Path(temporary) / "output.npy"
        np.save(given, values)
        command: list[str | Path] = [
            interpreter(board),
            GUEST,
            f"--package={folder}",
            f"--model={convert(onnx)}",
        ]
        command += [f"--input={given}", f"--output={made}", f"--repeat={repeat}"]
        counted = run_counted(board, command, cpu)
        output = np.load(made)
    (library,) = folder.glob("ncnn/*.so")
    return Measured.of(counted, stripped_bytes(library, board)), output
