"""No byte of a hostile model file crashes or hangs a build: truncation, mutation, odd addresses and memory that runs out, under
AddressSanitizer and UndefinedBehaviorSanitizer, and on a 32-bit machine, where sizes overflow sooner (fuzz_model.c)."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
from conftest import Build
from native import compile_program
from ops_nn import modelfile as mf
from ops_nn import schema as S
from ops_nn.modelfile import ModelFile, NodeRecord, TailRecord, Tensor

RNG = np.random.default_rng(11)


class Builder:
    """A model, node by node."""

    def __init__(self, *dims: int) -> None:
        self.tensors = [Tensor("x", "f32", "input", dims)]
        self.nodes: list[NodeRecord] = []

    def constant(self, *dims: int, block: int = 0) -> int:
        values = RNG.uniform(0.5, 1.5, dims).astype(np.float32)
        stored = mf.block_first(values, block) if block > 1 else values
        self.tensors.append(Tensor(f"k{len(self.tensors)}", "f32", "const", dims, stored.tobytes(), block))
        return len(self.tensors) - 1

    def node(self, op: str, *inputs: Optional[int], layout: str = "any", tails: Sequence[TailRecord] = (), **attrs: Any) -> int:
        self.tensors.append(Tensor(f"t{len(self.tensors)}", "f32", "value"))
        result = len(self.tensors) - 1
        self.nodes.append(NodeRecord(f"n{len(self.nodes)}", op, layout, inputs, [result], attrs, tails))
        return result

    def write(self, *outputs: int) -> bytes:
        return mf.write(ModelFile(self.tensors, self.nodes, [0], outputs, {"producer": "tests"}))


def network() -> bytes:
    """Convolutions, fused steps and pools."""
    b = Builder(1, -1, 9, 3)
    w = b.constant(8, 3, 3, 3, block=4)
    c = b.node("conv2d", 0, w, b.constant(8), layout="nhwc", strides=[2, 2], pads=[1, 1, 1, 1], lo=0.0)
    d = b.node("conv2d", c, b.constant(8, 3, 3, 1), None, layout="nhwc", group=8, auto_pad="same_upper",
               tails=[TailRecord("sigmoid"), TailRecord("mul", b.constant(8)), TailRecord("add", c, True)])  # fmt: skip
    p = b.node("max_pool", d, layout="nhwc", kernel_shape=[2, 2], ceil_mode=1)
    q = b.node("average_pool", d, layout="nhwc", kernel_shape=[2, 2], ceil_mode=1, count_include_pad=1)
    s = b.node("add", p, q, lo=0.0, hi=6.0)
    n = b.node("batch_normalization", s, *(b.constant(8) for _ in range(4)), layout="nhwc")
    g = b.node("flatten", b.node("global_average_pool", n, layout="nhwc"))
    y = b.node("softmax", b.node("matmul", g, b.constant(5, 8, block=4), b.constant(5), trans_b=1))
    return b.write(y, n)


def movement() -> bytes:
    """Everything that moves or renames elements."""
    b = Builder(2, 3, 4)
    t = b.node("transpose", 0, perm=[2, 0, 1])
    c = b.node("concat", t, t, axis=1)
    p = b.node("pad", c, pads=[0, 1, -1, 0, 2, 0], value=1.0)
    s = b.node("slice", p, starts=[-1, 0], ends=[-100, 2**31], axes=[1, 0], steps=[-2, 1])
    u = b.node("unsqueeze", s, axes=[0, -1])
    r = b.node("reshape", b.node("squeeze", u), shape=[0, -1])
    m = b.node("matmul", r, b.node("transpose", r))
    return b.write(m, b.node("identity", s), 0)


def arithmetic() -> bytes:
    """Each element-wise operator once; every second one as a fused step."""
    b = Builder(2, 5, 6)
    at = 0
    pending: list[TailRecord] = []
    for op in S.OPS:
        if op.map and len(op.inputs) == 1:
            if len(pending) < 2:
                pending.append(TailRecord(op.name))
            else:
                at = b.node(op.name, at, tails=pending)
                pending = []
        elif op.map:
            at = b.node(op.name, at, b.constant(5, 1), tails=pending)
            pending = [TailRecord(op.name, b.constant(6), op.name != "prelu")]
    return b.write(b.node("abs", at, tails=pending))


MODELS = {"network": network, "movement": movement, "arithmetic": arithmetic}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    for name, make in MODELS.items():
        (folder / f"{name}.opsnn").write_bytes(make())
    return [folder / f"{name}.opsnn" for name in MODELS]


Fuzz = Callable[..., tuple[int, int, int, int]]  # inputs, opened, planned, run


def fuzzer(build: Build, folder: Path) -> Fuzz:
    program = compile_program(build, "fuzz_model.c", folder / "fuzz_model", [build.lib])

    def fuzz(*arguments: object) -> tuple[int, int, int, int]:
        done = build.run(program, *map(str, arguments))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found = re.fullmatch(r"(\d+) inputs, (\d+) opened, (\d+) planned, (\d+) run\n", done.stdout)
        assert found
        inputs, opened, planned, ran = map(int, found.groups())
        return inputs, opened, planned, ran

    return fuzz


@pytest.fixture(scope="session", params=["sanitized_build", "armhf_build"])
def fuzz(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return fuzzer(request.getfixturevalue(request.param), tmp_path_factory.mktemp(request.param))


def test_sound_models_run(fuzz: Fuzz, models: list[Path]) -> None:
    n = len(models)
    assert fuzz("run", *models) == (n, 2 * n, 2 * n, 2 * n)  # with the best kernels and with the reference


def test_every_operator_is_in_a_model() -> None:
    nodes = [node for make in MODELS.values() for node in mf.read(make()).nodes]
    used = {node.op for node in nodes} | {tail.op for node in nodes for tail in node.tails}
    assert used >= set(S.BY_NAME) - {"global_max_pool"}


def test_truncation_at_every_byte(fuzz: Fuzz, models: list[Path]) -> None:
    inputs, opened, _, _ = fuzz("truncate", *models)
    assert inputs > 2 * sum(path.stat().st_size for path in models) - 100 * len(models)
    assert 2 * len(models) <= opened < inputs // 10  # the whole files, and those that only lack what fills up the end


def test_flipped_bytes_and_splices(fuzz: Fuzz, models: list[Path], request: pytest.FixtureRequest) -> None:
    rounds = 200_000 if request.config.getoption("--long") else 10_000
    inputs, opened, planned, ran = fuzz("mutate", rounds, 1, *models)
    assert inputs == rounds
    # The mutations must not all stop at the verifier.
    assert opened > rounds // 20 and planned > rounds // 50 and ran > rounds // 50


def test_unaligned_buffers(fuzz: Fuzz, models: list[Path]) -> None:
    fuzz("unaligned", *models)


def test_memory_that_runs_out(fuzz: Fuzz, models: list[Path]) -> None:
    inputs, *_ = fuzz("memory", *models)
    assert inputs > 20 * len(models)
