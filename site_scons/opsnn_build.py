"""Helpers of SConstruct."""
from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from SCons.Script import Action, Alias, AlwaysBuild, Builder, Environment, Exit, Precious
from SCons.Tool import SourceFileScanner

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
import gen as generator  # noqa: E402  (src/ is on the path only now)
import schema  # noqa: E402

Config = dict[str, Any]
Env = Any  # SCons has no types

CONFIG_FORMAT = 2  # configure.py writes it

WARNINGS = [
    "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wundef", "-Wvla",
    "-Wstrict-prototypes", "-Wmissing-prototypes",
]  # fmt: skip
LANGUAGE = [
    "-std=gnu11",
    # Results depend on what the source says: no multiply-add is fused that was not written as one, on any compiler.
    "-ffp-contract=off",
    # Nobody reads errno after sqrtf; without this every call tests for it.
    "-fno-math-errno",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-g",  # stays out of the stripped copy, which is what gets installed
    # 32-bit programs cannot read directories of modern file systems without it.
    "-D_FILE_OFFSET_BITS=64",
]
LINK_LIBRARY = ["-shared", "-Wl,-soname,libops_nn.so.0"]
LINK = ["-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,-z,noexecstack"]
HARDEN = ["-Wl,-z,relro", "-Wl,-z,now"]
# Protecting relocated data pads the file to a page boundary, and AArch64's linker counts with pages of 64 KiB.
NO_HARDEN = ["-Wl,-z,norelro"]
LIBRARIES = ["-lm", "-lpthread"]
# Python's bytecode: not beside the sources.
PYTHON_CACHE = {"PYTHONPYCACHEPREFIX": str(ROOT / "build" / "pycache")}
STRIP = ["-Wl,-s"]  # by the linker, as it knows every target; a strip program for Arm may not be installed


def stop(message: str) -> None:
    print(f"scons: {message}", file=sys.stderr)
    Exit(2)


# --- configuration ----------------------------------------------------------------------------------------------------------


def load_config(arguments: dict[str, str]) -> Config:
    """config.json of the build that is meant: build=DIR, else the last configured one."""
    path = _build_dir(arguments) / "config.json"
    if not path.exists():
        stop(f"{path.parent} has not been configured: run ./configure.py --build-dir={shlex.quote(str(path.parent))} first")
    config: Config = json.loads(path.read_text())
    if config["format"] != CONFIG_FORMAT:
        stop("configure.py has changed since this build was configured: run ./configure.py --again")
    for name, digest in config["inputs"].items():
        if not Path(name).exists():
            stop(f"{name} is gone since configure: configure again without it")
        if hashlib.sha256(Path(name).read_bytes()).hexdigest() != digest:
            stop(f"{name} has changed since configure: run ./configure.py --again")
    # Relative where possible, so that command lines are short and the same in every clone.
    directory = path.parent.resolve()
    config["dir"] = os.path.relpath(directory, ROOT) if ROOT in directory.parents else str(directory)
    return config


def _build_dir(arguments: dict[str, str]) -> Path:
    name = arguments.get("build", "")
    if name:
        return Path(name) if os.sep in name else ROOT / "build" / name
    pointer = ROOT / "build" / "current"
    if not pointer.exists():
        stop("nothing has been configured: run ./configure.py first (or scons demo, scons test, which need no configuring)")
    return ROOT / "build" / pointer.read_text().strip()


def kernels(config: Config) -> list[generator.Kernel]:
    """The kernels to build: what lies in src/ref and src/neon, less what was configured away."""
    found = []
    for path in sorted(p for folder in ("ref", "neon") for p in (ROOT / "src" / folder).glob("*.c")):
        try:
            kernel = generator.parse_kernel(path.stem)
        except ValueError as error:
            stop(str(error))
        if (path.parent.name == "ref") != (kernel.isa == "ref"):
            where = "src/ref" if kernel.isa == "ref" else "src/neon"
            stop(f"{path.relative_to(ROOT)}: kernels of ISA {kernel.isa} belong into {where}")
        found.append(kernel)
    found = [k for k in found if k.isa in config["isa_flags"]]
    if config["kernels"] is not None:
        missing = set(config["kernels"]) - {k.stem for k in found}
        if missing:
            stop(f"kernels {', '.join(sorted(missing))} are gone since configure: run ./configure.py --again")
        return [k for k in found if k.stem in config["kernels"]]
    return [k for k in found if config["ops"] is None or k.op in config["ops"]]


