"""The example of docs/adding-a-kernel.md is compiled as it stands there and passes the kernel tests."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def example() -> tuple[str, str]:
    """File stem and text of the kernel."""
    text = (ROOT / "docs" / "adding-a-kernel.md").read_text()
    found = re.search(r"`src/neon/(\w+)\.c`:\n\n```c\n(.*?)```", text, re.S)
    assert found, "the page has an example"
    return found[1], found[2]


def test_the_example_is_not_in_the_tree_yet(example: tuple[str, str]) -> None:
    assert not (ROOT / "src" / "neon" / f"{example[0]}.c").exists(), "the page's example needs another operator"


def test_the_example_passes(example: tuple[str, str], tmp_path: Path) -> None:
    stem, text = example
    kernel = tmp_path / f"{stem}.c"
    kernel.write_text(text)
    reference = stem.replace("_neon", "_ref")
    command = [sys.executable, "src/gen.py", "--out", str(tmp_path), "--kernels", f"{stem} {reference}"]
    subprocess.run(command, cwd=ROOT, check=True)
    sources = [kernel, tmp_path / "opsnn_table.c", ROOT / "src" / "ref" / f"{reference}.c"]
    for folder in ("src/core", "src/ops", "tests/check"):
        sources += sorted((ROOT / folder).glob("*.c"))
    program = tmp_path / "check"
    command = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", "src", "-I", "src/core", "-I", str(tmp_path)]
    command += [*map(str, sources), "-lm", "-lpthread", "-o", str(program)]
    subprocess.run(command, cwd=ROOT, check=True)
    done = subprocess.run([str(program), "--only", stem, "--cases", "100"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert f"ok {stem}: 100 cases" in done.stdout
