"""Models, plans and sessions: what arrays are taken, who keeps what alive, threads."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Build
from numpy.testing import assert_array_equal
from ops_nn import lib
from ops_nn.errors import ArgumentError, FileError, FormatError, OpsNNError, ShapeError
from ops_nn.lib import Library, Target
from ops_nn.runtime import NUMPY, Model, Session
from tiny import conv_sigmoid, elementwise


@pytest.fixture
def library(host_build: Build) -> Library:
    return lib.library(host_build.lib)


@pytest.fixture
def session(library: Library) -> Session:
    return Model(conv_sigmoid(), library).session(threads=1)


def python(build: Build, cwd: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with ops_nn in a Python of its own."""
    own = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OPS_NN_LIB": str(build.lib), **environment}
    return subprocess.run([sys.executable, "-c", program], env=own, cwd=cwd, capture_output=True, text=True, timeout=60)


def picture(height: int = 8, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((1, height, 8, 3)).astype(np.float32)


# --- models and plans --------------------------------------------------------------------------------------------------------


def test_a_model_tells_about_itself(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "tiny.opsnn"
    path.write_bytes(conv_sigmoid("h"))
    for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), memoryview(path.read_bytes())):
        model = Model(source, library)
        (x,) = model.inputs
        assert (x.name, x.dtype, x.dims, x.nbytes) == ("x", "f32", (1, -1, 8, 3), 0)
        assert [(y.name, y.dtype) for y in model.outputs] == [("z", "f32")]
        assert model.n_nodes == 2 and model.meta("producer") == "tests" and model.meta("nothing") is None
        assert "x: f32[1x?x8x3] -> z: f32" in repr(model)
        model.check_hash()


def test_what_is_no_model(library: Library, tmp_path: Path) -> None:
    good = conv_sigmoid()
    for bad in (b"", b"OPSNN", good[:-1], good + b"\0", good.replace(b"OPSNN", b"ONNXX")):
        with pytest.raises(FormatError):
            Model(bad, library)
    with pytest.raises(FileError, match="nowhere"):
        Model(tmp_path / "nowhere.opsnn", library)
    (tmp_path / "net.onnx").touch()
    with pytest.raises(FormatError, match=r"compile it first: ops-nn compile .*net\.onnx -o .*net\.opsnn"):
        Model(tmp_path / "net.onnx", library)
    damaged = bytearray(good)
    damaged[-1] ^= 1
    with pytest.raises(FormatError):
        Model(damaged, library).check_hash()


def test_a_mutable_buffer_is_copied(library: Library) -> None:
    buffer = bytearray(conv_sigmoid())
    session = Model(buffer, library).session(threads=1)
    before = session.run(picture())["z"]
    buffer[:] = bytes(len(buffer))
    assert_array_equal(session.run(picture())["z"], before)


def test_a_plan_tells_about_itself(library: Library) -> None:
    plan = Model(conv_sigmoid("h"), library).plan({"x": (1, 6, 8, 3)})
    assert plan.inputs[0].dims == (1, 6, 8, 3) and plan.outputs[0].dims == (1, 6, 8, 4)
    assert plan.info.n_nodes == 2 and plan.info.macs >= 6 * 8 * 4 * 27 and plan.info.arena_bytes >= 6 * 8 * (3 + 4) * 4
    conv, act = plan.nodes
    assert (conv.name, conv.op, act.name, act.op) == ("conv", "conv2d", "act", "sigmoid")
    candidates = plan.candidates(0)
    assert [c.kernel for c in candidates if c.chosen] == [conv.kernel]
    assert all((c.why is None) == (c.predicted_ns > 0) for c in candidates)
    assert {c.kernel for c in candidates} == {k for k in library.kernels() if k.startswith("conv2d_")}


def test_planning_for_another_machine(library: Library) -> None:
    model = Model(conv_sigmoid(), library)
    slow = Target("slow", "arm", (), 1, 0.5, 0.5)
    plan = model.plan(target=slow, pack=False)
    assert all(node.kernel.endswith("_ref") for node in plan.nodes)
    assert plan.info.predicted_ns > model.plan(target=Target("fast", "arm", (), 1, 50, 50)).info.predicted_ns
    assert any("neon" in (c.why or "") for c in plan.candidates(0))


def test_the_reference_gives_the_same(library: Library) -> None:
    model = Model(conv_sigmoid(), library)
    fast, plain = model.session(1).run(picture())["z"], model.session(1, reference=True).run(picture())["z"]
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-6)


# --- arrays ------------------------------------------------------------------------------------------------------------------


