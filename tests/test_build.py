"""What the build makes: the right machine code, the same bytes, nothing in the wrong place, nothing done twice."""
from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import elf_facts
import pytest
from conftest import BUILD, ROOT, Build, build, configure, run, scons

import schema

ARMHF = "--target=arm-linux-gnueabihf"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- machine code -----------------------------------------------------------------------------------------------------------


def disassembly(path: Path, tool: str) -> list[str]:
    done = run(f"{tool}objdump", "-d", "--no-show-raw-insn" if "aarch64" in tool else "-w", path)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def neon_instructions(path: Path) -> list[str]:
    """Lines of 32-bit Arm code that hold NEON instructions, told by their encoding (DDI 0406, A7.1 and A5.7)."""
    found = []
    for line in disassembly(path, "arm-linux-gnueabihf-"):
        match = re.match(r"\s*[0-9a-f]+:\t([0-9a-f]{8}|[0-9a-f]{4} [0-9a-f]{4})\s+\t(\S+)", line)
        if not match or match[2].startswith("."):  # a narrow Thumb instruction, or data
            continue
        code = int(match[1].replace(" ", ""), 16)
        if " " in match[1]:  # Thumb
            neon = code & 0xEF000000 == 0xEF000000 or code & 0xFF100000 == 0xF9000000
        else:
            neon = code & 0xFE000000 == 0xF2000000 or code & 0xFF100000 == 0xF4000000
        if neon:
            found.append(line.strip())
    return found


# What ARMv8.0 lacks: atomics (LSE), dot products and matrix products, arithmetic on float16, SVE.
BEYOND_ARMV8 = re.compile(
    r"\t(?:(?:cas|casp|swp|ldadd|ldclr|ldeor|ldset|ldsmax|ldsmin|ldumax|ldumin|stadd|stclr|steor|stset)(?:a|l|al)?[bh]?"
    r"|[su]dot|usdot|sudot|[su]mmla|usmmla|bf\w+)\t"
    r"|\tf(?!cvt|mov)\w+\t[^\n]*(?:\bv\d+\.[48]h|\bh\d+\b)"
    r"|\t\w+\t[^\n]*\bz\d+\."
)


def newer_than_armv8(path: Path) -> list[str]:
    return [line.strip() for line in disassembly(path, "aarch64-linux-gnu-") if BEYOND_ARMV8.search(line)]


BASELINE = ("core", "ops", "ref", "gen", "tools")


def test_armhf_baseline_has_no_neon(armhf_build: Build) -> None:
    for path in armhf_build.objects(*BASELINE):
        assert not neon_instructions(path), path
    # The search does find what it looks for.
    assert neon_instructions(armhf_build.dir / "obj" / "neon" / "add_f32_any_neon.o")


def test_aarch64_baseline_is_armv8_0(aarch64_build: Build) -> None:
    for path in aarch64_build.objects(*BASELINE):
        assert not newer_than_armv8(path), path
    higher = {k for isa in ("neonfp16", "neondot", "neoni8mm") for k in aarch64_build.dir.glob(f"obj/neon/*_{isa}.o")}
    for path in set(aarch64_build.objects("neon")) - higher:
        assert not newer_than_armv8(path), path
    for path in higher:
        assert newer_than_armv8(path), f"{path} has flags that it does not use"


def test_what_is_called_newer_than_armv8(tmp_path: Path) -> None:
    source = tmp_path / "newer.s"
    newer = ["ldadd w0, w1, [x2]", "casal x0, x1, [x2]", "sdot v0.4s, v1.16b, v2.16b", "smmla v0.4s, v1.16b, v2.16b",
             "fadd v0.8h, v1.8h, v2.8h", "fmul h0, h1, h2", "add z0.s, z1.s, z2.s"]  # fmt: skip
    base = ["fcvtl v0.4s, v1.4h", "fcvt s0, h1", "fmla v0.4s, v1.4s, v2.s[1]", "ldxr w0, [x1]", "mul v0.8h, v1.8h, v2.8h"]
    source.write_text("\n".join([*newer, *base, ""]))
    assert run("aarch64-linux-gnu-as", "-march=armv8.6-a+fp16+sve", "-o", tmp_path / "newer.o", source).returncode == 0
    assert len(newer_than_armv8(tmp_path / "newer.o")) == len(newer)


