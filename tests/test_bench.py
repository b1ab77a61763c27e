"""The benchmark measures what it says it does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np

from benchmarks import bench, measure, ncnn_peer
from benchmarks.board import ARCHS
from models import get
from models.card import Card

PROGRAM = """
#include <unistd.h>
#include <sys/syscall.h>
static __attribute__((noinline)) void inner(void) {
    __asm__ volatile("movw r4, #1000\\n1: subs r4, r4, #1\\nbne 1b" ::: "r4", "cc");
}
int main(void) {
    syscall(SYS_close, -7701);
    for (int i = 0; i < 10; i++) inner();
    syscall(SYS_close, -7701);
    return 0;
}
"""


def test_instructions_are_told_by_function(tmp_path: Path) -> None:
    source, program = tmp_path / "inner.c", tmp_path / "program"
    source.write_text(PROGRAM)
    compiler = shutil.which("arm-linux-gnueabihf-gcc")
    assert compiler, "apt-get install gcc-arm-linux-gnueabihf"
    subprocess.run([compiler, "-O2", "-static", "-o", program, source], check=True)
    run = measure.run_counted("armhf", [program], hottest=1_000_000)
    functions = measure.by_function(run)
    name, count = next(iter(functions.items()))
    assert name == "inner.c: inner"
    assert 10 * 2001 <= count <= 10 * 2005  # the loop, and the little around it
    assert sum(functions.values()) == run.regions[0]


def test_ncnn_is_measured_and_right() -> None:
    path = get.network("mobilenetv2-224")
    card = Card.of(path)
    values = bench.picture_like(card)
    measured, output = ncnn_peer.run("armhf", ARCHS["armhf"].cpu, path, values, repeat=1)
    wanted = bench.reference(path, card, values)
    assert np.abs(output.reshape(-1) - wanted).max() < bench.TOLERANCE * np.abs(wanted).max()
    assert 100e6 < measured.instructions < 130e6
    assert measured.library_bytes > 7e6


def test_table_names_wrong_answers() -> None:
    figures = measure.Measured(1e6, 10.0, 2**20, 2**10, 2**21)
    rows = [
        bench.Row("net", "armhf", "cortex-a7", "ops-nn", figures, 1e-6),
        bench.Row("net", "armhf", "cortex-a7", "ncnn", figures, 0.5),
    ]
    with bench.console.capture() as capture:
        bench.console.print(bench.table(rows))
    assert capture.get().count("wrong") == 1
