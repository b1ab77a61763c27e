"""size_report.py BUILD: where the bytes of a build's library are."""
from __future__ import annotations

import sys
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile


def sections(path: Path) -> dict[str, int]:
    """Bytes of each section that is loaded, by name."""
    with path.open("rb") as stream:
        return {
            s.name: s["sh_size"]
            for s in ELFFile(stream).iter_sections()
            if s["sh_flags"] & SH_FLAGS.SHF_ALLOC and s["sh_size"]
        }


def object_sizes(path: Path) -> tuple[int, int, int]:
    """Code, constants and data of an object file. With -ffunction-sections their names only begin alike."""
    found = sections(path)
    return (
        sum(n for name, n in found.items() if name.startswith(".text")),
        sum(n for name, n in found.items() if name.startswith((".rodata", ".data.rel.ro"))),
        sum(n for name, n in found.items() if name.startswith((".data", ".bss")) and not name.startswith(".data.rel.ro")),
    )


def main(build: str) -> None:
    library = Path(build) / "stripped" / "libops_nn.so"
    print(f"{library}: {library.stat().st_size} bytes\n")
    for name, size in sorted(sections(library).items(), key=lambda item: -item[1]):
        print(f"{size:>9}  {name}")
    rows = [(object_sizes(p), p) for f in ("core", "ops", "ref", "neon", "gen") for p in (Path(build) / "obj" / f).glob("*.o")]
    print("\nObjects, before the linker drops what nobody uses:\n\n     code  constants     data")
    for (code, constants, data), path in sorted(rows, key=lambda row: (-sum(row[0]), row[1])):
        print(f"{code:>9}  {constants:>9}{data:>9}  {path.relative_to(Path(build) / 'obj')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