@pytest.fixture(scope="session")
def plain_build() -> Build:
    return build("test-armhf-plain", ARMHF, "--disable-neon")


def test_without_neon_there_is_none(plain_build: Build) -> None:
    assert not neon_instructions(plain_build.lib)
    assert not elf_facts.read(plain_build.lib).arm_neon
    assert not plain_build.objects("neon")


@pytest.fixture(scope="session")
def armv6_build() -> Build:
    return build("test-armv6", "--board=raspberrypi-zero")


def test_pi_zero_code_is_armv6(armv6_build: Build) -> None:
    for path in (armv6_build.lib, armv6_build.stripped, armv6_build.runner):
        facts = elf_facts.read(path)
        assert (facts.arm_arch, facts.arm_neon, facts.hard_float) == ("v6", False, True), path
    assert not neon_instructions(armv6_build.lib)
    # movw, movt, wide Thumb and barriers came with ARMv7.
    later = re.compile(r"\t(movw|movt|dmb|dsb|isb|sdiv|udiv|ubfx|sbfx|bfi|bfc|mls)\b")
    assert not [line for line in disassembly(armv6_build.lib, "arm-linux-gnueabihf-") if later.search(line)]


def test_elf_facts(host_build: Build, armhf_build: Build, aarch64_build: Build, armv6_build: Build) -> None:
    for made, level in ((host_build, "x86_64"), (armhf_build, "v7"), (aarch64_build, "aarch64"), (armv6_build, "v6")):
        facts = elf_facts.read(made.stripped)
        assert facts.level == level
        assert facts.soname == "libops_nn.so.0"
        assert not facts.tls, "thread-local storage may find no room in a late dlopen"
        assert all(name.startswith(("libc.", "libm.", "libpthread.", "ld-linux")) for name in facts.needed), facts.needed
    assert elf_facts.read(armv6_build.stripped).glibc <= (2, 28)
    for made, tag in ((armhf_build, "linux_armv7l"), (aarch64_build, "linux_aarch64"), (armv6_build, "linux_armv6l")):
        assert elf_facts.wheel_platform(made.stripped) == tag


def test_the_audit_can_fail(armhf_build: Build, tmp_path: Path) -> None:
    """A library that is not what was configured stops the build."""
    wrong = {**armhf_build.config, "elf": "v6", "isa_flags": {"ref": []}, "glibc_limit": "2.3"}
    (tmp_path / "config.json").write_text(json.dumps(wrong))
    python = armhf_build.config["python"]
    done = run(python, ROOT / "site_scons" / "audit.py", armhf_build.lib, tmp_path / "config.json", tmp_path / "out")
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    for fault in ("made for v7, configured was v6", "configured without NEON", "may need no more than 2.3"):
        assert fault in done.stderr


def test_no_paths_of_the_build_machine(host_build: Build, armhf_build: Build, armv6_build: Build) -> None:
    # Not armv6_build.lib: zig's own start files carry debug information that names zig's place, until it is stripped.
    runners = [b.runner for b in (host_build, armhf_build, armv6_build)]
    for path in (host_build.lib, armhf_build.lib, armv6_build.stripped, *runners):
        assert os.fsencode(ROOT) not in path.read_bytes(), path


def test_runs_from_anywhere(armhf_build: Build, tmp_path: Path) -> None:
    done = armhf_build.run(armhf_build.runner, "--help", cwd=tmp_path)
    assert "libops_nn" not in done.stderr, done.stderr


# --- command lines ----------------------------------------------------------------------------------------------------------


def compile_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if " -c -o " in line]


