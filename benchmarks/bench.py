#!/usr/bin/env python3
"""Measure ops-nn beside ncnn on emulated boards: instructions, time, memory and size of libraries.

    scons bench                                  everything
    scons bench args="--network mobilenetv2-224 --board armhf"
    scons bench args=--save                      keeps the figures in benchmarks/results/

Instructions are exact and compare across machines. Emulated milliseconds only mean something as
ratios of rows measured together. Both engines compute in float32 on one thread, and both outputs
are compared with ONNX Runtime's. The peak of resident memory is that of the whole process: it
includes the emulator's own, and ncnn's is run by Python with NumPy.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby, product
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # started by path: make the repository's packages importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benchmarks import ncnn_peer, ours
from benchmarks.board import ARCHS, ROOT, BoardError
from benchmarks.measure import Measured
from benchmarks.packages import NCNN_VERSION
from models import get
from models.card import Card
from models.fetch import FetchError, write_atomic

NETWORKS = ("mobilenetv2-224", "efficientnet-lite0")
REPEAT = 3  # inferences of which the median counts
ENGINES = ("ops-nn", "ncnn")
TOLERANCE = 1e-3  # beyond this error (relative to the largest output) an answer is called wrong

console = Console()


@dataclass(frozen=True)
class Row:
    """One line of the table. `error` is relative to the largest magnitude of ONNX Runtime's."""

    network: str
    board: str
    cpu: str
    engine: str
    measured: Measured
    error: float


def reference(onnx: Path, card: Card, values: np.ndarray) -> np.ndarray:
    """ONNX Runtime's output, natively on this PC."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    (output,) = session.run([card.output], {card.input: values})
    return np.asarray(output).reshape(-1)


def picture_like(card: Card) -> np.ndarray:
    """Numbers between -1 and 1 in the place of a picture, the same each time."""
    size = card.preprocessing.size
    generator = np.random.Generator(np.random.PCG64(0))
    return (generator.random((1, 3, size, size)) * 2 - 1).astype(np.float32)


def build(board: str, networks: list[Path]) -> ours.Build:
    """The library for a board, trimmed to the networks."""
    return ours.build(board, networks, ROOT / "build" / "bench" / ARCHS[board].triple)


def measure(networks: list[Path], boards: list[str], engines: list[str]) -> Iterator[Row]:
    """Measure engine after engine, so that times that are compared are taken close together.

    An engine that fails is reported and left out.
    """
    for board, path in product(boards, networks):
        cpu, card = ARCHS[board].cpu, Card.of(path)
        values = picture_like(card)
        wanted = reference(path, card, values)
        for engine in engines:
            try:
                with console.status(f"{engine}: {card.name} on {board} ({cpu})"):
                    if engine == "ncnn":
                        measured, output = ncnn_peer.run(board, cpu, path, values, REPEAT)
                    else:
                        names = (card.input, card.output)
                        built = build(board, networks)
                        measured, output = ours.run(built, cpu, path, values, names, REPEAT)
            except BoardError as error:
                console.print(f"{engine} failed: {error}", style="red", markup=False)
                continue
            difference = np.abs(output.reshape(-1) - wanted).max() / np.abs(wanted).max()
            yield Row(card.name, board, cpu, engine, measured, float(difference))


def profile(networks: list[Path], boards: list[str]) -> None:
    """Print which functions of ops-nn the instructions of an inference go to."""
    for board, path in product(boards, networks):
        card = Card.of(path)
        names = (card.input, card.output)
        built = build(board, networks)
        sums = ours.profile(built, ARCHS[board].cpu, path, picture_like(card), names)
        total = sum(sums.values())
        console.print(f"\n{card.name} on {board}: {total / 1e6:.1f} M instructions")
        for name, count in sums.items():
            if count > total / 1000:
                line = f"{count / 1e6:9.2f} M {100 * count / total:5.1f} %  {name}"
                console.print(line, highlight=False, soft_wrap=True)


def table(rows: list[Row]) -> Table:
    """The figures of one network on one board for people; time ratios are to the first row."""
    made = Table(
        title=f"{rows[0].network} on {rows[0].board} ({rows[0].cpu})", title_justify="left"
    )
    made.add_column("engine", no_wrap=True)
    for heading in ("M instr", "ms", "ratio", "arena", "peak RSS", "library", "error"):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        figures = row.measured
        made.add_row(
            row.engine,
            f"{figures.instructions / 1e6:.1f}",
            f"{figures.milliseconds:.0f}",
            f"{figures.milliseconds / rows[0].measured.milliseconds:.2f}",
            "" if figures.arena_bytes is None else f"{figures.arena_bytes / 2**20:.2f} MiB",
            f"{figures.peak_rss_bytes / 2**20:.1f} MiB",
            f"{figures.library_bytes / 2**10:.0f} KiB",
            f"{row.error:.0e}" if row.error <= TOLERANCE else f"[red]{row.error:.0e} wrong[/red]",
        )
    return made


def save(rows: list[Row]) -> Path:
    """Keep the figures with what they depend on."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    emulator = subprocess.run(
        [ARCHS["arm64"].emulator, "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
    path = ROOT / "benchmarks" / "results" / f"{commit or 'unknown'}.json"
    record = {
        "commit": commit,
        "machine": platform.machine(),
        "emulator": emulator,
        "rows": [asdict(row) for row in rows],
    }
    write_atomic(path, json.dumps(record, indent=1) + "\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", action="append", choices=NETWORKS, help="repeatable")
    parser.add_argument("--board", action="append", choices=ARCHS, help="repeatable")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="repeatable")
    parser.add_argument("--profile", action="store_true", help="ops-nn's instructions by function")
    parser.add_argument("--save", action="store_true", help="write to benchmarks/results/")
    options = parser.parse_args()
    boards = options.board or list(ARCHS)
    try:
        networks = [get.network(name) for name in options.network or NETWORKS]
        if options.profile:
            profile(networks, boards)
            return 0
        rows = list(measure(networks, boards, options.engine or list(ENGINES)))
    except (FetchError, BoardError) as error:
        print(f"bench.py: {error}", file=sys.stderr)
        return 1
    if not rows:
        return 1
    console.print(
        f"One inference in float32 on one thread. ncnn is {NCNN_VERSION}. Times are emulated; "
        "errors are relative to ONNX Runtime's largest output."
    )
    for _, group in groupby(rows, key=lambda row: (row.network, row.board)):
        console.print(table(list(group)))
    if options.save:
        print(save(rows).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
