#!/usr/bin/env python3
"""Configures a build of ops-nn: checks toolchain, board and models, then writes build/<target>/config.json for scons.

    ./configure.py                                           this machine
    ./configure.py --target=arm-linux-gnueabihf              any 32-bit Arm Linux
    ./configure.py --board=raspberrypi-4b --model net.onnx --disable-unused-ops

Everything is checked before anything is written. docs/building.md explains the build in order; what is known about compilers
and boards stands in toolchains/ and boards/.
"""
from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
VENV = BUILD / "venv"
REQUIREMENTS = ROOT / "requirements-dev.txt"

CONFIG_FORMAT = 2  # of config.json; SConstruct compares it
ENVIRONMENT = ("CC", "CFLAGS", "LDFLAGS")  # variables that change the result
SANITIZERS = ("address", "undefined", "thread")

# What a compiler must be able to compile before kernels of an ISA are given to it. A test, not a version number: intrinsics
# arrived one by one.
ISA_TESTS = {
    "ref": "int f(void) { return 0; }",
    "neon": "float32x4_t f(float32x4_t a, float32x4_t b) { return vmlaq_f32(a, a, b); }",
    "neon64": "float32x4_t f(float32x4_t a, float32x4_t b) { return vfmaq_laneq_f32(a, a, b, 3); }",
    "neonfp16": "float16x8_t f(float16x8_t a, float16x8_t b) { return vfmaq_f16(a, a, b); }",
    "neondot": "int32x4_t f(int32x4_t a, int8x16_t b) { return vdotq_s32(a, b, b); }",
    "neoni8mm": "int32x4_t f(int32x4_t a, int8x16_t b) { return vmmlaq_s32(a, b, b); }",
}
NEON_HEADER = """#if defined(__ARM_NEON)
#include <arm_neon.h>
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/arm/neon.h>
#endif
"""

# Needed besides the toolchains' own packages.
APT_PACKAGES = ("gcc", "libc6-dev", "scons", "binutils", "libc6-dev-armhf-cross", "libc6-dev-arm64-cross", "python3-venv")


class UserError(Exception):
    """What the user asked for cannot be done; the text says why and what to do. Any other exception is a bug of this script."""


@dataclass(frozen=True)
class Toolchain:
    """toolchains/<name>.toml, for one target."""

    path: Path
    target: str
    compiler: str
    arch: str
    cc: list[str]
    binutils: str
    packages: list[str]
    default_level: str
    flags: list[str]
    macros: dict[str, str]
    planner: dict[str, Any]
    emulator: dict[str, Any]
    level: dict[str, dict[str, Any]]
    isa: dict[str, dict[str, Any]]
    glibc: str = ""


@dataclass(frozen=True)
class Soc:
    """boards/soc/<name>.toml"""

    path: Path
    name: str
    levels: dict[str, str]
    features: list[str]
    clusters: list[dict[str, Any]]
    caches: dict[str, int]
    emulator_cpu: dict[str, str]
    gpu: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    tune: str = ""


@dataclass(frozen=True)
class Board:
    """boards/<name>.toml and the SoC it carries."""

    path: Path
    key: str
    name: str
    soc: Soc
    target: str
    ram_mb: list[int]
    system: dict[str, str]
    notes: list[str]
    toolchain: str = ""


def main(argv: Sequence[str]) -> int:
    options = parse_arguments(argv)
    if options.install:
        return install()
    use_build_python(argv)
    if options.list:
        return print_list(options.list)
    if options.again:
        return again(options)

    check_options(options)
    board = load_board(options.board) if options.board else None
    native = native_target()
    target = options.target or (board.target if board else native)
    toolchain = load_toolchain(target, options, board, is_native=target == native)
    level = choose_level(toolchain, board, options)
    compiler = Compiler(toolchain, level, board, options)
    compiler.check()
    isas, notes = choose_isas(toolchain, level, board, compiler, options)
    planner = planner_facts(toolchain, level, board, isas)
    build_dir = Path(options.build_dir or BUILD / (f"{target}-{board.key}" if board else target)).resolve()
    check_build_dir(build_dir)

    with tempfile.TemporaryDirectory(prefix="opsnn-") as scratch:
        models = compile_models(options, planner, Path(scratch))
        ops, kernels = trim(options, models, isas)
        # Up to here nothing has been written that this configuration owns.
        config = {
            "format": CONFIG_FORMAT,
            "argv": list(argv),
            "cwd": os.getcwd(),
            "environment": {name: os.environ[name] for name in ENVIRONMENT if os.environ.get(name)},
            "inputs": input_hashes(toolchain, board, models),
            "python": sys.executable,
            "target": target,
            "board": board.key if board else "",
            "arch": toolchain.arch,
            "native": toolchain.emulator == {},
            "elf": toolchain.level[level]["elf"],
            "glibc_limit": glibc_limit(toolchain, board),
            "cc": compiler.cc,
            "compiler": compiler.version,
            "binutils": toolchain.binutils,
            "flags": compiler.base_flags,
            "opt_flags": optimisation_flags(options),
            "user_flags": compiler.user_flags,
            "link_flags": compiler.user_link_flags,
            "isa_flags": isas,
            "emulator": emulator_command(toolchain, board),
            "planner": planner,
            "sanitize": options.sanitize,
            "werror": options.werror,
            "optimize_for_size": options.optimize_for_size,
            "prefix": options.prefix,
            "ops": ops,
            "kernels": kernels,
            "models": [{"source": str(m.source), "name": m.name} for m in models],
        }
        write(build_dir, config, models)
    print_summary(build_dir, config, board, notes)
    return 0