def test_user_flags_are_on_every_compile_line_once(tmp_path: Path) -> None:
    out = tmp_path / "out dir"
    assert configure(ARMHF, "--cflags=-mcpu=cortex-a7 -DFROM_OPTION", "--build-dir", out,
                     env={**os.environ, "CC": "", "CFLAGS": "-DFROM_ENV"}).returncode == 0  # fmt: skip
    lines = compile_lines(scons(out, "-n", "verbose=1").stdout)
    assert len(lines) > 50
    for line in lines:
        words = line.split()
        for flag in ("-mcpu=cortex-a7", "-DFROM_OPTION", "-DFROM_ENV", "-ffp-contract=off", "-D_FILE_OFFSET_BITS=64"):
            assert words.count(flag) == 1, (flag, line)
        assert "-ffast-math" not in words and "-Werror" not in words
        assert ("-mfpu=neon-vfpv4" in words) == (" src/neon/" in line), line


def test_output_is_one_short_line_per_step(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert configure("--ops=add", "--build-dir", out).returncode == 0
    done = scons(out)
    for line in done.stdout.splitlines():
        assert re.fullmatch(r"(CC|LD|GEN|LN) \S+", line), line


# --- a clone of its own, in a path with spaces ------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as they are now, without build/ (but with this one's Python)."""
    clone = tmp_path_factory.mktemp("a clone") / "ops nn"
    shutil.copytree(ROOT, clone, symlinks=True, ignore=shutil.ignore_patterns(".git", "build", "dist", "__pycache__"))
    (clone / "build").mkdir()
    (clone / "build" / "venv").symlink_to(BUILD / "venv")
    return clone


def snapshot(folder: Path) -> set[str]:
    names = {str(p.relative_to(folder)) for p in folder.rglob("*")}
    return {name for name in names if Path(name).parts[0] not in ("build", "dist")}


def in_clone(clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return run(*command, cwd=clone)


def clone_scons(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return in_clone(clone, str(BUILD / "venv" / "bin" / "python"), "-m", "SCons", "-Q", *words)


@pytest.fixture(scope="session")
def built_clone(clone: Path, armhf_build: Build) -> Iterator[Path]:
    """Configured and built just as armhf_build was."""
    before = snapshot(clone)
    unconfigured = clone_scons(clone)
    assert unconfigured.returncode != 0 and "run ./configure.py first" in unconfigured.stderr
    assert clone_scons(clone, "-h").returncode == 0
    options = [o for o in armhf_build.config["argv"] if o != "--build-dir" and not o.startswith(str(BUILD))]
    done = in_clone(clone, "./configure.py", *options)
    assert done.returncode == 0, done.stderr
    done = clone_scons(clone)
    assert done.returncode == 0, done.stderr
    assert clone_scons(clone, "wheel").returncode == 0
    assert snapshot(clone) == before, "something was written outside build/ and dist/"
    yield clone


def test_another_place_gives_the_same_bytes(built_clone: Path, armhf_build: Build) -> None:
    made = built_clone / "build" / "arm-linux-gnueabihf"
    assert sha256(made / "stripped" / "libops_nn.so") == sha256(armhf_build.stripped)


def test_a_second_build_does_nothing_and_is_quick(built_clone: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = clone_scons(built_clone)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not [line for line in done.stdout.splitlines() if "is up to date" not in line], done.stdout
    # Processor time, as other programs may be busy.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


def what_would_be_done(clone: Path) -> list[str]:
    return [line for line in clone_scons(clone, "-n").stdout.splitlines() if re.match(r"[A-Z]+ ", line)]


def test_only_what_depends_on_a_change_is_made_again(built_clone: Path) -> None:
    kernel = built_clone / "src" / "ref" / "conv2d_f32_nhwc_ref.c"
    text = kernel.read_text()
    kernel.write_text(text + "/* changed */\n")
    try:
        steps = what_would_be_done(built_clone)
        assert [s for s in steps if s.startswith("CC")] == ["CC src/ref/conv2d_f32_nhwc_ref.c"]
    finally:
        kernel.write_text(text)
    header = built_clone / "src" / "core" / "kernel.h"
    text = header.read_text()
    header.write_text(text + "/* changed */\n")
    try:
        compiled = [s for s in what_would_be_done(built_clone) if s.startswith("CC")]
        assert len(compiled) > 50 and "CC src/tools/ops_nn_run.c" not in compiled
    finally:
        header.write_text(text)


def test_a_new_kernel_is_found_and_a_misnamed_one_stops_the_build(built_clone: Path) -> None:
    reference = built_clone / "src" / "ref" / "conv2d_f32_nhwc_ref.c"
    added = reference.with_name("conv2d_f32_nhwc_again_ref.c")
    shutil.copy(reference, added)
    try:
        assert "CC src/ref/conv2d_f32_nhwc_again_ref.c" in what_would_be_done(built_clone)
    finally:
        added.unlink()
    for name in ("convolve_f32_nhwc_ref", "conv2d_f33_nhwc_ref", "conv2d_f32_ref", "conv2d_f32_nhwc_sse", "helpers"):
        wrong = reference.with_name(f"{name}.c")
        wrong.touch()
        try:
            done = clone_scons(built_clone)
            assert done.returncode != 0
            assert f"'{name}.c'" in done.stderr and "<op>_<dtype>_<layout>[_<algo>]_<isa>.c" in done.stderr
        finally:
            wrong.unlink()
    assert what_would_be_done(built_clone) == []


def test_trimmed_and_back(built_clone: Path) -> None:
    """A list of operators leaves the others out, and the same directory can be made whole again."""
    made = built_clone / "build" / "arm-linux-gnueabihf"
    whole = sha256(made / "stripped" / "libops_nn.so")
    size = (made / "stripped" / "libops_nn.so").stat().st_size
    argv = json.loads((made / "config.json").read_text())["argv"]
    assert in_clone(built_clone, "./configure.py", *argv, "--ops=add", "--optimize-for-size").returncode == 0
    assert clone_scons(built_clone).returncode == 0
    assert (made / "stripped" / "libops_nn.so").stat().st_size < size / 2
    assert b"conv2d_f32" not in (made / "stripped" / "libops_nn.so").read_bytes()
    assert in_clone(built_clone, "./configure.py", *argv).returncode == 0
    assert clone_scons(built_clone).returncode == 0
    assert sha256(made / "stripped" / "libops_nn.so") == whole


def test_wheel(built_clone: Path) -> None:
    wheels = list((built_clone / "dist").glob("*.whl"))
    assert [w.name for w in wheels] == [f"ops_nn-{schema.VERSION}-py3-none-linux_armv7l.whl"]
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = set(wheel.namelist())
        library = wheel.read("ops_nn/libops_nn.so")
    assert {"ops_nn/__init__.py", "ops_nn/lib.py", "ops_nn/schema.py", "ops_nn/_abi.py"} <= names
    assert library == (built_clone / "build" / "arm-linux-gnueabihf" / "stripped" / "libops_nn.so").read_bytes()
    before = sha256(wheels[0])
    assert clone_scons(built_clone, "wheel").returncode == 0
    assert sha256(wheels[0]) == before


def test_install(built_clone: Path, tmp_path: Path, armhf_build: Build) -> None:
    done = clone_scons(built_clone, "install", f"DESTDIR={tmp_path}/a root", "PREFIX=/usr")
    assert done.returncode == 0, done.stderr
    root = tmp_path / "a root" / "usr"
    files = {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}
    assert files == {"lib/libops_nn.so.0", "lib/libops_nn.so", "include/ops_nn.h", "include/opsnn_ops.h", "bin/ops-nn-run"}
    assert "libops_nn" not in armhf_build.run(root / "bin" / "ops-nn-run", "--help").stderr


def test_size_report(built_clone: Path) -> None:
    text = clone_scons(built_clone, "size").stdout
    assert ".text" in text and "core/plan.o" in text and "ref/conv2d_f32_nhwc_ref.o" in text


def test_clean(built_clone: Path) -> None:
    """The last one: leaves nothing that was built."""
    made = built_clone / "build" / "arm-linux-gnueabihf"
    assert clone_scons(built_clone, "-c").returncode == 0
    left = {p.name for p in made.rglob("*") if not p.is_dir()}
    assert left <= {"config.json", ".sconsign.dblite"}
