"""What a shared library's file says about itself, read with the standard library alone and without loading it.

A library for another machine gets a plain sentence rather than the loader's text, and a PC can look into a board's library.
"""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import dataclass
from typing import BinaryIO, Optional, Union

from .errors import LibraryError

_MACHINES = {3: "x86", 8: "MIPS", 20: "PowerPC", 21: "PowerPC", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}
_ARM, _HARD, _SOFT = 40, 0x400, 0x200  # e_machine, EF_ARM_ABI_FLOAT_HARD, EF_ARM_ABI_FLOAT_SOFT
_SHARED = 3  # e_type
# configure.py's name for what a machine needs.
_TARGETS = {("ARM", 32): "arm-linux-gnueabihf", ("AArch64", 64): "aarch64-linux-gnu", ("x86-64", 64): "x86_64-linux-gnu"}


@dataclass(frozen=True)
class Machine:
    """What an ELF file runs on: machine by name, its word in bits, byte order, and on ARM how floats are passed (else '')."""

    name: str
    bits: int
    little: bool
    floats: str

    def __str__(self) -> str:
        floats = f"{self.floats}-float" if self.floats else ""
        detail = (f"{self.bits}-bit", floats, "" if self.little else "big-endian")
        return f"{self.name} ({', '.join(filter(None, detail))})"

    @property
    def target(self) -> Optional[str]:
        """The --target of configure.py that builds for it."""
        return _TARGETS.get((self.name, self.bits)) if self.little and self.floats != "soft" else None


class Elf:
    """An ELF file's header and sections. LibraryError if the bytes are none, or are damaged."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = os.fspath(path)
        try:
            with open(self.path, "rb") as file:
                self._read(file)
        except OSError as error:
            raise LibraryError(f"{self.path} cannot be read: {error.strerror}") from None
        except (struct.error, IndexError, ValueError, OverflowError):
            raise LibraryError(f"{self.path} is damaged or cut short: its ELF headers do not fit") from None

    def _read(self, file: BinaryIO) -> None:
        ident = file.read(16)
        if ident[:4] != b"\x7fELF":
            what = "empty" if not ident else "no shared library (it does not start as an ELF file does)"
            raise LibraryError(f"{self.path} is {what}")
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise LibraryError(f"{self.path} is damaged: an ELF file of class {ident[4]}, byte order {ident[5]}")
        bits = 32 * ident[4]
        order = "<" if ident[5] == 1 else ">"
        word = "I" if bits == 32 else "Q"
        # e_type machine version | entry phoff shoff | flags ehsize phentsize phnum shentsize shnum shstrndx
        head = struct.Struct(f"{order}HHI{word * 3}I6H")
        self.type, machine, _, _, _, table, flags, _, _, _, stride, count, names = head.unpack(file.read(head.size))
        floats = "hard" if flags & _HARD else "soft" if flags & _SOFT else ""
        name = _MACHINES.get(machine, f"machine {machine}")
        self.machine = Machine(name, bits, order == "<", floats if machine == _ARM else "")
        self._sections: list[tuple[int, int, int]] = []  # name, offset, bytes
        section = struct.Struct(f"{order}II{word * 4}II{word * 2}")
        self._names = b""
        if table == 0 or count == 0:
            return
        for i in range(count):
            file.seek(table + i * stride)
            fields = section.unpack(file.read(section.size))
            self._sections.append((fields[0], fields[4], fields[5]))
        self._names = self._bytes(file, *self._sections[names][1:])

    def _bytes(self, file: BinaryIO, offset: int, size: int) -> bytes:
        if offset + size > os.fstat(file.fileno()).st_size:
            raise LibraryError(f"{self.path} is damaged or cut short: a section lies beyond the file's end")
        file.seek(offset)
        return file.read(size)

    @property
    def shared(self) -> bool:
        return bool(self.type == _SHARED)

    def section(self, name: str) -> Optional[bytes]:
        """The bytes of the section of that name, or None."""
        for start, offset, size in self._sections:
            if self._names[start : self._names.find(b"\0", start)] == name.encode():
                with open(self.path, "rb") as file:
                    return self._bytes(file, offset, size)
        return None


def this_machine() -> Optional[Machine]:
    """What this very Python runs on. The kernel's word would not do: a 64-bit kernel may run a 32-bit Python."""
    for path in ("/proc/self/exe", sys.executable):
        try:
            return Elf(path).machine
        except LibraryError:
            pass
    return None


def misfit(library: Machine, python: Machine) -> Optional[str]:
    """Why a library cannot be loaded here, and the remedy; None if it fits. Float rules count where both sides tell theirs."""
    same = (library.name, library.bits, library.little) == (python.name, python.bits, python.little)
    if same and (library.floats == python.floats or not library.floats or not python.floats):
        return None
    remedy = f"; build it with: configure.py --target={python.target}" if python.target else ""
    return f"it is a library for {library}, but this Python is a program for {python}{remedy}"
