"""Finding and loading the library, and what is said when it does not fit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Build
from ops_nn import errors, lib
from ops_nn import schema as S
from ops_nn.elf import Elf, Machine, misfit, this_machine
from ops_nn.errors import ArgumentError, LibraryError, ShapeError
from ops_nn.lib import Library, Target

ARM = Machine("ARM", 32, True, "hard")


def elf_header(machine: int, bits: int = 64, flags: int = 0, kind: int = 3) -> bytes:
    """An ELF file without sections."""
    word = "Q" if bits == 64 else "I"
    ident = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    return ident + struct.pack(f"<HHI{word * 3}I6H", kind, machine, 1, 0, 0, 0, flags, 64, 0, 0, 0, 0, 0)


@pytest.fixture
def library(host_build: Build) -> Library:
    return lib.library(host_build.lib)


# --- the file ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"MZ\x90\0" * 16, "is no shared library"),
        (b"\x7fELF", "damaged"),
        (b"\x7fELF\x07\x01\x01" + bytes(60), "damaged"),
        (elf_header(62)[:40], "damaged or cut short"),
        (elf_header(40, 32, 0x05000400), r"a library for ARM \(32-bit, hard-float\), but this Python is a program for x86-64"),
        (elf_header(183), r"a library for AArch64 \(64-bit\).*configure.py --target=x86_64-linux-gnu"),
        (elf_header(62, kind=1), "an object file or a program"),
    ],
)
def test_a_file_that_is_no_library_of_this_machine(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "libops_nn.so"
    path.write_bytes(data)
    with pytest.raises(LibraryError, match=says):
        Library(path)


def test_machines_that_do_and_do_not_fit() -> None:
    assert misfit(ARM, ARM) is None
    assert misfit(Machine("ARM", 32, True, ""), ARM) is None  # old linkers do not tell
    assert "soft-float" in str(misfit(Machine("ARM", 32, True, "soft"), ARM))
    assert "this Python is a program for ARM (32-bit, hard-float)" in str(misfit(Machine("AArch64", 64, True, ""), ARM))
    assert "--target=arm-linux-gnueabihf" in str(misfit(Machine("AArch64", 64, True, ""), ARM))
    assert "big-endian" in str(misfit(Machine("ARM", 32, False, "hard"), ARM))
    here = this_machine()
    assert here is not None and here.bits == 8 * struct.calcsize("P")


def test_every_truncation_of_a_library_is_told(host_build: Build, tmp_path: Path) -> None:
    whole = host_build.stripped.read_bytes()
    path = tmp_path / "cut.so"
    for n in (0, 1, 15, 16, 40, 63, 64, 1000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(LibraryError):
            lib.read_build_info(path)


def test_damaged_headers_end_in_one_kind_of_error(host_build: Build, tmp_path: Path) -> None:
    whole = host_build.stripped.read_bytes()
    (table,) = struct.unpack_from("<Q", whole, 40)
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.so"
    for _ in range(300):
        data = bytearray(whole)
        for place in (*random.integers(4, 64, 2), *random.integers(table, len(data), 3)):
            data[place] = random.integers(256)
        path.write_bytes(data)
        with contextlib.suppress(LibraryError):
            assert isinstance(lib.read_build_info(path), dict)


def test_build_info_is_read_without_loading(host_build: Build, library: Library) -> None:
    info = lib.read_build_info(host_build.stripped)
    assert info == library.build_info()
    assert info["version"] == S.VERSION
    assert sorted(info["kernels"]) == sorted(library.kernels())
    with pytest.raises(LibraryError, match="no ops-nn library"):
        lib.read_build_info(sys.executable)


@pytest.mark.parametrize(("build", "machine"), [("armhf_build", ARM), ("aarch64_build", Machine("AArch64", 64, True, ""))])
def test_libraries_of_boards(request: pytest.FixtureRequest, build: str, machine: Machine) -> None:
    board: Build = request.getfixturevalue(build)
    assert Elf(board.stripped).machine == machine
    info = lib.read_build_info(board.stripped)
    assert info["target"] == board.config["target"] and info["kernels"]
    with pytest.raises(LibraryError, match=f"a library for {machine.name}"):
        Library(board.lib)


def test_another_shared_library(host_build: Build, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("int answer(void) { return 42; }\n")
    shutil.copy(host_build.dir / "python/ops_nn/_abi.py", tmp_path)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "other.so", source], check=True)
    with pytest.raises(LibraryError, match="no ops-nn library: it has no function opsnn_abi_info"):
        Library(tmp_path / "other.so")


@pytest.mark.parametrize(
    ("version", "schema", "sizes", "says"),
    [
        (0x020000, None, None, r"is version 2\.0\.0 and the Python package"),
        (None, 1, None, "knows other operators"),
        (None, None, [8] * 7, "has structs of"),
    ],
)
def test_a_library_of_another_release(
    host_build: Build, tmp_path: Path, version: Any, schema: Any, sizes: Any, says: str
) -> None:
    own = lib.library(host_build.lib)._c.opsnn_abi_info()
    numbers = ", ".join(map(str, sizes or list(own.sizes)[:7]))
    version = own.version if version is None else version
    schema = own.schema if schema is None else schema
    source = tmp_path / "other.c"
    source.write_text(
        "#include <stdint.h>\nstruct abi { uint32_t version, n; uint64_t schema; uint32_t sizes[8]; };\n"
        f"struct abi *opsnn_abi_info(void) {{ static struct abi a = {{{version}, 7, {schema}u, {{{numbers}}}}}; return &a; }}\n"
    )
    shutil.copy(host_build.dir / "python/ops_nn/_abi.py", tmp_path)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "other.so", source], check=True)
    with pytest.raises(LibraryError, match=says) as caught:
        Library(tmp_path / "other.so")
    assert "rebuild it" in str(caught.value)


def test_glibc_that_is_too_old() -> None:
    text = lib._explain_dlopen(Path("/x/l.so"), "/lib/libc.so.6: version `GLIBC_2.99' not found (required by /x/l.so)")
    assert "/x/l.so needs glibc 2.99 and this system has" in text and "zig" in text
    assert lib._explain_dlopen(Path("/x/l.so"), "cannot load library '/x/l.so': /x/l.so: no") == "/x/l.so cannot be loaded: no"


def test_armv7_code_on_an_armv6_cpu(host_build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*kernel[:4], "armv6l")))
    monkeypatch.setattr(lib, "read_build_info", lambda path: {"elf": "v7"})
    with pytest.raises(LibraryError, match=r"built for ARMv7 and this CPU is an ARMv6.*raspberrypi-zero"):
        Library(host_build.lib)


# --- finding it --------------------------------------------------------------------------------------------------------------


def test_order_of_places(host_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "python" / "ops_nn"
    package.mkdir(parents=True)
    monkeypatch.setattr(lib, "_PACKAGE", package)
    monkeypatch.delenv(lib.ENVIRONMENT, raising=False)
    with pytest.raises(LibraryError, match=r"there is no libops_nn.so in .*configure.py && scons"):
        lib.find()
    for folder in ("build/mine", "build/host", "python/ops_nn"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / "current").write_text("mine\n")
        (tmp_path / folder / lib.FILE_NAME).touch()
        assert lib.find() == tmp_path / folder / lib.FILE_NAME
    monkeypatch.setenv(lib.ENVIRONMENT, str(host_build.lib))
    assert lib.find() == host_build.lib
    monkeypatch.setenv(lib.ENVIRONMENT, "/nowhere/lib.so")
    with pytest.raises(LibraryError, match=r"OPS_NN_LIB names /nowhere/lib\.so, which does not exist"):
        lib.find()


def test_the_same_file_is_loaded_once(host_build: Build) -> None:
    assert lib.library(host_build.lib) is lib.library(host_build.dir / "libops_nn.so.0")


def test_a_library_without_its_declarations(host_build: Build, tmp_path: Path) -> None:
    copy = tmp_path / "a" / "b" / "libops_nn.so"
    copy.parent.mkdir(parents=True)
    shutil.copy(host_build.stripped, copy)
    with pytest.raises(LibraryError, match=r"has no _abi.py beside it"):
        Library(copy)


def test_import_needs_numpy_and_cffi_only(host_build: Build) -> None:
    code = (
        "import sys; sys.modules['numpy.typing'] = sys.modules['onnx'] = None; "  # numpy before 1.21 has no NDArray there
        "import ops_nn, ops_nn.__main__, ops_nn.modelfile; ops_nn.library(); "
        "code = ops_nn.__main__.main(['explain', 'net.onnx']); "  # says what is missing
        "bad = {'google', 'rich', 'elftools', 'cffi', 'pycparser'} & set(sys.modules); "
        "sys.exit(f'imported {bad}' if bad else code - 1)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OPS_NN_LIB": str(host_build.lib)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pip install 'ops-nn[convert]'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_loading_leaves_floating_point_alone(library: Library) -> None:
    assert 1e-310 * 1.0 != 0.0


# --- calls -------------------------------------------------------------------------------------------------------------------


def test_every_status_has_an_exception(library: Library) -> None:
    names = [library.status_name(i) for i in (*errors.BY_STATUS, 0)]
    assert len(set(names)) == len(names) and names[-1] == "OPSNN_OK"
    assert all(name.startswith("OPSNN_E_") for name in names[:-1])


def test_infer(library: Library) -> None:
    conv = ("conv2d", "nhwc", {"pads": (1, 1, 1, 1), "strides": (2, 2)})
    assert library.infer(*conv, [("f32", (1, 9, 8, 3)), ("f32", (4, 3, 3, 3)), None]) == [("f32", (1, 5, 4, 4))]
    with pytest.raises(ShapeError, match="channels"):
        library.infer(*conv, [("f32", (1, 9, 8, 3)), ("f32", (4, 3, 3, 2)), None])
    with pytest.raises(ShapeError, match="has no attribute 'pad'"):
        library.infer("conv2d", "nhwc", {"pad": 1}, [("f32", (1, 9, 8, 3))])
    with pytest.raises(ShapeError, match="may have 8 dimensions"):
        library.infer("sigmoid", "any", {}, [("f32", (1,) * 9)])


def test_detected_target(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    target = library.target_detect()
    assert target.arch == {"x86-64": "x86_64", "AArch64": "aarch64", "ARM": "arm"}[Elf(sys.executable).machine.name]
    assert target.n_threads >= 1 and target.gflops > 0 and target.gbytes_per_s > 0
    assert Target.from_dict(json.loads(json.dumps(target.to_dict()))) == target


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"name": "t"}, "no field 'arch'"),
        ({"name": "t", "arch": "arm", "cpu": []}, "unknown field 'cpu'"),
        ({"name": "t", "arch": "mips"}, "arch 'mips' is none of any, arm"),
        ({"name": "t", "arch": "arm", "features": ["sse"]}, "CPU feature 'sse' is none of neon"),
        ({"name": "t", "arch": "arm", "gflops": 0}, "must be above zero"),
        ({"name": "t", "arch": "arm", "n_threads": "many"}, "target 't'"),
    ],
)
def test_targets_that_make_no_sense(facts: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Target.from_dict(facts)
