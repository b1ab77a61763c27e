"""CPU detection: features of emulated CPUs, the mask for tests, clusters, and machines that tell nothing."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, Build
from native import compile_program
from ops_nn import schema as S

Detect = Callable[..., dict[str, str]]


def features(text: str) -> int:
    return sum(1 << S.CPU_FEATURES.index(word) for word in text.split())


def detector(build: Build, folder: Path) -> Detect:
    binary = compile_program(build, "detect_cpu.c", folder / "detect_cpu", [build.lib])

    def detect(*emulator: str, **options: object) -> dict[str, str]:
        command = [*(emulator or build.emulator), str(binary)]
        done = subprocess.run(command, capture_output=True, text=True, **{"env": ENVIRONMENT, **options})  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    return detect


@pytest.mark.parametrize(
    ("fixture", "cpu", "expected"),
    [
        ("armhf_build", "cortex-a9", "neon"),
        ("armhf_build", "cortex-a7", "neon fma"),
        ("armhf_build", "cortex-a15", "neon fma"),
        ("aarch64_build", "cortex-a53", "neon fma a64"),
        ("aarch64_build", "cortex-a72", "neon fma a64"),
        ("aarch64_build", "cortex-a76", "neon fma a64 fp16 dotprod"),
        ("aarch64_build", "max", "neon fma a64 fp16 dotprod i8mm"),
    ],
)
def test_features(fixture: str, cpu: str, expected: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(fixture)
    found = detector(build, tmp_path)(*build.emulator_as(cpu))
    assert int(found["cpu"]) == features(expected)
    assert found["arch"] == ("1" if fixture == "armhf_build" else "2")


def one_cpu() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def test_this_machine(host_build: Build, tmp_path: Path) -> None:
    detect = detector(host_build, tmp_path)
    found = detect()
    assert int(found["cpu"]) & features("neon") and float(found["gflops"]) > 1 and float(found["gbytes_per_s"]) > 0
    assert 1 <= int(found["n_threads"]) <= len(os.sched_getaffinity(0))
    assert detect(preexec_fn=one_cpu)["n_threads"] == "1"


@pytest.mark.parametrize(("mask", "expected"), [("0", ""), ("1", "neon"), ("0x3", "neon fma"), ("-1", "neon fma a64")])
def test_mask_keeps_what_it_names(host_build: Build, tmp_path: Path, mask: str, expected: str) -> None:
    found = detector(host_build, tmp_path)(env={**ENVIRONMENT, "OPSNN_CPU_MASK": mask})
    assert int(found["cpu"]) == features(expected)


def test_mask_that_is_no_number(host_build: Build, tmp_path: Path) -> None:
    detect = detector(host_build, tmp_path)
    with pytest.raises(AssertionError, match="OPSNN_CPU_MASK is 'all'; it must be a number"):
        detect(env={**ENVIRONMENT, "OPSNN_CPU_MASK": "all"})


def test_clusters_and_boards(aarch64_build: Build, tmp_path: Path) -> None:
    """Files below QEMU's -L prefix stand in for the kernel's: two kinds of cores, the model of the board; then nothing."""
    emulator = aarch64_build.emulator
    sysroot = Path(emulator[emulator.index("-L") + 1])
    root = tmp_path / "root"
    root.mkdir()
    (root / "lib").symlink_to(sysroot / "lib")
    allowed = sorted(os.sched_getaffinity(0))
    facts = {"proc/device-tree/model": "Pine64 RockPro64 v2.1 with a name that is long\0"}
    for cpu in allowed:
        big = cpu == allowed[0]
        facts[f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"] = "1024\n" if big else "446\n"
        facts[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "1800000\n" if big else "1416000\n"
    for name, text in facts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    emulator[emulator.index("-L") + 1] = str(root)
    detect = detector(aarch64_build, tmp_path)
    found = detect(*emulator)
    assert found["name"] == "Pine64 RockPro64 v2.1 with a name that is long"[:31]
    assert (found["n_threads"], found["gflops"], found["gbytes_per_s"]) == ("1", "14.4", "3.6")
    for name in facts:
        (root / name).write_text("")  # there, but telling nothing
    found = detect(*emulator)
    assert (found["name"], found["n_threads"], found["gflops"]) == ("aarch64", str(len(allowed)), "8.0")
