"""audit.py LIBRARY CONFIG OUT: compares a linked library with what was configured.

Prints what is wrong and fails, or writes what it found to OUT. Instructions inside are tests/test_build.py's to look at.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import elf_facts

LIBRARIES = ("libc.so.", "libm.so.", "libpthread.so.", "ld-linux")


def faults(facts: elf_facts.ElfFacts, config: dict[str, Any]) -> list[str]:
    found = []
    if facts.level != config["elf"] and not config["user_flags"]:
        found.append(f"it is made for {facts.level}, configured was {config['elf']}")
    if facts.machine == "arm":
        if not facts.hard_float:
            found.append("it does not use the hard-float ABI")
        if facts.arm_neon and "neon" not in config["isa_flags"] and not config["user_flags"]:
            found.append("it was configured without NEON, but its attributes admit NEON instructions")
    if facts.tls:
        found.append("it has thread-local storage, for which a late dlopen may find no room")
    if not config["sanitize"]:
        others = [name for name in facts.needed if not name.startswith(LIBRARIES)]
        if others:
            found.append(f"it needs {', '.join(others)}: only libc, libm and libpthread may be needed")
    limit = tuple(int(part) for part in config["glibc_limit"].split(".") if part)
    if limit and facts.glibc > limit:
        needs = ".".join(map(str, facts.glibc))
        remedy = "configure with --toolchain=zig"
        found.append(f"it needs glibc {needs} and may need no more than {config['glibc_limit']}: {remedy}")
    return found


def main(library: str, config_file: str, out: str) -> int:
    facts = elf_facts.read(Path(library))
    wrong = faults(facts, json.loads(Path(config_file).read_text()))
    if wrong:
        print(f"{library} is not what was configured: {'; '.join(wrong)}", file=sys.stderr)
        return 1
    lines = [f"{name}: {value}" for name, value in vars(facts).items()]
    Path(out).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
