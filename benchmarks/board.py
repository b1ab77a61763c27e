#!/usr/bin/env python3
"""An emulated ARM board: a Debian or Ubuntu system with Python under build/roots/, run by QEMU.

    python benchmarks/board.py armhf                    make the root and print where it is
    python benchmarks/board.py arm64 -c 'import numpy'  run the board's Python

The packages come from the machine's own package sources through apt with a private state, so the
machine's packages, lists and settings are not touched, and no root rights are needed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
ROOTS = ROOT / "build" / "roots"
# the last two are for other engines' wheels, which expect them on every board
PACKAGES = ("python3", "python3-numpy", "python3-cffi-backend", "libstdc++6", "libgomp1")

_console = Console(stderr=True)


class BoardError(Exception):
    """The board cannot be made or run; the text says what to do about it."""


@dataclass(frozen=True)
class Arch:
    """What differs between the two kinds of board."""

    name: str  # Debian's name
    triple: str  # GNU's name, which also names folders of libraries
    emulator: str
    cpu: str  # the one that is emulated unless another is asked for
    cpuinfo: str  # the part of /proc/cpuinfo that engines read features from


ARCHS = {
    arch.name: arch
    for arch in (
        Arch(
            "armhf",
            "arm-linux-gnueabihf",
            "qemu-arm",
            "cortex-a7",
            "Features\t: half thumb fastmult vfp edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32 lpae\n"
            "CPU implementer\t: 0x41\nCPU architecture: 7\nCPU variant\t: 0x0\n"
            "CPU part\t: 0xc07\nCPU revision\t: 5\n",
        ),
        Arch(
            "arm64",
            "aarch64-linux-gnu",
            "qemu-aarch64",
            "cortex-a72",
            "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
            "CPU part\t: 0xd08\nCPU revision\t: 3\n",
        ),
    )
}


def board_root(name: str, roots: Path = ROOTS) -> Path:
    """Return the root folder of the board "armhf" or "arm64", making it if it is not there yet.

    Raises BoardError if the packages cannot be had.
    """
    arch = ARCHS[name]
    root = roots / name
    stamp = root / ".packages"
    wanted = " ".join(PACKAGES) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return root
    for tool in ("apt-get", "dpkg-deb", "tar"):
        if not shutil.which(tool):
            raise BoardError(f"making an emulated board needs {tool}: use Debian or Ubuntu")
    roots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=roots) as temporary:
        new = Path(temporary) / "root"
        with _console.status(f"fetching Python for an emulated {name} board (about 25 MB)"):
            archives = _download(arch, Path(temporary) / "apt")
        with _console.status(f"unpacking {len(archives)} packages for {name}"):
            _unpack(archives, new)
        cpus = "".join(f"processor\t: {i}\nBogoMIPS\t: 108.00\n{arch.cpuinfo}\n" for i in range(4))
        (new / "proc").mkdir(exist_ok=True)
        # QEMU shows guests the PC's own file otherwise, and engines find no ARM features in it
        (new / "proc" / "cpuinfo").write_text(cpus)
        (new / ".packages").write_text(wanted)
        if root.exists():
            root.rename(Path(temporary) / "old")
        try:
            new.rename(root)
        except OSError:  # another process was faster
            if not stamp.exists():
                raise
    return root


def board_command(
    name: str,
    command: Sequence[str | os.PathLike[str]],
    cpu: str | None = None,
    plugin: str | None = None,
) -> list[str]:
    """The command line that runs a program (a path of this PC) on the board.

    `plugin` is a QEMU plugin's path with its options: "icount.so,out=counts".
    """
    arch = ARCHS[name]
    emulator = shutil.which(arch.emulator)
    if not emulator:
        raise BoardError(f"{arch.emulator} is missing: apt-get install qemu-user")
    line = [emulator, "-cpu", cpu or arch.cpu, "-L", str(board_root(name))]
    if plugin:
        line += ["-plugin", plugin]
    return line + [os.fspath(part) for part in command]


def interpreter(name: str) -> Path:
    """The board's Python. Started by this path, it finds its library beside itself."""
    return board_root(name) / "usr" / "bin" / "python3"