# --- the command line -------------------------------------------------------------------------------------------------------


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="configure.py",
        usage="./configure.py [options]",
        description="Checks toolchain, board and models, then writes build/<target>/config.json. Run scons afterwards.",
        epilog="CC, CFLAGS and LDFLAGS are honoured; CC may be several words (ccache gcc).",
        allow_abbrev=False,
    )
    group = parser.add_argument_group("what to build for")
    group.add_argument("--target", metavar="TRIPLE", help="system to build for (arm-linux-gnueabihf); default: this machine")
    group.add_argument("--board", metavar="NAME", help="board to build for (--list boards); decides target, CPU and libc")
    group.add_argument("--toolchain", metavar="NAME", help="gcc (default), zig, or a .toml file like those in toolchains/")

    group = parser.add_argument_group("what goes in")
    group.add_argument("--model", metavar="FILE", action="append", default=[],
                       help="compile this ONNX or TensorFlow Lite model too; repeatable")
    group.add_argument("--disable-unused-ops", action="store_true", help="keep only the kernels that the models need")
    group.add_argument("--ops", metavar="LIST", help="only these operators (conv2d,add); with a +: also these (+softmax)")
    neon = group.add_mutually_exclusive_group()
    neon.add_argument("--enable-neon", dest="neon", action="store_true", default=None, help="NEON kernels, chosen at run time "
                      "where the CPU has it (the default where the target can have it)")
    neon.add_argument("--disable-neon", dest="neon", action="store_false", help="portable kernels only")
    group.add_argument("--backend", metavar="NAME", default="cpu", help="cpu (default); opencl is not yet available")

    group = parser.add_argument_group("how to compile")
    group.add_argument("--optimize-for-size", action="store_true", help="smallest code")
    group.add_argument("--reduce-precision", action="store_true", help="not yet available")
    group.add_argument("--cflags", metavar="FLAGS", default="", help="further compiler flags, put last on every compile line")
    group.add_argument("--sanitize", metavar="LIST", default="", help=f"any of {','.join(SANITIZERS)}")
    group.add_argument("--werror", action="store_true", help="warnings are errors")

    group = parser.add_argument_group("where things go")
    group.add_argument("--prefix", metavar="DIR", default="/usr/local", help="where scons install puts things (/usr/local)")
    group.add_argument("--build-dir", metavar="DIR", help="default: build/<target>[-<board>]")

    group = parser.add_argument_group("instead of configuring")
    group.add_argument("--again", action="store_true", help="configure the last (or --build-dir's) build the same way again")
    group.add_argument("--list", choices=("boards", "toolchains", "ops", "kernels"), help="print what there is")
    group.add_argument("--install", action="store_true", help="install what is missing: Debian packages, build/venv")
    return parser.parse_args(argv)