def test_arrays_in_any_memory_order(session: Session) -> None:
    x = picture()
    expected = session.run(x)["z"]
    wide = np.zeros((1, 8, 16, 3), np.float32)
    wide[:, :, ::2] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    backwards = x[:, ::-1].copy()
    offset = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    for same in (np.asfortranarray(x), wide[:, :, ::2], x.astype(">f4"), frozen, backwards[:, ::-1], offset, {"x": x}):
        assert_array_equal(session.run(same)["z"], expected)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (np.zeros((1, 8, 8, 3)), ShapeError, r"input 'x' wants f32, not float64: .*astype\('float32'\)"),
        (np.zeros((1, 8, 8, 3), np.int32), ShapeError, "input 'x' wants f32, not int32"),
        (np.zeros((1, 3, 8, 8), np.float32), ShapeError, "input 'x' wants the shape 1x8x8x3, not 1x3x8x8"),
        (np.zeros((8, 8, 3), np.float32), ShapeError, "wants the shape 1x8x8x3, not 8x8x3"),
        (np.float32(1), ShapeError, "wants the shape 1x8x8x3, not a scalar's"),
        ([[1.0]], ShapeError, "wants f32, not float64"),
        ("picture.png", ShapeError, "wants f32, not <U11"),
        ({"y": picture()}, ArgumentError, "array for 'y': the model has no such input; its inputs are x"),
        ({}, ArgumentError, "no array for input 'x'"),
    ],
)
def test_arrays_that_do_not_fit(session: Session, given: Any, error: type[OpsNNError], says: str) -> None:
    with pytest.raises(error, match=says):
        session.run(given)


def test_several_inputs_go_by_name(library: Library) -> None:
    session = Model(elementwise("sub", [(2, 3), (3,)]), library).session(1)
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    assert_array_equal(session.run({"in1": b, "in0": a})["out"], a - b)
    with pytest.raises(ArgumentError, match="the model has 2 inputs: give a dict of arrays for in0, in1"):
        session.run(a)
    with pytest.raises(ArgumentError, match="no array for input 'in1'"):
        session.run({"in0": a})


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (1,), ()])
def test_empty_tensors_and_scalars(library: Library, shape: tuple[int, ...]) -> None:
    x = np.full(shape, -2.0, np.float32)
    y = Model(elementwise("abs", [shape]), library).session(1).run(x)["out"]
    assert y.shape == shape and (y == 2).all()


@pytest.mark.parametrize("dtype", ["f32", "u8", "s64", "f16", "bool"])
def test_bytes_of_any_type_arrive(library: Library, dtype: str) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(NUMPY[dtype])
    y = Model(elementwise("transpose", [(2, 3, 4)], dtype, perm=(2, 0, 1)), library).session(1).run(x)["out"]
    assert y.dtype == NUMPY[dtype]
    assert_array_equal(y, x.transpose(2, 0, 1))


def test_results_are_copies_unless_asked(session: Session) -> None:
    first, second = session.run(picture())["z"], session.run(picture(seed=1))["z"]
    assert not np.array_equal(first, second)
    view = session.run(picture(), copy=False)["z"]
    assert_array_equal(view, first)
    session.run(picture(seed=1))
    assert_array_equal(view, second)


# --- shapes ------------------------------------------------------------------------------------------------------------------


def test_open_dimensions_follow_the_arrays(library: Library) -> None:
    model = Model(conv_sigmoid("h"), library)
    session = model.session(1)
    assert session.plan is None
    for height in (8, 6, 8, 4, 3, 2, 9, 8):
        expected = Model(conv_sigmoid(height), library).session(1).run(picture(height))["z"]
        assert_array_equal(session.run(picture(height))["z"], expected)
        assert session.plan is not None and session.plan.inputs[0].dims == (1, height, 8, 3)
    assert len(session._executors) <= 4
    with pytest.raises(ShapeError, match=r"wants the shape 1x\?x8x3, not 1x8x9x3"):
        session.run(np.zeros((1, 8, 9, 3), np.float32))


def test_shapes_given_before(library: Library) -> None:
    model = Model(conv_sigmoid("h"), library)
    for shapes in ({"x": (1, 6, 8, 3)}, [(1, 6, 8, 3)], [[1, np.int64(6), 8, 3]]):
        plan = model.session(1, shapes=shapes).plan
        assert plan is not None and plan.outputs[0].dims == (1, 6, 8, 4)
    with pytest.raises(ArgumentError, match="shape for 'q'"):
        model.plan({"q": (1,)})
    with pytest.raises(ArgumentError, match="one shape for each of the inputs x"):
        model.plan([(1, 6, 8, 3), (1,)])
    for wrong in ((1, 6, 9, 3), (1, 6, 8), (1, -1, 8, 3), (1, 2**40, 8, 3)):
        with pytest.raises(OpsNNError):
            model.plan([wrong])


# --- lifetimes ---------------------------------------------------------------------------------------------------------------


def memory(library: Library) -> int:
    """Bytes that the library has, garbage aside."""
    gc.collect()
    return library.memory_usage()[0]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_objects_die_in_any_order(library: Library, order: tuple[int, ...]) -> None:
    before = memory(library)
    model = Model(bytes(bytearray(conv_sigmoid())), library)
    plan = model.plan()
    session = model.session(threads=2)
    view = session.run(picture(), copy=False)["z"]
    objects: list[Any] = [model, plan, session, view]
    expected = view.copy()
    del model, plan, session, view
    for i in order:
        objects[i] = None
        if objects[3] is not None:
            assert_array_equal(objects[3], expected)
        if objects[2] is not None:
            assert_array_equal(objects[2].run(picture())["z"], expected)
    assert memory(library) == before