def rules(config: Config) -> list[str]:
    return generator.rule_files(config["ops"] if config["ops"] is not None else schema.BY_NAME)


# --- the build --------------------------------------------------------------------------------------------------------------


def environment(config: Config, arguments: dict[str, str]) -> Env:
    build = config["dir"]
    zig_cache = str(ROOT / "build" / "zig-cache")  # not in the user's home
    prefix_map = [f"-ffile-prefix-map={ROOT}=."]
    if os.path.isabs(build):
        prefix_map.append(f"-ffile-prefix-map={build}=build")
    env = Environment(
        tools=["install"],
        ENV={**os.environ, **PYTHON_CACHE, "ZIG_GLOBAL_CACHE_DIR": zig_cache, "ZIG_LOCAL_CACHE_DIR": zig_cache},
        CC=config["cc"],
        PYTHON=[config["python"]],  # lists, as a path may contain spaces
        BUILD=build,
        CCFLAGS=[
            *LANGUAGE,
            *prefix_map,
            *WARNINGS,
            *(["-Werror"] if config["werror"] else []),
            *config["flags"],
            *config["opt_flags"],
        ],
        ISAFLAGS=[],
        USERFLAGS=config["user_flags"],
        INCPREFIX="-I",
        INCSUFFIX="",
        CPPPATH=["src", "src/core", f"{build}/gen"],
        # Undefined symbols are found here, not on the board. A sanitizer's own are resolved by the program that uses it.
        LINKFLAGS=[
            *LINK,
            *(NO_HARDEN if config["optimize_for_size"] else HARDEN),
            *([] if config["sanitize"] else ["-Wl,-z,defs"]),
            *config["flags"],
            *config["opt_flags"],
        ],
        SOFLAGS=LINK_LIBRARY,
        USERLINKFLAGS=[*config["user_flags"], *config["link_flags"]],
        LIBRARIES=LIBRARIES,
        STRIP=[],
        # The library lies beside the program in the build tree and in ../lib when installed. Through a shell, hence the quotes.
        RPATH="-Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib'",
    )

    def action(command: str, brief: str) -> Any:
        return Action(command) if arguments.get("verbose") else Action(command, brief)

    flags = "$CCFLAGS $_CPPINCFLAGS $ISAFLAGS $USERFLAGS"
    link = "$STRIP $LINKFLAGS $USERLINKFLAGS -o $TARGET $SOURCES $LIBRARIES"
    env["BUILDERS"].update({
        "Obj": Builder(action=action(f"$CC {flags} -c -o $TARGET $SOURCE", "CC $SOURCE"), source_scanner=SourceFileScanner),
        "SharedLib": Builder(action=action(f"$CC $SOFLAGS {link}", "LD $TARGET")),
        "Executable": Builder(action=action(f"$CC {link} $RPATH", "LD $TARGET")),
        "Python": Builder(action=action("$PYTHON $SCRIPT $SCRIPTARGS", "GEN $TARGET")),
    })
    return env


def objects(env: Env, folder: str, sources: Sequence[Any], **flags: Any) -> list[Any]:
    """One object per source, in <build>/obj/<last part of folder>/."""
    directory = f"{env['BUILD']}/obj/{os.path.basename(folder)}"
    return [node for s in sources for node in env.Obj(f"{directory}/{Path(str(s)).stem}.o", s, **flags)]


def kernel_object(env: Env, config: Config, kernel: generator.Kernel) -> Any:
    folder = "ref" if kernel.isa == "ref" else "neon"
    return objects(env, folder, [f"src/{folder}/{kernel.stem}.c"], ISAFLAGS=config["isa_flags"][kernel.isa])


class Generated(NamedTuple):
    header: Any
    table: Any
    cdef: Any


def generate(env: Env, config: Config, chosen: Sequence[generator.Kernel]) -> Generated:
    """opsnn_ops.h, opsnn_table.c, opsnn_cdef.txt. Kernels and operators are on the command line, where SCons sees changes."""
    out = f"{env['BUILD']}/gen"
    write = Action(_write_build_info, "GEN $TARGET", varlist=["INFO"])
    info = env.Command(f"{out}/build_info.json", [], write, INFO=build_info(config))
    command = ["--out", out, "--kernels=" + " ".join(k.stem for k in chosen)]  # none, where all operators are views
    command += ["--ops=" + ("all" if config["ops"] is None else " ".join(config["ops"])), "--build-info", str(info[0])]
    targets = [f"{out}/opsnn_ops.h", f"{out}/opsnn_table.c", f"{out}/opsnn_cdef.txt"]
    nodes = env.Python(
        targets, ["src/gen.py", "src/schema.py", "src/ops_nn.h", info], SCRIPT="src/gen.py", SCRIPTARGS=command
    )
    Precious(nodes)  # gen.py leaves alone what has not changed
    return Generated(*nodes)


