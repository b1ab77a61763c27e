"""Run a program on an emulated board and count the instructions of its marked regions."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from benchmarks.board import ARCHS, ROOT, BoardError, board_command, board_environment

SOURCE = ROOT / "benchmarks" / "icount.c"
PLUGIN = ROOT / "build" / "icount.so"


@dataclass(frozen=True)
class CountedRun:
    """What a program printed, and what was counted while it ran."""

    output: str
    total: int  # instructions of the whole run
    regions: list[int]  # instructions of each region, from a mark to the next
    hottest: list[dict[str, Any]]  # blocks of instructions, as icount.c describes them


@dataclass(frozen=True)
class Measured:
    """One engine on one network and board."""

    instructions: float  # of one inference
    milliseconds: float  # of one inference, emulated: only ratios within one run mean something
    peak_rss_bytes: int  # of the whole process, the emulator's own memory included
    library_bytes: int  # stripped
    arena_bytes: int | None = None  # for activations

    @staticmethod
    def of(run: CountedRun, library_bytes: int) -> Measured:
        """From the JSON object that the program printed, with the names of ops-nn-run --json."""
        told = json.loads(run.output)
        return Measured(
            instructions=statistics.median(run.regions),
            milliseconds=statistics.median(told["times_ns"]) / 1e6,
            peak_rss_bytes=told["peak_rss_bytes"],
            library_bytes=library_bytes,
            arena_bytes=told.get("arena_bytes"),
        )


def plugin() -> Path:
    """Return the instruction counter, building it with this PC's compiler if need be."""
    if PLUGIN.exists() and PLUGIN.stat().st_mtime > SOURCE.stat().st_mtime:
        return PLUGIN
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise BoardError("counting instructions needs a C compiler: apt-get install gcc")
    PLUGIN.parent.mkdir(parents=True, exist_ok=True)
    temporary = PLUGIN.with_name(f"{PLUGIN.name}.{os.getpid()}")
    command = [compiler, "-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"]
    subprocess.run([*command, "-o", temporary, SOURCE], check=True)
    temporary.replace(PLUGIN)
    return PLUGIN


def run_counted(
    arch: str,
    command: Sequence[str | os.PathLike[str]],
    cpu: str | None = None,
    hottest: int = 0,
) -> CountedRun:
    """Run a program of the board (given by its path on this PC) under the counter.

    The program marks where each region starts and where it ends, so every second one is between
    regions and is left out. Raises BoardError with what the program printed if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="icount-") as folder:
        counts = Path(folder) / "counts.json"
        options = f"{plugin()},out={counts},top={hottest}"
        line = board_command(arch, command, cpu, plugin=options)
        environment = board_environment()
        result = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
        if result.returncode or not counts.exists():
            said = (result.stderr + result.stdout).strip()
            program = Path(command[0]).name
            raise BoardError(f"{program} failed on the emulated {arch} board:\n{said}")
        counted = json.loads(counts.read_text())
    regions = [region["instructions"] for region in counted["regions"][::2]]
    total = counted["total"]["instructions"]
    return CountedRun(result.stdout, total, regions, counted["hottest"])


def by_function(run: CountedRun) -> dict[str, int]:
    """The instructions of a run's hottest blocks, summed by function; most first.

    Blocks without a file or a symbol are summed under the file's name.
    """
    sums: Counter[str] = Counter()
    files: dict[str, list[tuple[int, int, str]]] = {}
    for block in run.hottest:
        path = block["file"]
        if path and path not in files:
            files[path] = _functions(Path(path))
        names = [n for start, end, n in files.get(path, []) if start <= block["offset"] < end]
        sums[names[0] if names else Path(path).name or "elsewhere"] += block["instructions"]
    return dict(sums.most_common())


def _functions(path: Path) -> list[tuple[int, int, str]]:
    """Start and end in the file, and name, of each function of an ELF file."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
        found = []
        source = ""  # of the local symbols that follow
        for symbol in table.iter_symbols() if table else ():
            kind, binding = symbol["st_info"]["type"], symbol["st_info"]["bind"]
            if kind == "STT_FILE":
                source = symbol.name
            elif kind == "STT_FUNC" and symbol["st_size"]:
                address = symbol["st_value"] & ~1  # bit 0 says Thumb
                local = source and binding == "STB_LOCAL"
                name = f"{source}: {symbol.name}" if local else symbol.name
                for offset in elf.address_offsets(address):
                    found.append((offset, offset + symbol["st_size"], name))
        return found


def stripped_bytes(library: Path, arch: str) -> int:
    """The size of a library as it would be shipped: without symbols and debugging information."""
    strip = shutil.which(f"{ARCHS[arch].triple}-strip")
    if not strip:
        return library.stat().st_size
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([strip, "--strip-unneeded", "-o", file.name, library], check=True)
        return Path(file.name).stat().st_size