def test_cycles_are_collected(library: Library) -> None:
    before = memory(library)
    session: Any = Model(conv_sigmoid(), library).session(threads=2)
    session.me = session
    session.view = session.run(picture(), copy=False)["z"]
    del session
    assert memory(library) == before


def test_failures_leave_nothing_behind(library: Library) -> None:
    model = Model(conv_sigmoid("h"), library)
    session = model.session(1)
    before = memory(library)
    for _ in range(20):
        with pytest.raises(OpsNNError):
            model.plan([(1, 6, 9, 3)])
        with pytest.raises(OpsNNError):
            Model(b"OPSNN", library)
        with pytest.raises(OpsNNError):
            session.run(np.zeros((1, 0, 8, 3), np.float32))
    assert memory(library) == before


@pytest.mark.parametrize(
    "code",
    [
        "keep = (model, session, view)",
        "import sys; sys.modules['x'] = session; sys.exit()",
        "import threading; threading.Thread(target=lambda: [session.run(x) for _ in range(2000)], daemon=True).start()",
        "import atexit; atexit.register(lambda: session.run(x))",
        "raise SystemExit(0)",
    ],
)
def test_the_interpreter_ends_with_living_objects(host_build: Build, tmp_path: Path, code: str) -> None:
    (tmp_path / "m.opsnn").write_bytes(conv_sigmoid())
    program = (
        "import numpy, ops_nn; model = ops_nn.Model('m.opsnn'); session = model.session(threads=3)\n"
        f"x = numpy.zeros((1, 8, 8, 3), 'f4'); view = session.run(x, copy=False)\n{code}\n"
    )
    done = python(host_build, tmp_path, program)
    assert done.returncode == 0 and not done.stderr, done.stderr


# --- threads -----------------------------------------------------------------------------------------------------------------


def test_threads_may_share_a_session(library: Library) -> None:
    session = Model(conv_sigmoid(), library).session(threads=2)
    expected = [session.run(picture(seed=i))["z"] for i in range(8)]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not np.array_equal(session.run(picture(seed=i))["z"], expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_do_not_depend_on_threads(library: Library) -> None:
    model = Model(conv_sigmoid(32, 40), library)
    x = picture(32)
    one = model.session(threads=1).run(x)["z"]
    for threads in (0, 2, 3, 7):
        assert_array_equal(model.session(threads=threads).run(x)["z"], one)
    with pytest.raises(ArgumentError, match="-1 threads are too few"):
        model.session(threads=-1)


def test_other_threads_go_on_during_a_run(library: Library) -> None:
    session = Model(conv_sigmoid(1500, 256), library).session(threads=1, reference=True)
    x = picture(1500)
    running = threading.Event()
    done = threading.Event()

    def work() -> None:
        running.set()
        session.run(x)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    turns = 0
    while not done.is_set():
        turns += 1
        done.wait(0.001)
    thread.join()
    assert turns > 3  # with the lock of the interpreter held, this loop would have come to a stop


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_session_in_a_forked_process(host_build: Build, tmp_path: Path) -> None:
    (tmp_path / "m.opsnn").write_bytes(conv_sigmoid())
    program = """
import os, numpy, ops_nn
model, x = ops_nn.Model("m.opsnn"), numpy.zeros((1, 8, 8, 3), "f4")
pooled, single = model.session(threads=2), model.session(threads=1)
pooled.run(x)
pid = os.fork()
if pid == 0:
    single.run(x)
    model.session(threads=2).run(x)
    try:
        pooled.run(x)
    except ops_nn.OpsNNError as error:
        os._exit(7 if "after the fork" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    done = python(host_build, tmp_path, program)
    assert done.returncode == 0, done.stderr


def test_times_of_nodes(library: Library) -> None:
    session = Session(Model(conv_sigmoid("h"), library), 1, measured=True)
    assert session.times == []
    session.run(picture())
    assert len(session.times) == 2 and all(ns > 0 for ns in session.times)
    assert Model(conv_sigmoid(), library).session(1).times == []


def test_a_cpu_that_lacks_what_was_asked_for(host_build: Build, tmp_path: Path) -> None:
    (tmp_path / "m.opsnn").write_bytes(elementwise("add", [(64, 64), (64, 64)]))
    program = """
import ops_nn
board = ops_nn.Target("board", "arm", ("neon", "fma", "a64"), 1, 2, 1)
model = ops_nn.Model("m.opsnn")
assert model.plan().nodes[0].kernel == "add_f32_any_ref" and ops_nn.library().target_detect().features == ()
assert "neon" in model.plan(target=board).nodes[0].kernel
try:
    model.session(1, target=board)
except ops_nn.CpuError as error:
    assert "neon" in str(error), error
else:
    raise SystemExit("the session was made")
"""
    done = python(host_build, tmp_path, program, OPSNN_CPU_MASK="0")
    assert done.returncode == 0, done.stderr