def build_info(config: Config) -> str:
    """What the library tells about itself. No paths: the same sources give the same bytes on every machine."""
    facts = {name: config[name] for name in ("target", "board", "compiler", "elf", "planner", "sanitize", "optimize_for_size")}
    facts["flags"] = " ".join([*config["flags"], *config["opt_flags"]])
    facts["isas"] = list(config["isa_flags"])
    facts["models"] = [model["name"] for model in config["models"]]
    return json.dumps(facts, sort_keys=True)


def _write_build_info(target: Sequence[Any], source: Sequence[Any], env: Env) -> None:
    Path(str(target[0])).write_text(env["INFO"])


def abi_module(env: Env, cdef: Any) -> Any:
    """The cffi module that Python loads the library with; nothing of it is compiled on the board."""
    target = f"{env['BUILD']}/python/ops_nn/_abi.py"
    script = "site_scons/make_abi.py"
    return env.Python(target, [script, cdef], SCRIPT=script, SCRIPTARGS=[str(cdef), target])


def audit(env: Env, config: Config, library: Any) -> Any:
    """Compares the linked library with what was configured; a library that is not what it claims to be stops the build."""
    target = f"{env['BUILD']}/audit.txt"
    script = "site_scons/audit.py"
    arguments = [str(library[0]), f"{env['BUILD']}/config.json", target]
    return env.Python(target, [script, library, f"{env['BUILD']}/config.json"], SCRIPT=script, SCRIPTARGS=arguments)


def symlink(env: Env, name: str, target: Any) -> Any:
    def make(target: Sequence[Any], source: Sequence[Any], env: Env) -> None:
        path = Path(str(target[0]))
        path.unlink(missing_ok=True)
        path.symlink_to(Path(str(source[0])).name)

    return env.Command(name, target, Action(make, "LN $TARGET"))


def icount_plugin(source: str, target: str) -> Any:
    """The instruction-counting QEMU plugin: runs on this machine, so this machine's own compiler makes it."""
    env = Environment(tools=[], ENV=os.environ)
    return env.Command(target, source, Action("gcc -O2 -Wall -shared -fPIC -o $TARGET $SOURCE", "CC $SOURCE"))


# --- commands ---------------------------------------------------------------------------------------------------------------


def build_python() -> str:
    """build/venv's Python; commands that need it say how to get it."""
    python = ROOT / "build" / "venv" / "bin" / "python"
    return str(python) if python.exists() else sys.executable


def python_alias(name: str, command: Sequence[str], arguments: dict[str, str], needs: Any = ()) -> None:
    """`scons <name>` runs a Python program in the foreground, after what it needs has been built."""

    def run(target: Sequence[Any], source: Sequence[Any], env: Env) -> int:
        words = [build_python(), *command, *shlex.split(arguments.get("args", ""))]
        path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        return subprocess.run(words, cwd=ROOT, env={**os.environ, **PYTHON_CACHE, "PYTHONPATH": path}).returncode

    AlwaysBuild(Alias(name, needs, Action(run, None)))


def run_alias(env: Env, config: Config, name: str, program: Any) -> None:
    """`scons <name>` runs a built program, under the emulator where this machine cannot."""

    def run(target: Sequence[Any], source: Sequence[Any], env: Env) -> int:
        return subprocess.run([*config["emulator"], str(program[0])], env=env["ENV"]).returncode

    AlwaysBuild(env.Alias(name, program, Action(run, None)))


def install(env: Env, config: Config, arguments: dict[str, str], library: Any, runner: Any) -> None:
    prefix = arguments.get("DESTDIR", "") + arguments.get("PREFIX", str(config["prefix"]))
    installed = env.InstallAs(f"{prefix}/lib/libops_nn.so.0", library)
    nodes = [
        installed,
        symlink(env, f"{prefix}/lib/libops_nn.so", installed),
        env.Install(f"{prefix}/include", ["src/ops_nn.h", f"{config['dir']}/gen/opsnn_ops.h"]),
        env.Install(f"{prefix}/bin", runner),
        env.Install(f"{prefix}/share/ops-nn", [f"{config['dir']}/models/{m['name']}" for m in config["models"]]),
    ]
    env.Alias("install", nodes)
