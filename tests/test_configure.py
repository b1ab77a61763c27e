"""configure.py: what it accepts, what it refuses and why, and that a refusal leaves nothing behind."""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import ENVIRONMENT, ROOT, Build, configure, run, scons

import configure as C

ARMHF = "--target=arm-linux-gnueabihf"
AARCH64 = "--target=aarch64-linux-gnu"


def configured(where: Path, *options: str, env: dict[str, str] = ENVIRONMENT) -> dict[str, Any]:
    done = configure(*options, "--build-dir", where, env=env)
    assert done.returncode == 0, done.stderr
    config: dict[str, Any] = json.loads((where / "config.json").read_text())
    return config


def refused(where: Path, *options: str, env: dict[str, str] = ENVIRONMENT) -> str:
    """Options must be refused, in one message, and nothing may be written."""
    done = configure(*options, "--build-dir", where, env=env)
    assert done.returncode in (1, 2), f"accepted: {options}\n{done.stdout}"
    assert "Traceback" not in done.stderr
    assert not where.exists()
    return done.stderr


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# --- refusals ---------------------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[Sequence[str], str]] = [
    (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    (["--enable"], "unrecognized arguments: --enable"),  # no abbreviations: they change meaning as options are added
    (["--target=mips-linux-gnu"], "--target=mips-linux-gnu is unknown; there are aarch64-linux-gnu, arm-linux-gnueabihf"),
    (["--board=raspberrypi-6"], "--board=raspberrypi-6 is unknown"),
    ([ARMHF, "--toolchain=clang"], "--toolchain=clang does not exist for arm-linux-gnueabihf; there is gcc, zig"),
    (["--board=raspberrypi-zero", "--enable-neon"], "(ARM1176JZF-S) is armv6 and has no NEON"),
    (["--board=raspberrypi-zero", "--toolchain=gcc"], "start files of its C library make every program v7; --toolchain=zig"),
    (["--board=raspberrypi-2b", AARCH64], "cannot run aarch64-linux-gnu: its Cortex-A7 runs arm-linux-gnueabihf"),
    (["--board=jetson-orin-nano", ARMHF], "cannot run arm-linux-gnueabihf"),
    (["--enable-neon", "--disable-neon"], "not allowed with"),
    (["--disable-unused-ops"], "--disable-unused-ops needs --model (or --ops)"),
    (["--ops=+softmax"], "goes with --model and --disable-unused-ops"),
    (["--ops=conv2d,convolve3d"], "there is no operator 'convolve3d'"),
    (["--prefix=here"], "--prefix=here must be an absolute path"),
    (["--reduce-precision"], "not yet available"),
    (["--backend=opencl"], "--backend=opencl is not yet available"),
    (["--backend=cpu,opencl"], "--backend=cpu,opencl is not yet available"),
    (["--backend=quantum"], "--backend=quantum is unknown"),
    (["--sanitize=everything"], "--sanitize=everything is unknown"),
    (["--sanitize=address,thread"], "exclude each other"),
    (["--model=/nowhere/net.onnx"], "--model /nowhere/net.onnx: there is no such file"),
    ([ARMHF, "--cflags=-mfloat-abi=softfp"], "__ARM_PCS_VFP (hard-float ABI) should be 1"),
    ([ARMHF, "--disable-neon", "--cflags=-mfpu=neon"], "--disable-neon forbids it"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSALS, ids=[" ".join(o) for o, _ in REFUSALS])
def test_refused_with_the_reason(options: Sequence[str], reason: str, tmp_path: Path) -> None:
    assert reason in refused(tmp_path / "out", *options)


def test_two_models_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.onnx").touch()
    error = refused(tmp_path / "out", f"--model={tmp_path}/a/net.onnx", f"--model={tmp_path}/b/net.onnx")
    assert "two models are called net" in error


def test_a_model_with_contradictory_lists(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    error = refused(tmp_path / "out", f"--model={tmp_path}/net.onnx", "--disable-unused-ops", "--ops=conv2d")
    assert "--ops=+LIST adds" in error


def test_build_dir_with_other_things_in_it(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    done = configure("--build-dir", tmp_path)
    assert done.returncode == 1 and "was not made by configure.py" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    assert "source tree" in configure("--build-dir", ROOT).stderr


# --- compilers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cc", "options", "reason"),
    [
        ("no-such-gcc", [ARMHF], "the compiler no-such-gcc (from CC='no-such-gcc') is not installed"),
        ("gcc", [ARMHF], "makes code for x86_64, not for arm-linux-gnueabihf"),
        ("arm-linux-gnueabihf-gcc", [AARCH64], "makes code for arm, not for aarch64-linux-gnu"),
        ("arm-linux-gnueabihf-gcc -mfloat-abi=softfp", [ARMHF], "cannot link a program"),
        ("gcc", [ARMHF, "--toolchain=zig"], "both choose the compiler"),
    ],
)
def test_wrong_compilers(cc: str, options: list[str], reason: str, tmp_path: Path) -> None:
    assert reason in refused(tmp_path / "out", *options, env={**ENVIRONMENT, "CC": cc})


def test_cc_of_several_words_in_a_path_with_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my tools"
    folder.mkdir()
    wrapper = script(folder / "cache cc", 'exec "$@"')
    cc = f"{shlex.quote(str(wrapper))} gcc"
    assert configured(tmp_path / "out dir", env={**ENVIRONMENT, "CC": cc})["cc"] == [str(wrapper), "gcc"]


def test_native_is_what_the_compiler_makes(tmp_path: Path) -> None:
    """A 32-bit Arm userland, whatever the kernel says: gcc is the armhf compiler, programs run directly, nothing is 'cross'."""
    script(tmp_path / "gcc", 'exec arm-linux-gnueabihf-gcc "$@"')
    config = configured(tmp_path / "out", env={**ENVIRONMENT, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    assert (config["target"], config["cc"], config["emulator"]) == ("arm-linux-gnueabihf", ["gcc"], [])
    assert "-march=armv7-a+fp" in config["flags"]


def test_a_compiler_without_new_intrinsics(tmp_path: Path) -> None:
    """Found out by compiling, feature by feature: an old compiler loses those kernels and nothing else."""
    cc = script(tmp_path / "old-gcc", 'case "$*" in *fp16*) exit 1;; esac; exec aarch64-linux-gnu-gcc "$@"')
    done = configure(AARCH64, "--build-dir", tmp_path / "out", env={**ENVIRONMENT, "CC": str(cc)})
    assert done.returncode == 0, done.stderr
    assert "no neonfp16 kernels" in done.stdout
    isas = json.loads((tmp_path / "out" / "config.json").read_text())["isa_flags"]
    assert list(isas) == ["ref", "neon", "neon64", "neondot", "neoni8mm"]


def test_enable_neon_is_refused_where_it_cannot_be_compiled(tmp_path: Path) -> None:
    cc = script(tmp_path / "old-gcc", 'case "$*" in *mfpu=neon*) exit 1;; esac; exec arm-linux-gnueabihf-gcc "$@"')
    error = refused(tmp_path / "out", ARMHF, "--enable-neon", env={**ENVIRONMENT, "CC": str(cc)})
    assert "cannot compile NEON intrinsics" in error


def test_a_sanitizer_that_does_not_link(tmp_path: Path) -> None:
    cc = script(tmp_path / "gcc", 'case "$*" in *fsanitize=thread*) exit 1;; esac; exec /usr/bin/gcc "$@"')
    error = refused(tmp_path / "out", "--sanitize=thread", env={**ENVIRONMENT, "CC": str(cc)})
    assert "--sanitize=thread" in error and "cannot link" in error


def test_user_flags_and_cpu(tmp_path: Path) -> None:
    """The user's -mcpu replaces our -march, which would contradict it; the variable and the option add up."""
    config = configured(tmp_path / "out", ARMHF, "--cflags=-mcpu=cortex-a7", env={**ENVIRONMENT, "CFLAGS": "-DX='1 2'"})
    assert config["user_flags"] == ["-DX=1 2", "-mcpu=cortex-a7"]
    assert not [f for f in config["flags"] if f.startswith("-march=")]


# --- what comes out ---------------------------------------------------------------------------------------------------------


def test_neon_stays_in_its_files(tmp_path: Path) -> None:
    with_neon = configured(tmp_path / "with", ARMHF)
    assert with_neon["flags"][-2:] == ["-march=armv7-a+fp", "-mfpu=vfpv3-d16"]
    assert with_neon["isa_flags"] == {"ref": [], "neon": ["-mfpu=neon-vfpv4"]}
    assert with_neon["planner"]["features"] == ["neon", "fma"]
    without = configured(tmp_path / "without", ARMHF, "--disable-neon")
    assert without["isa_flags"] == {"ref": []} and without["planner"]["features"] == []


def test_board_facts_reach_compiler_planner_and_emulator(tmp_path: Path) -> None:
    bone = configured(tmp_path / "bone", "--board=beaglebone-black", "--toolchain=gcc")
    assert bone["isa_flags"]["neon"] == ["-mfpu=neon"]  # a Cortex-A8 has no fused multiply-add
    assert bone["planner"]["features"] == ["neon"]
    pi5 = configured(tmp_path / "pi5", "--board=raspberrypi-5")
    assert "neondot" in pi5["isa_flags"] and "neoni8mm" not in pi5["isa_flags"]
    assert pi5["planner"]["gflops"] == 38.4 and pi5["planner"]["n_threads"] == 4
    assert "cortex-a76" in pi5["emulator"]
    pi4_32 = configured(tmp_path / "pi4", "--board=raspberrypi-4b", ARMHF)
    assert pi4_32["planner"]["features"] == ["neon", "fma"] and "-mtune=cortex-a72" in pi4_32["flags"]


def test_zig_chooses_the_glibc(tmp_path: Path) -> None:
    before = sorted(p.name for p in ROOT.iterdir())
    assert any(w.endswith("linux-gnu.2.28") for w in configured(tmp_path / "a", AARCH64, "--toolchain=zig")["cc"])
    assert sorted(p.name for p in ROOT.iterdir()) == before, "probing left something behind"
    nano = configured(tmp_path / "b", "--board=jetson-nano")  # Ubuntu 18.04, so zig without being asked
    assert any(w.endswith("linux-gnu.2.27") for w in nano["cc"])


def test_armv6_through_zig(tmp_path: Path) -> None:
    config = configured(tmp_path / "out", "--board=raspberrypi-zero")
    assert config["elf"] == "v6" and "-mcpu=arm1176jzf_s" in config["flags"] and list(config["isa_flags"]) == ["ref"]


@pytest.mark.parametrize("path", sorted((ROOT / "boards").glob("*.toml")), ids=lambda p: p.stem)
def test_every_board_is_sound(path: Path) -> None:
    board = C.load_board(path.stem)
    toolchains = {t.target: t for t in C.all_toolchains() if t.compiler == "gcc"}
    assert board.target in board.soc.levels
    assert set(board.soc.features) <= set(C.schema().CPU_FEATURES)
    for target, level in board.soc.levels.items():
        assert level in toolchains[target].level
    for source in (path, board.soc.path):
        assert "Source" in source.read_text().splitlines()[0] or "Sources:" in source.read_text().splitlines()[0], source
    assert min(board.ram_mb) > 0


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("boards", ["raspberrypi-zero2w", "BeagleBone Black", "4x Cortex-A76 2400 MHz + 4x Cortex-A55 1800 MHz"]),
        ("toolchains", ["arm-linux-gnueabihf", "--toolchain=zig", "x86_64-linux-gnu"]),
        ("ops", ["conv2d", "global_average_pool"]),
        ("kernels", ["conv2d_f32_nhwc_ref"]),
    ],
)
def test_lists(what: str, words: list[str]) -> None:
    done = configure(f"--list={what}")
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout


def test_help_is_grouped() -> None:
    text = configure("--help").stdout
    for group in ("what to build for", "what goes in", "how to compile", "where things go", "instead of configuring"):
        assert f"{group}:" in text


def test_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = configured(out, ARMHF, "--disable-neon", env={**ENVIRONMENT, "CFLAGS": "-DONE"})
    stamp = (out / "config.json").stat().st_mtime_ns
    done = configure("--again", "--build-dir", out)
    assert done.returncode == 0, done.stderr
    assert "CFLAGS=-DONE ./configure.py" in done.stdout
    assert json.loads((out / "config.json").read_text()) == first
    assert (out / "config.json").stat().st_mtime_ns == stamp, "an equal config.json must stay untouched"


def test_ops_lists(tmp_path: Path) -> None:
    config = configured(tmp_path / "out", "--ops=softmax,add")
    assert config["ops"] == ["add", "softmax"] and config["kernels"] is None


def test_changed_inputs_stop_the_build(tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = configured(out)
    model = tmp_path / "net.onnx"
    model.write_text("one")
    config["inputs"][str(model)] = C.sha256(model)
    (out / "config.json").write_text(json.dumps(config))
    model.write_text("two")
    done = scons(out, "-n", check=False)
    assert done.returncode != 0 and "net.onnx has changed since configure: run ./configure.py --again" in done.stderr
    model.unlink()
    assert "net.onnx is gone" in scons(out, "-n", check=False).stderr


# --- models -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A convolution and a ReLU."""
    path = tmp_path / "net.onnx"
    weights = onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["c"]), onnx.helper.make_node("Relu", ["c"], ["y"])]
    shapes = {"x": [1, 3, 8, 8], "y": [1, 8, 6, 6]}
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_the_trim_list_comes_from_the_planned_model(tmp_path: Path, net: Path, host_build: Build) -> None:
    out = tmp_path / "out"
    config = configured(out, ARMHF, f"--model={net}", "--disable-unused-ops")
    assert "conv2d" in config["ops"] and "clip" not in config["ops"], "the ReLU is fused: it needs no operator of its own"
    assert [k for k in config["kernels"] if k.startswith("conv2d_f32_nhwc") and k.endswith("_neon")]
    assert (out / "models" / "net.opsnn").stat().st_size > 4 * 8 * 3 * 3 * 3
    assert config["inputs"][str(net)] == C.sha256(net)
    plain = configured(out, ARMHF, "--disable-neon", f"--model={net}", "--disable-unused-ops", "--ops=+softmax,add")
    assert {k.rpartition("_")[2] for k in plain["kernels"]} == {"ref"}
    assert {"softmax", "add"} <= set(plain["ops"])
    assert "softmax_f32_any_ref" in plain["kernels"]
    whole = configured(out, ARMHF)
    assert whole["ops"] is None and whole["kernels"] is None
    assert not list((out / "models").iterdir()), "a model that is no longer asked for must not be installed"


def test_a_list_of_operators_must_suffice_for_the_models(tmp_path: Path, net: Path, host_build: Build) -> None:
    assert "--ops leaves out conv2d" in refused(tmp_path / "out", f"--model={net}", "--ops=softmax,transpose")


def test_a_model_that_is_none(tmp_path: Path, net: Path, host_build: Build) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(net.read_bytes()[:40])
    error = refused(tmp_path / "out", f"--model={net}", f"--model={broken}")
    assert "broken.onnx could not be compiled" in error


def test_a_changed_model_asks_for_configure_again(tmp_path: Path, net: Path, host_build: Build) -> None:
    out = tmp_path / "out"
    configured(out, f"--model={net}")
    net.write_bytes(net.read_bytes() + b"\x32\x00")  # an empty domain, which means the same
    done = scons(out, "-n", check=False)
    assert done.returncode != 0 and "net.onnx has changed since configure: run ./configure.py --again" in done.stderr
    assert configure("--again", "--build-dir", out).returncode == 0
    assert scons(out, "-n", check=False).returncode == 0


# --- set-up -----------------------------------------------------------------------------------------------------------------


def test_install_does_nothing_twice() -> None:
    assert configure("--install").returncode == 0
    done = configure("--install")
    assert done.returncode == 0 and done.stdout == ""


def test_packages_are_read_without_a_toml_parser() -> None:
    for path in (ROOT / "toolchains").glob("*.toml"):
        assert C.packages_of(path) == C.read_toolchain(path).packages


def test_without_its_packages_it_says_what_to_do(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    shutil.copy(ROOT / "configure.py", clone)
    bare = subprocess.run(["/usr/bin/python3", "-S", "-E", str(clone / "configure.py")], capture_output=True, text=True)
    assert bare.returncode == 1
    assert re.search(r"there is no build/venv.* lacks .*cffi.*: run ./configure.py --install first", bare.stderr)


def test_bootstrap_is_posix_shell() -> None:
    for path in (ROOT / "bootstrap", ROOT / ".ci" / "run"):
        assert run("sh", "-n", path).returncode == 0
        assert os.access(path, os.X_OK)


def test_the_table_of_boards_in_the_docs() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| .* \| (.*) \|$", (ROOT / "docs" / "boards.md").read_text(), re.M))
    assert sorted(rows) == sorted(p.stem for p in (ROOT / "boards").glob("*.toml"))
    for key, targets in rows.items():
        short = {"arm-linux-gnueabihf": "armhf", "aarch64-linux-gnu": "aarch64"}
        assert all(short[t] in targets for t in C.load_board(key).soc.levels), key
