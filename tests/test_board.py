"""The emulated boards run Python with NumPy and cffi, and instructions are counted exactly."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import board as boards
from benchmarks import measure
from benchmarks.board import ARCHS, BoardError, board_python, board_root

COUNTED_LOOP = {
    # one instruction to start with, then two a turn
    "armhf": 'movw r4, #1000\\n1: subs r4, r4, #1\\nbne 1b", "r4',
    "arm64": 'mov x4, #1000\\n1: subs x4, x4, #1\\nb.ne 1b", "x4',
}

PROGRAM = """
#include <unistd.h>
#include <sys/syscall.h>
#define MARK() syscall(SYS_close, -7701)
int main(void) {
    MARK(); MARK();
    __asm__ volatile("" ::: "memory");
    MARK(); __asm__ volatile("%s", "cc"); MARK();
    return 0;
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_board_runs_python_with_numpy_and_cffi(arch: str) -> None:
    script = (
        "import platform, numpy, _cffi_backend as cffi; ffi = cffi.FFI();"
        "print(platform.machine(), numpy.ones((2, 3)) @ numpy.ones(3), ffi.sizeof('void *'));"
        "print('asimd' in open('/proc/cpuinfo').read() or 'neon' in open('/proc/cpuinfo').read())"
    )
    command, environment = board_python(arch, ["-c", script])
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    machine, pointer = {"armhf": ("armv7l", 4), "arm64": ("aarch64", 8)}[arch]
    assert result.stdout.splitlines() == [f"{machine} [3. 3.] {pointer}", "True"], result.stderr


@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_of_known_length_is_counted_exactly(arch: str, tmp_path: Path) -> None:
    compiler = shutil.which(f"{ARCHS[arch].triple}-gcc")
    assert compiler, f"apt-get install gcc-{ARCHS[arch].triple}"
    source, program = tmp_path / "loop.c", tmp_path / "loop"
    assembly, register = COUNTED_LOOP[arch].split('", "')
    source.write_text(PROGRAM % f'{assembly}" ::: "{register}')
    subprocess.run([compiler, "-O2", "-static", "-o", program, source], check=True)
    run = measure.run_counted(arch, [program], hottest=1)
    empty, loop = run.regions
    assert loop - empty == 2001
    assert run.hottest[0]["instructions"] == 2 * 999  # the first turn runs with what is before it
    assert run.hottest[0]["file"] == str(program)


def test_the_counter_refuses_options_that_it_does_not_know(tmp_path: Path) -> None:
    plugin = f"{measure.plugin()},out={tmp_path / 'counts'},tip=3"
    command = [shutil.which("qemu-arm") or "qemu-arm", "-plugin", plugin, "/nowhere"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "unknown option tip=3" in result.stderr


def test_the_counter_refuses_a_newer_interface(tmp_path: Path) -> None:
    """A stand-in for a future QEMU loads the counter and offers interface 7."""
    host = tmp_path / "host.c"
    host.write_text(
        """
        #include <dlfcn.h>
        #include <stdbool.h>
        #include <stdint.h>
        #include <stdio.h>
        typedef struct { const char *name; struct { int min, cur; } version; bool system; int n[2]; } info;
        int main(int argc, char **argv) {
            void *plugin = dlopen(argv[1], RTLD_LAZY);
            int (*install)(uint64_t, const info *, int, char **);
            *(void **)&install = plugin ? dlsym(plugin, "qemu_plugin_install") : 0;
            if (!install) return puts(dlerror()), 2;
            info i = {"arm", {2, 7}, false, {0, 0}};
            return install(1, &i, 0, 0) == -1 ? 0 : 3;
        }
        """
    )
    program = tmp_path / "host"
    subprocess.run(["gcc", "-o", program, host, "-ldl"], check=True)
    command = [program, measure.plugin()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "plugin interface 7" in result.stderr


def test_a_program_that_fails_on_the_board_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"(?s)python3 failed on the emulated armhf.*told you"):
        measure.run_counted(
            "armhf", [boards.interpreter("armhf"), "-c", "raise SystemExit('told you')"]
        )


def test_packages_that_no_source_has_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "PACKAGES", ("no-such-package",))
    monkeypatch.setattr(boards, "_ubuntu_ports", lambda path: _empty_sources(path))
    with pytest.raises(BoardError, match=r"(?s)no Python for armhf:.*no-such-package.*/etc/apt"):
        board_root("armhf", tmp_path)
    assert list(tmp_path.iterdir()) == []


def _empty_sources(path: Path) -> Path:
    """Keeps the test off the network."""
    path.write_text("")
    return path


def test_counts_are_json(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    program = boards.interpreter("arm64")
    plugin = f"{measure.plugin()},out={counts},top=3"
    command = boards.board_command("arm64", [program, "-c", "0"], plugin=plugin)
    subprocess.run(command, env=boards.board_environment(), check=True)
    told = json.loads(counts.read_text())
    assert told["target"] == "aarch64"
    assert told["regions"] == []
    assert len(told["hottest"]) == 3
    total = told["total"]
    classes = ("simd", "load_store", "simd_load_store", "branch")
    assert 0 < sum(total[c] for c in classes) < total["instructions"]
