"""The thread pool (thread_pool.c): under ThreadSanitizer, on one CPU, idle, shared, nested, forked, and under emulation."""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Build
from native import compile_program

Program = Callable[..., subprocess.CompletedProcess[str]]
STRESS = ["every_task_once", "shared_by_users", "nested", "made_and_freed", "fork"]


def program(build: Build, folder: Path) -> Program:
    objects = build.objects("core", "ops", "ref", "neon", "gen")
    binary = compile_program(build, "thread_pool.c", folder / "thread_pool", objects)
    return lambda name, **how: build.run(binary, name, **how)


@pytest.fixture(scope="session")
def host_pool(host_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return program(host_build, tmp_path_factory.mktemp("host_pool"))


@pytest.fixture(scope="session")
def armhf_pool(armhf_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return program(armhf_build, tmp_path_factory.mktemp("armhf_pool"))


@pytest.fixture(scope="session")
def tsan_pool(make_build: Callable[..., Build], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Only the pool and what it calls need the sanitizer: a build of one small operator."""
    build = make_build("test-tsan", "--sanitize=thread", "--ops=identity")
    return program(build, tmp_path_factory.mktemp("tsan_pool"))


def one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.parametrize("name", STRESS)
@pytest.mark.parametrize("cpus", ["all CPUs", "one CPU"])
@pytest.mark.parametrize("pool", ["tsan_pool", "host_pool"])
def test_stress(pool: str, cpus: str, name: str, request: pytest.FixtureRequest) -> None:
    run: Program = request.getfixturevalue(pool)
    done = run(name, preexec_fn=one_cpu if cpus == "one CPU" else None)
    assert done.returncode != -signal.SIGALRM, "deadlock"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["every_task_once", "made_and_freed"])
def test_stress_on_arm(armhf_pool: Program, name: str) -> None:
    done = armhf_pool(name)
    assert (done.returncode, done.stderr) == (0, "")


def cpu_ratio(run: Program, name: str, preexec_fn: Callable[[], None] | None = None) -> float:
    """CPU time with four threads over that with one: the best of three, since what else the machine does only adds to it."""
    ratios = []
    for _ in range(3):
        done = run(name, preexec_fn=preexec_fn)
        assert done.returncode == 0, done.stderr
        four, one = map(float, done.stdout.split())
        ratios.append(four / one)
    return min(ratios)


def test_four_threads_on_one_cpu_cost_little(host_pool: Program) -> None:
    """All there is to lose is CPU time, which other programs do not disturb as they do the clock on the wall."""
    assert cpu_ratio(host_pool, "busy", one_cpu) < 1.2


def test_an_idle_pool_uses_no_cpu(host_pool: Program) -> None:
    """Six runs a second, idle between them: workers that spin would use many times the work's CPU time."""
    assert cpu_ratio(host_pool, "idle") < 1.3
