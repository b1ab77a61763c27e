"""Builds that tests share: made once, through configure.py and scons as a user would, and kept up to date in build/."""
from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# Variables that change a build must not leak in from the shell that runs the tests.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "LDFLAGS", "OPS_NN_LIB", "OPSNN_CPU_MASK")}

os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(BUILD / "hypothesis"))  # not into the source tree

PathLike = Union[str, Path]


@dataclass(frozen=True)
class Build:
    """A finished build."""

    dir: Path
    config: dict[str, Any]

    @property
    def lib(self) -> Path:
        return self.dir / "libops_nn.so"

    @property
    def stripped(self) -> Path:
        """The library as it is installed."""
        return self.dir / "stripped" / "libops_nn.so"

    @property
    def runner(self) -> Path:
        return self.dir / "ops-nn-run"

    @property
    def check(self) -> Path:
        """The kernel test program; compiled when it is first asked for."""
        scons(self.dir, str((self.dir / "ops-nn-check").relative_to(ROOT)))
        return self.dir / "ops-nn-check"

    @property
    def emulator(self) -> list[str]:
        """What runs the target's programs here; [] for this machine itself."""
        return list(self.config["emulator"])

    def emulator_as(self, cpu: str) -> list[str]:
        """The same with another CPU model."""
        words = self.emulator
        words[words.index("-cpu") + 1] = cpu
        return words

    def run(self, *command: PathLike, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a program of the target, emulated where necessary."""
        return run(*self.emulator, *command, **options)

    @property
    def kernels(self) -> list[str]:
        """The kernels inside, by name."""
        return re.findall(r"^extern const opsnn_kernel opsnn_k_(\w+);", (self.dir / "gen" / "opsnn_table.c").read_text(), re.M)

    def objects(self, *folders: str) -> list[Path]:
        return sorted(p for folder in folders for p in (self.dir / "obj" / folder).glob("*.o"))


def run(*command: PathLike, **options: Any) -> subprocess.CompletedProcess[str]:
    merged: dict[str, Any] = {"capture_output": True, "text": True, "cwd": ROOT, "env": ENVIRONMENT, **options}
    return subprocess.run([str(word) for word in command], **merged)


def configure(*options: PathLike, **run_options: Any) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, ROOT / "configure.py", *options, **run_options)


def scons(directory: PathLike, *targets: PathLike, **run_options: Any) -> subprocess.CompletedProcess[str]:
    """scons for a build directory; fails the test with scons' words unless check=False."""
    check = run_options.pop("check", True)
    done = run(sys.executable, "-m", "SCons", "-Q", f"build={directory}", *targets, **run_options)
    assert not check or done.returncode == 0, f"scons {directory} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def build(name: str, *options: PathLike) -> Build:
    """Configures and builds in build/<name>; cheap where nothing has changed. The lock is for test runs side by side."""
    directory = BUILD / name
    BUILD.mkdir(exist_ok=True)
    strict = ["--werror"] if os.environ.get("CI") else []  # a newcomer's newer compiler may warn of things unheard of
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = configure(*options, *strict, "--build-dir", directory)
        assert done.returncode == 0, f"configure.py {options} failed:\n{done.stdout}\n{done.stderr}"
        scons(directory)
    return Build(directory, json.loads((directory / "config.json").read_text()))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="long sweeps: every kernel over thousands of cases, longer fuzzing")


@pytest.fixture(autouse=True)
def keep_current() -> Iterator[None]:
    """A test run leaves the developer's own choice of build alone."""
    pointer = BUILD / "current"
    before = pointer.read_text() if pointer.exists() else None
    yield
    if before is None:
        pointer.unlink(missing_ok=True)
    elif pointer.read_text() != before:
        pointer.write_text(before)


@pytest.fixture(scope="session")
def make_build() -> Callable[..., Build]:
    """make_build("test-NAME", "--option", ...): a build of one's own in build/test-NAME."""
    return build


@pytest.fixture(scope="session")
def host_build() -> Build:
    """This machine, every operator, NEON kernels through SIMDe: the library that also plans for boards."""
    return build("host")


@pytest.fixture(scope="session")
def armhf_build() -> Build:
    """arm-linux-gnueabihf with NEON, every operator."""
    return build("test-armhf", "--target=arm-linux-gnueabihf", "--enable-neon")


@pytest.fixture(scope="session")
def aarch64_build() -> Build:
    """aarch64-linux-gnu, every operator."""
    return build("test-aarch64", "--target=aarch64-linux-gnu")


@pytest.fixture(scope="session")
def sanitized_build() -> Build:
    """This machine, every operator, under AddressSanitizer and UndefinedBehaviorSanitizer."""
    return build("test-asan", "--sanitize=address,undefined")