def board_environment() -> dict[str, str]:
    """This PC's environment without the settings that would only mislead a board's programs."""
    foreign = ("PYTHON", "LD_", "VIRTUAL_ENV", "OPENBLAS_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    environment.update(PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", OPENBLAS_NUM_THREADS="1")
    return environment


def board_python(
    name: str, arguments: Sequence[str], cpu: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that run the board's Python with some arguments."""
    return board_command(name, [interpreter(name), *arguments], cpu), board_environment()


def _download(arch: Arch, state: Path) -> list[Path]:
    """Fetch the packages and all that they need, and return the archives."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()  # nothing is installed: apt computes the full closure
    settings = {
        "APT::Architecture": arch.name,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "Debug::NoLocking": "true",  # the state is this process's own
    }
    sources = _ubuntu_ports(state / "sources.list")
    if sources:
        settings["Dir::Etc::SourceList"] = sources
        settings["Dir::Etc::SourceParts"] = "/dev/null"
    lines = [f'{key} "{value}";' for key, value in settings.items()]
    lines.append(f'APT::Architectures {{ "{arch.name}"; }};')
    config = state / "apt.conf"
    config.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}

    def apt(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["apt-get", "-qq", "-y", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    update = apt("update")  # may fail for a source that does not matter here, so go on
    install = apt("--download-only", "install", *PACKAGES)
    archives = sorted((state / "cache" / "archives").glob("*.deb"))
    if install.returncode or not archives:
        said = (update.stderr + install.stderr).strip().splitlines()
        details = "\n  ".join(line for line in said if line.startswith("E:"))
        raise BoardError(
            f"the machine's package sources give no Python for {arch.name}:\n  {details}\n"
            f"Check the network connection, and that a source in /etc/apt serves {arch.name} "
            "(Debian's own and ports.ubuntu.com do); then run the same command again."
        )
    return archives


def _ubuntu_ports(path: Path) -> Path | None:
    """On an Ubuntu PC, write a list of the sources that serve ARM: its own serve only x86."""
    release = (
        platform.freedesktop_os_release() if hasattr(platform, "freedesktop_os_release") else {}
    )
    if release.get("ID") != "ubuntu" or platform.machine() in ("aarch64", "armv7l"):
        return None
    code = release["VERSION_CODENAME"]
    path.write_text(
        "".join(
            "deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] "
            f"http://ports.ubuntu.com/ubuntu-ports {suite} main universe\n"
            for suite in (code, f"{code}-updates", f"{code}-security")
        )
    )
    return path


def _unpack(archives: Sequence[Path], root: Path) -> None:
    """Unpack without running any package's scripts, and do the little that they would have done."""
    for folder in ("bin", "sbin", "lib"):
        (root / "usr" / folder).mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    for archive in archives:
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE
        ) as unpacker:
            subprocess.run(
                ["tar", "-x", "--no-same-owner", "--keep-directory-symlink", "-C", root],
                stdin=unpacker.stdout,
                check=True,
            )
        if unpacker.returncode:
            raise BoardError(f"dpkg-deb could not unpack {archive.name}")
    # update-alternatives would link the default BLAS and LAPACK into the folder of libraries
    for kind in ("blas", "lapack"):
        for library in root.glob(f"usr/lib/*/{kind}/lib*.so.3"):
            link = library.parent.parent / library.name
            if not link.exists():
                link.symlink_to(Path(kind) / library.name)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arch", choices=ARCHS)
    parser.add_argument("--cpu", help="(before the board) such as cortex-a53")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="arguments for the board's Python"
    )
    options = parser.parse_args()
    try:
        if not options.arguments:
            print(board_root(options.arch))
            return 0
        command, environment = board_python(options.arch, options.arguments, options.cpu)
    except BoardError as error:
        print(f"board.py: {error}", file=sys.stderr)
        return 1
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
