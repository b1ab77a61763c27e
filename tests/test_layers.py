"""Arrows point down only: the rules between layers, read from includes, imports and symbols."""
from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Build, run
from elftools.elf.elffile import ELFFile

SRC = ROOT / "src"
PACKAGE = ROOT / "python" / "ops_nn"

OS_HEADERS = {"unistd.h", "fcntl.h", "pthread.h", "sched.h", "signal.h", "dlfcn.h", "time.h", "errno.h"}
ISA_HEADERS = {"arm_neon.h", "arm_sve.h", "arm_acle.h", "immintrin.h"}
# No storage, no printing, no way out: kernels and rules only compute.
FORBIDDEN_IN_KERNELS = {"stdio.h", "stdlib.h", "malloc.h"} | OS_HEADERS


# --- C: includes ------------------------------------------------------------------------------------------------------------


def includes(path: Path) -> set[str]:
    return set(re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.M))


def c_files(folder: str) -> list[Path]:
    found = sorted(p for p in (SRC / folder).rglob("*.[ch]"))
    assert found or folder == "opencl", f"src/{folder} is empty"
    return found


def own(path: Path, name: str) -> str:
    """The folder below src/ that an include leads to; "" for the public header, generated ones and the system's."""
    for base in (path.parent, SRC, SRC / "core"):
        target = (base / name).resolve()
        if target.exists() and SRC in target.parents:
            return target.relative_to(SRC).parts[0] if target.parent != SRC else ""
    return ""


# Layer -> folders it may include from, besides the public header.
MAY_INCLUDE = {
    "core": {"core"},
    "ops": {"core", "ops"},
    "ref": {"core", "ops", "ref"},
    "neon": {"core", "ops", "ref", "neon"},
    "opencl": {"core", "ops", "opencl"},
    "tools": {"tools"},  # a program like any user's: the public header is enough
}


@pytest.mark.parametrize("layer", MAY_INCLUDE)
def test_includes_point_down(layer: str) -> None:
    wrong = [
        f"{path.relative_to(SRC)} includes {name}"
        for path in c_files(layer)
        for name in includes(path)
        if own(path, name) and own(path, name) not in MAY_INCLUDE[layer]
    ]
    assert not wrong


def test_nobody_includes_c_files() -> None:
    assert not [f"{p}: {n}" for p in SRC.rglob("*.[ch]") for n in includes(p) if n.endswith(".c")]


def test_core_internals_stay_in_core() -> None:
    """Of the core, operators and kernels know the contract in kernel.h and nothing else."""
    internal = {p.name for p in (SRC / "core").glob("*.h")} - {"kernel.h"}
    files = [p for layer in ("ops", "ref", "neon") for p in c_files(layer)]
    assert not [f"{p.relative_to(SRC)}: {n}" for p in files for n in includes(p) if Path(n).name in internal]


@pytest.mark.parametrize("layer", ["ops", "ref", "neon"])
def test_kernels_and_rules_only_compute(layer: str) -> None:
    allowed = {"stdio.h"} if layer == "ops" else set()  # rules format their error texts
    for path in c_files(layer):
        found = includes(path)
        assert not (found & FORBIDDEN_IN_KERNELS) - allowed and not any(n.startswith("sys/") for n in found), path
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
        assert not re.search(r"\b(malloc|calloc|realloc|free|printf|abort|exit)\s*\(", text), path


def test_portable_code_names_no_isa() -> None:
    for path in [p for layer in ("core", "ops", "ref") for p in c_files(layer)]:
        assert not includes(path) & ISA_HEADERS, path
        if path.parent.name != "core":  # the core detects CPUs
            assert not re.search(r"__ARM_|__aarch64__|__SSE|__AVX|\basm\b", path.read_text()), path


def test_library_never_prints_or_exits(host_build: Build) -> None:
    """Looked up where it cannot be hidden by a macro: in the symbols that the library asks for."""
    with host_build.lib.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()
        wanted = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF"}
    printing = {"printf", "fprintf", "puts", "fputs", "putchar", "perror", "stdout", "stderr"}
    assert not wanted & (printing | {"abort", "exit", "_exit", "__assert_fail"})


# --- C: symbols -------------------------------------------------------------------------------------------------------------


def global_symbols(path: Path) -> set[str]:
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        return {s.name for s in table.iter_symbols() if s["st_info"]["bind"] != "STB_LOCAL" and s["st_shndx"] != "SHN_UNDEF"}


