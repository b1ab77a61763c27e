"""ops-nn itself: configured, built and run for an emulated board."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.board import ARCHS, ROOT, BoardError
from benchmarks.measure import CountedRun, Measured, by_function, run_counted


@dataclass(frozen=True)
class Build:
    """A library, trimmed to some networks, with these networks beside it."""

    board: str
    folder: Path

    @property
    def library(self) -> Path:
        """The library as it is shipped."""
        return self.folder / "stripped" / "libops_nn.so"

    def model(self, onnx: Path) -> Path:
        """The compiled form of a network that the build was configured with."""
        return self.folder / "models" / f"{onnx.stem}.opsnn"


Runner = Callable[[Sequence[str]], None]


def with_python(command: Sequence[str]) -> list[str]:
    """A command that a user would type, for this Python and its packages."""
    if command[0] == "scons":
        return [sys.executable, "-m", "SCons", *command[1:]]
    return [sys.executable, *command]


def run_quietly(command: Sequence[str]) -> None:
    """Run a command in the repository. Raises BoardError with all its output if it fails."""
    result = subprocess.run(
        with_python(command),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        raise BoardError(f"{shlex.join(command)} failed:\n{result.stdout.strip()}")


def build(
    board: str,
    networks: Sequence[Path],
    folder: Path | None = None,
    options: Sequence[str] = (),
    run: Runner = run_quietly,
) -> Build:
    """Configure and build for a board, exactly as a user would; a second time does little.

    Without a folder, the build lies where configure.py puts it. Raises BoardError if a step fails.
    """
    target = ARCHS[board].triple
    configure = ["./configure.py", f"--target={target}", "--enable-neon"]
    configure += [f"--model={shown(path)}" for path in networks]
    configure += ["--disable-unused-ops", *options]
    scons = ["scons", "-Q"]
    if folder:
        configure.append(f"--build-dir={shown(folder)}")
        scons.append(f"build={shown(folder)}")
    run(configure)
    run(scons)
    return Build(board, folder or ROOT / "build" / target)


def shown(path: Path) -> str:
    """A path as short as can be for the repository as working directory."""
    relative = os.path.relpath(path, ROOT)
    return str(path) if relative.startswith("..") else relative


EVERY_BLOCK = 1_000_000


def profile(
    built: Build, cpu: str, onnx: Path, values: np.ndarray, names: tuple[str, str]
) -> dict[str, int]:
    """The instructions of one inference by function, most first."""
    with tempfile.TemporaryDirectory(prefix="ops-nn-") as temporary:
        counted, _ = _run(built, cpu, onnx, values, names, 1, Path(temporary), EVERY_BLOCK)
    return by_function(counted)


def run(
    built: Build,
    cpu: str,
    onnx: Path,
    values: np.ndarray,
    names: tuple[str, str],
    repeat: int = 1,
) -> tuple[Measured, np.ndarray]:
    """Measure inferences on one thread; return the output too. `names` are of input and output."""
    with tempfile.TemporaryDirectory(prefix="ops-nn-") as temporary:
        counted, output = _run(built, cpu, onnx, values, names, repeat, Path(temporary))
    return Measured.of(counted, built.library.stat().st_size), output


def _run(
    built: Build,
    cpu: str,
    onnx: Path,
    values: np.ndarray,
    names: tuple[str, str],
    repeat: int,
    folder: Path,
    hottest: int = 0,
) -> tuple[CountedRun, np.ndarray]:
    given, made = folder / "input.npy", folder / "output.npy"
    np.save(given, values)
    command: list[str | Path] = [built.folder / "ops-nn-run", built.model(onnx), "--threads=1"]
    command += ["--mark", "--json", f"--repeat={repeat}", f"--input={names[0]}={given}"]
    command.append(f"--output={names[1]}={made}")
    return run_counted(built.board, command, cpu, hottest), np.load(made)
