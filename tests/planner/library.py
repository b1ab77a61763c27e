"""A small library for the planner's tests, and models for it.

It holds the real core, the real rules and reference kernels of some operators, and the made-up kernels of kernels.c: what a
chooser must deal with is there on every machine, whatever kernels the project has today.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
from conftest import BUILD, ROOT
from numpy.typing import NDArray
from ops_nn import lib
from ops_nn import modelfile as F
from ops_nn import schema as S

import gen

HERE = Path(__file__).resolve().parent
Array = NDArray[Any]

# Operators of the library; gelu and others are left out on purpose, and log has a rule but no kernel.
REFERENCE = (
    "add",
    "sub",
    "mul",
    "clip",
    "sigmoid",
    "conv2d",
    "softmax",
    "matmul",
    "concat",
    "transpose",
    "batch_normalization",
    "global_average_pool",
)
VIEWS = ("identity", "reshape", "flatten")
MADE_UP = (
    "add_f32_any_equal_neondot",
    "tanh_f32_any_neonfp16",
    "sqrt_f32_any_nan_neon",
    "conv2d_f32_nhwc_pack_neon",
    "softmax_f32_any_scratch_neon",
)
OPS = (*REFERENCE, *VIEWS, "tanh", "sqrt", "log")


def build() -> Path:
    """Compiles the library where a source is newer than it."""
    out = BUILD / "test-planner"
    out.mkdir(parents=True, exist_ok=True)
    references = [
        p for op in REFERENCE for p in sorted((ROOT / "src/ref").glob(f"{op}_*_ref.c")) if gen.parse_kernel(p.stem).op == op
    ]
    sources = [
        *sorted((ROOT / "src/core").glob("*.c")),
        *(ROOT / "src/ops" / f"{rule}.c" for rule in gen.rule_files(OPS)),
        *references,
        HERE / "kernels.c",
    ]
    library = out / "libops_nn.so"
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        inputs = [*sources, *(ROOT / "src").rglob("*.h"), *(ROOT / "src").glob("*.py"), Path(__file__)]
        if not library.exists() or any(p.stat().st_mtime > library.stat().st_mtime for p in inputs):
            kernels = " ".join([*(p.stem for p in references), *MADE_UP])
            _run(sys.executable, ROOT / "src/gen.py", "--out", out, "--kernels", kernels, "--ops", " ".join(OPS))
            _run(sys.executable, ROOT / "site_scons/make_abi.py", out / "opsnn_cdef.txt", out / "_abi.py")
            cc = shlex.split(os.environ.get("CC", "cc"))
            _run(
                *cc,
                "-std=c11",
                "-O1",
                "-g",
                "-fPIC",
                "-shared",
                f"-I{ROOT / 'src'}",
                f"-I{ROOT / 'src/core'}",
                f"-I{out}",
                "-o",
                library,
                *sources,
                out / "opsnn_table.c",
                "-lm",
                "-lpthread",
            )
    return library


def _run(*command: Any) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command[:2]} failed:\n{done.stderr[-4000:]}"


class Net:
    """A model that is written down node by node; tensors are named by the indices that the methods return."""

    def __init__(self) -> None:
        self.tensors: list[F.Tensor] = []
        self.nodes: list[F.NodeRecord] = []
        self.inputs: list[int] = []

    def _add(self, tensor: F.Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def input(self, *dims: int, dtype: str = "f32", name: str = "") -> int:
        index = self._add(F.Tensor(name or f"in{len(self.inputs)}", dtype, "input", dims))
        self.inputs.append(index)
        return index

    def const(self, array: Any, block: int = 0, dtype: str = "f32") -> int:
        value = np.asarray(array, np.float32 if dtype == "f32" else dtype.replace("s", "int"))
        stored = F.block_first(value, block) if block > 1 else np.ascontiguousarray(value)
        return self._add(F.Tensor(f"c{len(self.tensors)}", dtype, "const", value.shape, stored.tobytes(), block))

    def node(
        self,
        op: str,
        *inputs: Optional[int],
        tails: Sequence[F.TailRecord] = (),
        name: str = "",
        dtype: str = "f32",
        **attrs: Any,
    ) -> int:
        layout = "nhwc" if S.BY_NAME[op].layout else "any"
        output = self._add(F.Tensor(f"t{len(self.tensors)}", dtype, "value"))
        self.nodes.append(F.NodeRecord(name or f"{op}{len(self.nodes)}", op, layout, inputs, [output], attrs, tails))
        return output

    def bytes(self, *outputs: int) -> bytes:
        return F.write(F.ModelFile(self.tensors, self.nodes, self.inputs, outputs))


def tail(op: str, other: Optional[int] = None, other_first: bool = False, **attrs: Any) -> F.TailRecord:
    return F.TailRecord(op, other, other_first, attrs)


def target(
    *features: str, n_threads: int = 1, arch: str = "aarch64", gflops: float = 10, gbytes_per_s: float = 4
) -> lib.Target:
    return lib.Target("testboard", arch, features, n_threads, gflops, gbytes_per_s)


def run(library: lib.Library, plan: lib.Handle, feeds: Sequence[Array], threads: int = 1) -> list[Array]:
    """Outputs of one run, copied."""
    pool = library.pool_create(threads) if threads > 1 else None
    executor = library.exec_create(plan, pool)
    return run_again(library, plan, executor, feeds)


def run_again(library: lib.Library, plan: lib.Handle, executor: lib.Handle, feeds: Sequence[Array]) -> list[Array]:
    for i, (info, feed) in enumerate(zip(library.plan_inputs(plan), feeds)):
        value = np.ascontiguousarray(feed, np.float32)
        assert value.shape == info.dims and value.nbytes == info.nbytes
        library.exec_input(executor, i, info.nbytes)[:] = value.tobytes()
    library.exec_run(executor)
    return [
        np.frombuffer(bytes(library.exec_output(executor, i, info.nbytes)), np.float32).reshape(info.dims)
        for i, info in enumerate(library.plan_outputs(plan))
    ]