@pytest.mark.parametrize("which", ["host_build", "armhf_build", "aarch64_build"])
def test_one_global_per_kernel(which: str, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(which)
    kernels = build.objects("ref", "neon")
    assert kernels
    for path in kernels:
        assert global_symbols(path) == {f"opsnn_k_{path.stem}"}, path
    for path in build.objects("ops"):
        assert global_symbols(path) == {f"opsnn_rule_{path.stem}"}, path


def public_functions() -> set[str]:
    header = (SRC / "ops_nn.h").read_text()
    region = header[header.index("/* cdef begin") : header.index("/* cdef end */")]
    region = re.sub(r"/\*.*?\*/|^#[^\n]*", "", region, flags=re.S | re.M)
    return set(re.findall(r"\b(opsnn_\w+)\s*\([^;{]*\)\s*;", region))


@pytest.mark.parametrize("which", ["host_build", "armhf_build", "aarch64_build"])
def test_exported_symbols_are_the_public_header(which: str, request: pytest.FixtureRequest) -> None:
    build: Build = request.getfixturevalue(which)
    with build.stripped.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()
        exported = {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL" and s.name}
    # What GNU ld adds to every 32-bit Arm library, and marks as its own.
    exported -= {"_init", "_fini", "__bss_start", "__bss_start__", "__bss_end__", "_bss_end__", "__end__", "_end", "_edata"}
    declared = public_functions()
    assert len(declared) > 20
    assert exported == declared


@pytest.mark.parametrize("language", ["c", "c++"])
def test_public_header_stands_alone(language: str, tmp_path: Path) -> None:
    alone = tmp_path / "ops_nn.h"  # copied away, so that nothing of ours is beside it
    alone.write_text((SRC / "ops_nn.h").read_text())
    assert includes(alone) <= {"stddef.h", "stdint.h"}
    source = f'#include "{alone}"\nint main(void) {{ return (int)sizeof(opsnn_error) == 0; }}\n'
    standard = {"c": "-std=c99", "c++": "-std=c++11"}[language]
    command = ["gcc", "-x", language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-"]
    done = run(*command, input=source)
    if language == "c++" and ("cc1plus" in done.stderr or "not installed" in done.stderr):
        pytest.skip("this machine's gcc has no C++")
    assert done.returncode == 0, done.stderr


# --- Python: imports --------------------------------------------------------------------------------------------------------


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, absolute; relative ones are resolved against ops_nn."""
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts if PACKAGE in path.parents else ()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level] if node.level else ()
            base = [*above, *([node.module] if node.module else [])]
            names = [".".join([*base, alias.name]) for alias in node.names]
            # "from . import ir" names modules, "from .ir import Graph" names things inside one.
            yield from (n if module_exists(n) else ".".join(base) for n in names)


def module_exists(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def modules(*patterns: str) -> list[Path]:
    return sorted(p for pattern in patterns for p in PACKAGE.glob(pattern))


def ours(path: Path) -> set[str]:
    """The modules of ops_nn that a file imports, without the package's name."""
    return {m.partition(".")[2] for m in imports(path) if m.split(".")[0] == "ops_nn"}


@pytest.mark.parametrize("name", ["schema.py", "gen.py"])
def test_generator_needs_the_standard_library_only(name: str) -> None:
    assert {m.split(".")[0] for m in imports(SRC / name)} <= {*sys.stdlib_module_names, "schema"}


def test_ir_knows_the_schema_only() -> None:
    assert ours(PACKAGE / "ir.py") <= {"schema", "errors"}


def test_passes_know_the_ir_only() -> None:
    for path in modules("passes/*.py", "grad.py"):
        extra = {m for m in ours(path) if m.split(".")[0] not in ("ir", "schema", "errors", "shapes", "passes")}
        assert not extra, f"{path.name} imports {extra}"


def test_cffi_is_used_by_lib_alone() -> None:
    for path in modules("**/*.py"):
        if path.name not in ("lib.py", "_abi.py"):
            assert not {"cffi", "_cffi_backend", "ctypes"} & {m.split(".")[0] for m in imports(path)}, path
            assert "ops_nn._abi" not in set(imports(path)), path


def test_nothing_imports_tools_or_tests() -> None:
    for path in modules("**/*.py"):
        if "tools" not in path.parts and path.name != "__main__.py":
            assert not {m for m in ours(path) if m.split(".")[0] == "tools"}, path
        assert not {"tests", "benchmarks", "demo", "pytest", "conftest"} & {m.split(".")[0] for m in imports(path)}, path


def test_the_board_needs_numpy_and_cffi_only() -> None:
    """What `import ops_nn` and running a model load: nothing that a small board lacks."""
    todo, seen = ["__init__", "lib", "runtime"], set()
    while todo:
        name = todo.pop()
        path = PACKAGE / f"{name}.py"
        if name in seen or not path.exists():
            continue
        seen.add(name)
        for node in ast.parse(path.read_text()).body:  # imports inside functions are made when needed
            if isinstance(node, ast.ImportFrom) and node.level:
                todo += [node.module] if node.module else [a.name for a in node.names]
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                foreign = {n.split(".")[0] for n in names} - sys.stdlib_module_names - {"numpy", "ops_nn", "cffi"}
                assert not foreign, f"{path.name} imports {foreign}"
