"""Compiles the tests' own C programs the way a build compiled its library."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from conftest import ROOT, Build, PathLike, run


def compile_program(build: Build, source: str, output: Path, link: Iterable[PathLike], *options: str) -> Path:
    """tests/<source> as a program. link: the objects or libraries that it needs; libraries are found where they lie."""
    config = build.config
    flags = [*config["flags"], *config["opt_flags"], *config["user_flags"]]
    parts = [str(part) for part in link]
    rpaths = [f"-Wl,-rpath,{Path(part).parent}" for part in parts if part.endswith(".so")]
    done = run(
        *config["cc"], "-std=c11", "-Wall", "-Wextra", "-D_FILE_OFFSET_BITS=64", *flags, *options,
        f"-I{ROOT / 'src'}", f"-I{ROOT / 'src' / 'core'}", f"-I{build.dir / 'gen'}",
        ROOT / "tests" / source, *parts, *rpaths, "-lm", "-lpthread", "-o", output,
    )  # fmt: skip
    assert done.returncode == 0, f"{source} does not compile:\n{done.stderr[-4000:]}"
    return output
