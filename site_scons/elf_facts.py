"""What an ELF file says about itself: machine, Arm attributes, libraries, symbol versions."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import ARMAttributesSection

# Tag_CPU_arch of the "Addenda to the ABI for the Arm Architecture" for the values that occur on boards that run Linux.
_CPU_ARCH = {6: "v6", 7: "v6", 8: "v6", 9: "v6", 10: "v7", 14: "v8"}
_MACHINE = {"EM_ARM": "arm", "EM_AARCH64": "aarch64", "EM_X86_64": "x86_64"}


@dataclass(frozen=True)
class ElfFacts:
    machine: str  # arm, aarch64, x86_64, or ELF's own name
    arm_arch: str  # v6, v7 ...: the lowest Arm architecture that runs it; "" elsewhere
    arm_neon: bool  # its attributes admit NEON
    hard_float: bool  # floats are passed in VFP registers (32-bit Arm)
    needed: tuple[str, ...]  # shared libraries
    glibc: tuple[int, ...]  # newest GLIBC_x.y symbol version asked for; () for none
    tls: bool  # it has thread-local storage
    soname: str

    @property
    def level(self) -> str:
        """What a toolchain's level calls `elf`."""
        return self.arm_arch or self.machine


def read(path: Path) -> ElfFacts:
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        attributes: dict[str, int] = {}
        needed: list[str] = []
        soname = ""
        versions: list[tuple[int, ...]] = []
        for section in elf.iter_sections():
            if isinstance(section, ARMAttributesSection):
                for subsection in section.subsections:
                    for scope in subsection.subsubsections:
                        attributes.update({a.tag: a.value for a in scope.iter_attributes() if isinstance(a.value, int)})
            elif isinstance(section, DynamicSection):
                needed += [tag.needed for tag in section.iter_tags("DT_NEEDED")]
                soname = next((tag.soname for tag in section.iter_tags("DT_SONAME")), "")
            elif isinstance(section, GNUVerNeedSection):
                names = [aux.name for _, auxiliaries in section.iter_versions() for aux in auxiliaries]
                versions += [v for v in map(_glibc_version, names) if v]
        return ElfFacts(
            machine=_MACHINE.get(elf["e_machine"], str(elf["e_machine"])),
            arm_arch=_CPU_ARCH.get(attributes.get("TAG_CPU_ARCH", -1), ""),
            arm_neon=attributes.get("TAG_ADVANCED_SIMD_ARCH", 0) > 0,
            # Linkers say it in the attributes, in the header's flags (EF_ARM_ABI_FLOAT_HARD), or in both.
            hard_float=attributes.get("TAG_ABI_VFP_ARGS", 0) == 1 or bool(elf["e_flags"] & 0x400),
            needed=tuple(needed),
            glibc=max(versions, default=()),
            tls=any(segment["p_type"] == "PT_TLS" for segment in elf.iter_segments()),
            soname=soname,
        )


def _glibc_version(name: str) -> Optional[tuple[int, ...]]:
    prefix, _, version = name.partition("_")
    return tuple(int(part) for part in version.split(".")) if prefix == "GLIBC" and version[:1].isdigit() else None


def wheel_platform(path: Path) -> str:
    """The platform tag of a wheel that carries this library. From the file alone: what the build machine is does not matter."""
    facts = read(path)
    if facts.machine == "arm":
        if not facts.hard_float:
            raise ValueError(f"{path} uses the soft-float ABI, for which there is no wheel tag")
        return {"v6": "linux_armv6l", "v7": "linux_armv7l", "v8": "linux_armv7l"}[facts.arm_arch]
    return f"linux_{facts.machine}"
