"""Kernels against the portable reference (tests/check): on this machine and on emulated CPUs, and with CPU features masked.

The default run has enough cases to meet every tail of every kernel; `pytest --long` runs many more.
"""
from __future__ import annotations

import os
import re
import subprocess

import pytest
from conftest import ENVIRONMENT, Build

CASES = 250
LONG = 5000


def check(build: Build, cpu: str, cases: int, *options: str, mask: str = "") -> subprocess.CompletedProcess[str]:
    emulator = build.emulator_as(cpu) if cpu else build.emulator
    env = {**ENVIRONMENT, **({"OPSNN_CPU_MASK": mask} if mask else {})}
    command = [*emulator, str(build.check), "--cases", str(cases), *options]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def summary(done: subprocess.CompletedProcess[str]) -> tuple[int, int, int, int]:
    """kernels, cases, failures, kernels skipped"""
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    found = re.fullmatch(r"(\d+) kernels, (\d+) cases, (\d+) failures, (\d+) kernels skipped", last)
    assert found, f"check died: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    kernels, cases, failures, skipped = (int(n) for n in found.groups())
    return kernels, cases, failures, skipped


def fast_kernels(build: Build) -> int:
    return sum(not k.endswith("_ref") for k in build.kernels)


MACHINES = [
    pytest.param("host_build", "", id="host"),
    pytest.param("armhf_build", "cortex-a7", id="armhf-a7"),
    pytest.param("aarch64_build", "cortex-a53", id="aarch64-a53"),
    pytest.param("aarch64_build", "cortex-a72", id="aarch64-a72"),
    pytest.param("aarch64_build", "max", id="aarch64-max"),
]


@pytest.mark.parametrize(("fixture", "cpu"), MACHINES)
def test_kernels_equal_the_reference(fixture: str, cpu: str, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(fixture)
    cases = LONG if request.config.getoption("--long") else CASES
    done = check(build, cpu, cases)
    kernels, ran, failures, skipped = summary(done)
    assert failures == 0, "\n".join(line for line in done.stdout.splitlines() if line.startswith("not ok"))
    # Today's kernels need nothing beyond NEON and fused multiply-add, which all these CPUs have.
    assert (kernels, skipped) == (fast_kernels(build), 0)
    assert ran > kernels * cases // 20


@pytest.mark.parametrize("fixture", ["host_build", "armhf_build"])
def test_masked_features_leave_no_fast_kernel(fixture: str, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(fixture)
    kernels, _, failures, skipped = summary(check(build, "", 1, mask="0"))
    assert (kernels, failures, skipped) == (0, 0, fast_kernels(build))


@pytest.mark.parametrize("fixture", ["host_build", "armhf_build", "aarch64_build"])
def test_the_harness_notices_broken_kernels(fixture: str, request: pytest.FixtureRequest) -> None:
    done = check(request.getfixturevalue(fixture), "", 200, "--self-test")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^[1-9]\d* faults, 0 missed$", done.stdout, re.M)


def test_another_seed_gives_other_cases_and_no_failure(host_build: Build) -> None:
    seed = os.environ.get("OPSNN_CHECK_SEED", "20240229")
    _, _, failures, _ = summary(check(host_build, "", CASES, "--seed", seed))
    assert failures == 0


def test_unknown_options_are_refused(host_build: Build) -> None:
    assert check(host_build, "", 1, "--frobnicate").returncode == 2