def check_options(options: argparse.Namespace) -> None:
    """Options that exclude or need each other, before anything is looked up."""
    if not Path(options.prefix).is_absolute():
        raise UserError(f"--prefix={options.prefix} must be an absolute path; scons install DESTDIR=... puts files elsewhere")
    if options.reduce_precision:
        raise UserError("--reduce-precision is not yet available: models run in the precision they were trained in")
    if options.backend != "cpu":
        known = {"cpu", "opencl", "vulkan", "cuda"}.issuperset(options.backend.split(","))
        state = "not yet available" if known else "unknown"
        raise UserError(f"--backend={options.backend} is {state}: the only backend is cpu")
    options.sanitize = [s for s in options.sanitize.split(",") if s]
    for name in options.sanitize:
        if name not in SANITIZERS:
            raise UserError(f"--sanitize={name} is unknown; there are {', '.join(SANITIZERS)}")
    if {"address", "thread"} <= set(options.sanitize):
        raise UserError("--sanitize=address and thread exclude each other: both replace the memory allocator")
    if options.disable_unused_ops and not (options.model or options.ops):
        raise UserError("--disable-unused-ops needs --model (or --ops): without either, every operator is unused")
    if options.ops and options.ops.startswith("+") and not (options.model and options.disable_unused_ops):
        raise UserError("--ops=+... adds to what models need: it goes with --model and --disable-unused-ops")
    if options.ops and not options.ops.startswith("+") and options.model and options.disable_unused_ops:
        raise UserError(
            "--ops=LIST and --disable-unused-ops both decide which operators stay; --ops=+LIST adds to those of the models"
        )
    for model in options.model:
        if not Path(model).is_file():
            raise UserError(f"--model {model}: there is no such file")
    stems = [Path(m).stem for m in options.model]
    for stem in stems:
        if stems.count(stem) > 1:
            raise UserError(f"two models are called {stem}; compiled models are named after their files, so rename one")
    known_ops = schema().BY_NAME
    for op in split_ops(options.ops):
        if op not in known_ops:
            raise UserError(f"--ops: there is no operator '{op}'; ./configure.py --list ops prints them")


def split_ops(text: Optional[str]) -> list[str]:
    return [op.strip().lstrip("+") for op in (text or "").split(",") if op.strip()]


def again(options: argparse.Namespace) -> int:
    build_dir = Path(options.build_dir).resolve() if options.build_dir else current_build()
    config = read_config(build_dir)
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    os.environ.update(config["environment"])
    words = [f"{k}={shlex.quote(v)}" for k, v in config["environment"].items()]
    print("Again:", " ".join([*words, "./configure.py", *map(shlex.quote, config["argv"])]))
    os.chdir(config["cwd"])
    return main(config["argv"])


def current_build() -> Path:
    pointer = BUILD / "current"
    if not pointer.exists():
        raise UserError("nothing has been configured yet: --again needs an earlier ./configure.py")
    return (BUILD / pointer.read_text().strip()).resolve()


def read_config(build_dir: Path) -> dict[str, Any]:
    path = build_dir / "config.json"
    if not path.exists():
        raise UserError(f"{build_dir} has no config.json: it was never configured")
    config: dict[str, Any] = json.loads(path.read_text())
    return config


def print_list(what: str) -> int:
    if what == "boards":
        for path in sorted((ROOT / "boards").glob("*.toml")):
            board = load_board(path.stem)
            cores = " + ".join(f"{c['n_cores']}x {c['core']} {c['mhz']} MHz" for c in board.soc.clusters)
            print(f"{board.key:20} {board.name}: {board.soc.name}, {cores}; {', '.join(board.soc.levels)}")
    elif what == "toolchains":
        for toolchain in all_toolchains():
            found = "" if find_cc(toolchain.cc) else "  (not installed: ./configure.py --install)"
            print(f"{toolchain.target:22} --toolchain={toolchain.compiler:4} {' '.join(toolchain.cc)}{found}")
    elif what == "ops":
        for op in schema().OPS:
            print(f"{op.name:22} {op.doc.splitlines()[0]}")
    else:
        print("\n".join(kernel_stems()))
    return 0


def schema() -> Any:
    return load_module("schema", ROOT / "src" / "schema.py")


def load_module(name: str, path: Path) -> Any:
    if name not in sys.modules:
        sys.path.insert(0, str(path.parent))
        __import__(name)
        sys.path.pop(0)
    return sys.modules[name]


def kernel_stems() -> list[str]:
    return sorted(p.stem for d in ("ref", "neon") for p in (ROOT / "src" / d).glob("*.c"))


# --- set-up -----------------------------------------------------------------------------------------------------------------


def install() -> int:
    """Brings what the build and the tests need: Debian packages that are missing, and build/venv."""
    packages = {*APT_PACKAGES, *(p for f in (ROOT / "toolchains").glob("*.toml") for p in packages_of(f))}
    missing = sorted(p for p in packages if not has_package(p))
    if missing:
        if not shutil.which("apt-get"):
            raise UserError(f"this system has no apt-get; install what these Debian packages hold: {' '.join(missing)}")
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        if sudo and not shutil.which("sudo"):
            raise UserError(f"root rights are needed once: apt-get install {' '.join(missing)}")
        print(f"Installing {' '.join(missing)}", flush=True)
        apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        quietly([*apt, "update"], "the package lists could not be read; is there a network?")
        quietly([*apt, "install", "-y", "--no-install-recommends", *missing], "apt-get could not install the packages")
    stamp = VENV / "requirements.sha256"
    wanted = sha256(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    print("Preparing build/venv (Python packages, a few minutes the first time)", flush=True)
    if not (VENV / "bin" / "python").exists():
        quietly([sys.executable, "-m", "venv", str(VENV)], "python3 -m venv failed")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    quietly([*pip, "-r", str(REQUIREMENTS)], "pip could not install requirements-dev.txt; is there a network?")
    stamp.write_text(wanted)
    return 0


def packages_of(toolchain_file: Path) -> list[str]:
    """Read without a TOML parser, which older Pythons only have once the virtual environment exists."""
    line = next(t for t in toolchain_file.read_text().splitlines() if t.startswith("packages = "))
    names: list[str] = json.loads(line.partition("=")[2])
    return names


def has_package(name: str) -> bool:
    if not shutil.which("dpkg-query"):
        return False
    query = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", name], capture_output=True, text=True)
    return query.stdout == "installed"


def quietly(command: Sequence[str], failure: str, environment: Optional[dict[str, str]] = None) -> None:
    """Runs a command whose output matters only if it fails. Passwords may still be asked for: sudo talks to the terminal."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise UserError(f"{failure} ({shlex.join(command)}):\n{done.stdout.strip()}")


def use_build_python(argv: Sequence[str]) -> None:
    """Goes on under build/venv's Python, which has the packages that this script and the build use."""
    python = VENV / "bin" / "python"
    inside = Path(sys.prefix).resolve() == VENV.resolve()
    if python.exists() and not inside:
        os.execv(python, [str(python), str(Path(__file__).resolve()), *argv])
    toml = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    missing = [m for m in ("cffi", "elftools", toml) if not importlib.util.find_spec(m)]
    if missing:
        which = "build/venv" if inside else "there is no build/venv, and this Python"
        raise UserError(f"{which} lacks {', '.join(missing)}: run ./configure.py --install first")


# --- toolchains and boards --------------------------------------------------------------------------------------------------


def load_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
        return data
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def read_toolchain(path: Path) -> Toolchain:
    data = load_toml(path)
    try:
        return Toolchain(path=path, **data)
    except TypeError as error:  # a key too many or too few
        raise UserError(f"{path} does not describe a toolchain: {str(error).partition('()')[2].strip()}") from None


def all_toolchains() -> list[Toolchain]:
    return [read_toolchain(p) for p in sorted((ROOT / "toolchains").glob("*.toml"))]


def load_toolchain(target: str, options: argparse.Namespace, board: Optional[Board], is_native: bool) -> Toolchain:
    """The toolchain for a target, its placeholders filled in, CC and the native compiler applied."""
    if board and target not in board.soc.levels:
        raise UserError(f"--board={board.key} cannot run {target}: its {board.soc.clusters[0]['core']} runs "
                        f"{' and '.join(board.soc.levels)}")
    name = options.toolchain or ("gcc" if os.environ.get("CC") else board.toolchain if board and board.toolchain else "gcc")
    if options.toolchain and name != "gcc" and os.environ.get("CC"):
        raise UserError(f"CC={os.environ['CC']!r} and --toolchain={name} both choose the compiler: give one of them")
    if name.endswith(".toml"):
        toolchain = read_toolchain(Path(name))
        if toolchain.target != target:
            raise UserError(f"--toolchain={name} builds for {toolchain.target}, not for {target}")
    else:
        known = all_toolchains()
        fitting = [t for t in known if t.target == target and t.compiler == name]
        if target not in {t.target for t in known}:
            raise UserError(f"--target={target} is unknown; there are {', '.join(sorted({t.target for t in known}))} "
                            "(or describe it in a .toml like those in toolchains/ and give --toolchain=FILE)")
        if not fitting:
            usable = ", ".join(sorted(t.compiler for t in known if t.target == target))
            raise UserError(f"--toolchain={name} does not exist for {target}; there is {usable}")
        toolchain = fitting[0]
    changes: dict[str, Any] = {}
    if name == "gcc" and is_native:
        changes = {"cc": native_cc(), "binutils": "", "emulator": {}}
    if os.environ.get("CC"):
        changes["cc"] = shlex.split(os.environ["CC"])
    cc = changes.get("cc", toolchain.cc)
    changes["cc"] = [part.format(zig=zig_path(), glibc=glibc_limit(toolchain, board)) if "{" in part else part for part in cc]
    return replace(toolchain, changes)


def replace(toolchain: Toolchain, changes: dict[str, Any]) -> Toolchain:
    return Toolchain(**{**toolchain.__dict__, **changes})


def glibc_limit(toolchain: Toolchain, board: Optional[Board]) -> str:
    """The newest glibc version that the library may need: the board's, or the toolchain's own choice where that is older."""
    limits = [toolchain.glibc, board.system.get("glibc", "") if board else ""]
    return min(filter(None, limits), key=lambda v: [int(p) for p in v.split(".")], default="")


def zig_path() -> str:
    spec = importlib.util.find_spec("ziglang")
    if not spec or not spec.submodule_search_locations:
        raise UserError("the zig toolchain comes with the Python package ziglang: run ./configure.py --install")
    return str(Path(spec.submodule_search_locations[0]) / "zig")


def load_board(key: str) -> Board:
    path = ROOT / "boards" / f"{key}.toml"
    if not path.exists():
        raise UserError(f"--board={key} is unknown; ./configure.py --list boards prints them")
    data = load_toml(path)
    soc_path = ROOT / "boards" / "soc" / f"{data['soc']}.toml"
    soc = Soc(path=soc_path, **load_toml(soc_path))
    return Board(path=path, key=key, **{**data, "soc": soc})


def native_cc() -> list[str]:
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    return ["gcc"] if shutil.which("gcc") else ["cc"]


def native_target() -> str:
    """The target of this machine's own programs. Asked of the compiler: a 32-bit userland may run on a 64-bit kernel."""
    cc = ["gcc"] if shutil.which("gcc") else ["cc"]
    try:
        triple = subprocess.run([*cc, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown (no gcc or cc here)"
    cpu, _, rest = triple.partition("-")
    if cpu.startswith("arm") and rest.endswith("gnueabihf"):
        return "arm-linux-gnueabihf"
    return f"{cpu}-linux-gnu" if rest.endswith(("linux-gnu", "linux")) else triple


def choose_level(toolchain: Toolchain, board: Optional[Board], options: argparse.Namespace) -> str:
    """The instruction set that all code but the chosen kernels is held to."""
    level = board.soc.levels[toolchain.target] if board else toolchain.default_level
    if level not in toolchain.level:
        raise UserError(f"{toolchain.path.name} has no level {level}, which --board={board.key if board else ''} needs")
    native_arm = not board and toolchain.arch == "arm" and toolchain.emulator == {}
    # Raspberry Pi OS compiles for ARMv6 by default: code for a Pi Zero, unless NEON is asked for by name.
    if native_arm and not options.neon and macros_of([*toolchain.cc, *toolchain.flags]).get("__ARM_ARCH") == "6":
        level = "armv6"
    if options.neon and not toolchain.level[level]["features"]:
        who = f"--board={board.key} ({board.soc.clusters[0]['core']})" if board else "this machine's CPU"
        raise UserError(f"--enable-neon: {who} is {level} and has no NEON; its code would stop with an illegal instruction")
    return level


# --- the compiler -----------------------------------------------------------------------------------------------------------


def find_cc(cc: Sequence[str]) -> bool:
    return all("{" in word or shutil.which(word) for word in cc[:1])


def macros_of(command: Sequence[str]) -> dict[str, str]:
    ask = [*command, "-dM", "-E", "-x", "c", os.devnull]
    done = subprocess.run(ask, capture_output=True, text=True, env=tool_environment())
    if done.returncode:
        raise UserError(f"the compiler does not work: {shlex.join(command)}\n{done.stderr.strip()}")
    defines = (line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("#define "))
    return {parts[1]: parts[2] if len(parts) > 2 else "" for parts in defines}


def tool_environment() -> dict[str, str]:
    """zig keeps its cache in the build tree, not in the user's home."""
    cache = str(BUILD / "zig-cache")
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}


def optimisation_flags(options: argparse.Namespace) -> list[str]:
    if options.sanitize:
        return ["-O1", f"-fsanitize={','.join(options.sanitize)}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    if options.optimize_for_size:
        # Unwind tables would let debuggers walk through frames without -g; nothing in C needs them.
        return ["-Os", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables"]
    return ["-O2"]


class Compiler:
    """The chosen compiler and the flags all files get; answers questions by compiling."""

    def __init__(self, toolchain: Toolchain, level: str, board: Optional[Board], options: argparse.Namespace) -> None:
        self.toolchain = toolchain
        self.level = toolchain.level[level]
        self.level_name = level
        self.options = options
        self.cc = toolchain.cc
        self.user_flags = [*shlex.split(os.environ.get("CFLAGS", "")), *shlex.split(options.cflags)]
        self.user_link_flags = shlex.split(os.environ.get("LDFLAGS", ""))
        flags = [*toolchain.flags, *self.level["flags"]]
        if any(f.startswith(("-mcpu=", "-march=")) for f in self.user_flags):
            # Two of them would contradict each other: the user's choice of CPU stands.
            flags = [f for f in flags if not f.startswith(("-mcpu=", "-march="))]
        self.base_flags = flags
        self.tune = f"-mtune={board.soc.tune}" if board and board.soc.tune and toolchain.compiler == "gcc" else ""
        self.version = ""

    def check(self) -> None:
        """Is it there, does it make what it is to make, do all the flags work? UserError says what is wrong."""
        origin = f" (from CC={os.environ['CC']!r})" if os.environ.get("CC") else ""
        what = shlex.join(self.cc) + origin
        if not shutil.which(self.cc[0]):
            remedy = "check CC" if origin else f"./configure.py --install, or apt-get install {self.toolchain.packages[0]}"
            raise UserError(f"the compiler {what} is not installed: {remedy}")
        self.version = subprocess.run(
            [*self.cc, "--version"], capture_output=True, text=True, env=tool_environment()
        ).stdout.partition("\n")[0]

        plain = macros_of(self.cc)
        with_base = {**self.toolchain.macros, **self.level["macros"]}
        # The machine first, without our flags: another machine's compiler would not even understand them.
        machine = next(iter(self.toolchain.macros))
        if machine not in plain:
            machines = ("__x86_64__", "__i386__", "__aarch64__", "__arm__")
            made = next((m.strip("_") for m in machines if m in plain), "another machine")
            raise UserError(f"the compiler {what} makes code for {made}, not for {self.toolchain.target}")
        if not self.user_flags:
            self._expect(macros_of([*self.cc, *self.base_flags]), with_base, what)
        else:
            self._expect(macros_of([*self.cc, *self.toolchain.flags, *self.level["flags"]]), with_base, what)
            flags = f"the flags {shlex.join(self.user_flags)!r}"
            with_user = macros_of([*self.cc, *self.base_flags, *self.user_flags])
            self._expect(with_user, self.toolchain.macros, flags)
            if self.options.neon is False and "__ARM_NEON" in with_user and "__ARM_NEON" in self.level["macros"]:
                raise UserError(f"{flags} allow NEON everywhere, and --disable-neon forbids it: change one of them")
        self._check_start_files(what)
        if self.tune and self.compiles("int f(void) { return 0; }", [self.tune]):
            self.base_flags.append(self.tune)
        for name in self.options.sanitize:
            if not self.links([f"-fsanitize={name}"]):
                raise UserError(f"--sanitize={name}: {what} cannot link it for {self.toolchain.target}")

    def _expect(self, macros: dict[str, str], wanted: dict[str, str], what: str) -> None:
        for name, value in wanted.items():
            found = macros.get(name)
            if value == "" and found is not None:
                raise UserError(f"{what} must not define {name} for {self.toolchain.target} ({self.level_name})")
            if value and found != value:
                abi = " (hard-float ABI)" if name == "__ARM_PCS_VFP" else ""
                raise UserError(f"{what}: {name}{abi} should be {value} for {self.toolchain.target} ({self.level_name}), "
                                f"but is {found or 'not defined'}")

    def _check_start_files(self, what: str) -> None:
        """Links a program and looks at what came out: the C library's start files count, too."""
        elf_facts = load_module("elf_facts", ROOT / "site_scons" / "elf_facts.py")
        with tempfile.TemporaryDirectory(prefix="opsnn-") as scratch:
            out = Path(scratch) / "probe"
            done = self._run("int main(void) { return 0; }", [], ["-o", str(out)])
            if done.returncode:
                raise UserError(f"{what} cannot link a program for {self.toolchain.target}:\n{done.stderr.strip()}")
            made = elf_facts.read(out).level
        wanted = self.level["elf"]
        if made != wanted and not self.user_flags:
            remedy = "; --toolchain=zig can" if self.toolchain.compiler != "zig" else ""
            raise UserError(f"{what} cannot build for {self.level_name}: the start files of its C library make every program "
                            f"{made}{remedy}")

    def compiles(self, source: str, flags: Sequence[str]) -> bool:
        # Into a file: told to write to /dev/null, zig writes to the current directory.
        with tempfile.TemporaryDirectory(prefix="opsnn-") as scratch:
            return self._run(source, ["-Werror", *flags], ["-c", "-o", str(Path(scratch) / "probe.o")]).returncode == 0

    def links(self, flags: Sequence[str]) -> bool:
        with tempfile.TemporaryDirectory(prefix="opsnn-") as scratch:
            return self._run("int main(void) { return 0; }", flags, ["-o", str(Path(scratch) / "probe")]).returncode == 0

    def _run(self, source: str, flags: Sequence[str], rest: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = [*self.cc, *self.base_flags, "-O1", *flags, *self.user_flags, "-x", "c", "-", *rest, *self.user_link_flags]
        return subprocess.run(command, input=source, capture_output=True, text=True, env=tool_environment())


def choose_isas(
    toolchain: Toolchain, level: str, board: Optional[Board], compiler: Compiler, options: argparse.Namespace
) -> tuple[dict[str, list[str]], list[str]]:
    """The instruction sets whose kernels are built, with their flags; and notes for the summary."""
    isas: dict[str, list[str]] = {"ref": []}
    notes: list[str] = []
    if options.neon is False:
        return isas, notes
    features = set(toolchain.level[level]["features"])
    if board:
        features &= set(board.soc.features)
    needs = {name: set(required) for name, _, required in schema().ISAS}
    for name, entry in toolchain.isa.items():
        if level not in entry.get("levels", [level]) or not needs[name] <= features:
            continue
        no_fma = "fma" not in features and "flags_no_fma" in entry
        flags = list(entry["flags_no_fma"] if no_fma else entry["flags"])
        if compiler.compiles(NEON_HEADER + ISA_TESTS[name], flags):
            isas[name] = flags
        elif options.neon and name == "neon":
            remedy = "; apt-get install libsimde-dev" if toolchain.arch == "x86_64" else ""
            what = f"{shlex.join(compiler.cc)} cannot compile NEON intrinsics with {shlex.join(flags)}"
            raise UserError(f"--enable-neon: {what}{remedy}")
        else:
            notes.append(f"no {name} kernels: the compiler does not know their intrinsics")
    return isas, notes


def emulator_command(toolchain: Toolchain, board: Optional[Board]) -> list[str]:
    """How programs of the target run on this machine; [] for directly."""
    if not toolchain.emulator:
        return []
    cpu = toolchain.emulator["cpu"]
    # A program is linked to this machine's Debian libraries, which are ARMv7 even where the board is not.
    if board and board.soc.levels[toolchain.target] != "armv6":
        cpu = board.soc.emulator_cpu.get(toolchain.arch, cpu)
    program, *rest = toolchain.emulator["command"]
    return [program, "-cpu", cpu, *rest]


def planner_facts(toolchain: Toolchain, level: str, board: Optional[Board], isas: Collection[str]) -> dict[str, Any]:
    """What the planner must know of the machine that models will run on (opsnn_target in ops_nn.h)."""
    facts: dict[str, Any] = {"name": board.key if board else toolchain.target, "arch": toolchain.arch, **toolchain.planner}
    if board:
        facts.update(features=board.soc.features, n_threads=board.soc.clusters[0]["n_cores"], **board.soc.measured)
    allowed = toolchain.level[level]["features"] if len(isas) > 1 else []
    facts["features"] = [f for f in facts["features"] if f in allowed]
    facts["isas"] = list(isas)
    return facts


# --- models -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompiledModel:
    source: Path
    sha256: str
    name: str  # of the compiled file
    path: Path  # where it lies until everything is known to be well
    ops: list[str]
    kernels: list[str]


def compile_models(options: argparse.Namespace, planner: dict[str, Any], scratch: Path) -> list[CompiledModel]:
    """Models as .opsnn files, with the operators and kernels that the planner uses for them on the target."""
    if not options.model:
        return []
    environment = {
        **os.environ,
        "OPS_NN_LIB": str(host_library()),
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONPYCACHEPREFIX": str(BUILD / "pycache"),
    }
    facts = scratch / "target.json"
    facts.write_text(json.dumps(planner))
    models = []
    for text in options.model:
        source = Path(text).resolve()
        name = f"{source.stem}.opsnn"
        used = scratch / f"{source.stem}.json"
        print(f"Compiling {source.name} for {planner['name']}", flush=True)
        command = [sys.executable, "-m", "ops_nn", "compile", str(source), "-o", str(scratch / name)]
        command += ["--for-target", str(facts), "--kernels-json", str(used)]
        if options.optimize_for_size:
            command.append("--optimize-for-size")
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"--model {text} could not be compiled:\n{(done.stderr or done.stdout).strip()}")
        needs = json.loads(used.read_text())
        models.append(CompiledModel(source, sha256(source), name, scratch / name, needs["ops"], needs["kernels"]))
    return models


def host_library() -> Path:
    """This machine's library with every operator: the planner. Built once in build/host, later only brought up to date."""
    host = BUILD / "host"
    BUILD.mkdir(exist_ok=True)
    with lock(BUILD / "host.lock"):
        print("Building the planner (build/host)", flush=True)
        clean = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT}
        command = [sys.executable, str(ROOT / "configure.py"), "--build-dir", str(host)]
        if not (host / "config.json").exists():
            quietly(command, "this machine's library could not be configured", clean)
        elif stale_inputs(read_config(host)):
            quietly([*command, "--again"], "this machine's library could not be configured", clean)
        scons = [sys.executable, "-m", "SCons", "-C", str(ROOT), "-Q", f"build={host}"]
        quietly(scons, "this machine's library could not be built", clean)
    return host / "libops_nn.so"


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def trim(
    options: argparse.Namespace, models: Sequence[CompiledModel], isas: Collection[str]
) -> tuple[Optional[list[str]], Optional[list[str]]]:
    """Operators and kernels that stay; None for all. Kernels of None with operators given: all of those operators."""
    listed = split_ops(options.ops)
    if not options.disable_unused_ops:
        if not listed:
            return None, None
        for model in models:
            lacking = sorted(set(model.ops) - set(listed))
            if lacking:
                raise UserError(f"--ops leaves out {', '.join(lacking)}, which {model.source.name} needs")
        return sorted(set(listed)), None
    if not models:
        return sorted(set(listed)), None
    ops = {op for m in models for op in m.ops} | set(listed)
    parse = load_module("gen", ROOT / "src" / "gen.py").parse_kernel
    added = {k.stem for k in map(parse, kernel_stems()) if k.op in listed and k.isa in isas}
    return sorted(ops), sorted({k for m in models for k in m.kernels} | added)


# --- what is written --------------------------------------------------------------------------------------------------------


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def input_hashes(toolchain: Toolchain, board: Optional[Board], models: Sequence[CompiledModel]) -> dict[str, str]:
    """Files whose change makes this configuration stale; SConstruct and host_library() compare them."""
    files = [toolchain.path.resolve(), *([board.path, board.soc.path] if board else [])]
    return {**{str(path): sha256(path) for path in files}, **{str(m.source): m.sha256 for m in models}}


def stale_inputs(config: dict[str, Any]) -> list[str]:
    changed = [p for p, digest in config["inputs"].items() if not Path(p).exists() or sha256(Path(p)) != digest]
    return changed or ([] if config["format"] == CONFIG_FORMAT else ["configure.py"])


def check_build_dir(build_dir: Path) -> None:
    if build_dir == ROOT or build_dir in ROOT.parents:
        raise UserError(f"--build-dir={build_dir} is the source tree itself: give a directory of its own, such as build/mine")
    if build_dir.exists() and any(build_dir.iterdir()) and not (build_dir / "config.json").exists():
        raise UserError(f"--build-dir={build_dir} is not empty and was not made by configure.py")


def write(build_dir: Path, config: dict[str, Any], models: Sequence[CompiledModel]) -> None:
    (build_dir / "models").mkdir(parents=True, exist_ok=True)
    wanted = {m.name for m in models}
    for old in (build_dir / "models").glob("*.opsnn"):
        if old.name not in wanted:
            old.unlink()
    for model in models:
        copy = build_dir / "models" / f".{model.name}"
        shutil.copyfile(model.path, copy)
        copy.replace(build_dir / "models" / model.name)
    write_atomically(build_dir / "config.json", json.dumps(config, indent=1) + "\n")
    if not is_private(build_dir):
        BUILD.mkdir(exist_ok=True)
        write_atomically(BUILD / "current", os.path.relpath(build_dir, BUILD) + "\n")


def is_private(build_dir: Path) -> bool:
    """The planner's and the tests' builds are never what a bare scons means."""
    return build_dir.parent == BUILD and (build_dir.name == "host" or build_dir.name.startswith("test-"))


def write_atomically(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def print_summary(build_dir: Path, config: dict[str, Any], board: Optional[Board], notes: Sequence[str]) -> None:
    kernels, ops = config["kernels"], config["ops"]
    content = "every operator" if ops is None else f"{len(ops)} operators" + (f", {len(kernels)} kernels" if kernels else "")
    rows = [
        ("target", config["target"] + (f", {board.name} ({board.soc.name})" if board else "")),
        ("compiler", config["compiler"]),
        ("baseline", " ".join([*config["flags"], *config["opt_flags"]])),
        ("kernels", ", ".join(config["isa_flags"])),
        ("contents", content),
        *(("model", f"{m['source']} -> models/{m['name']}") for m in config["models"]),
        *([("your flags", " ".join(config["user_flags"]))] if config["user_flags"] else []),
        ("runs by", " ".join(config["emulator"]) or "this machine"),
        *(("note", note) for note in [*notes, *(board.notes if board else [])]),
        ("written", str(build_dir / "config.json")),
    ]
    for name, text in rows:
        print(f"{name:>11}  {text}")
    print("Now run: scons" + (f" build={build_dir.name}" if is_private(build_dir) else ""))


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # nothing is written outside build/
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as problem:
        print(f"configure.py: {problem}", file=sys.stderr)
        sys.exit(1)
