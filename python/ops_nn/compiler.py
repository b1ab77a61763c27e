"""From the intermediate representation to the bytes of a model, and what a library must hold to run it.

Compiling is deterministic: the same network gives the same bytes on every machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

import numpy as np

from . import ir, lib
from . import schema as S
from .errors import FileError, LibraryError, ModelError, ShapeError
from .ir import Array, Graph, Node, Value
from .lib import Library, PathLike, Target, op_of, shape_text
from .modelfile import ModelFile, NodeRecord, TailRecord, Tensor, block_first, write
from .runtime import Model, Plan, Shapes


def compile_graph(graph: Graph) -> bytes:
    """The bytes of an .opsnn model. Names are kept; open dimensions stay open; constants are stored as their `block` says."""
    ir.verify(graph)
    values = graph.values()
    place = {value: i for i, value in enumerate(values)}
    inputs = set(graph.inputs)
    model = ModelFile(
        tensors=[_tensor(value, value in inputs) for value in values],
        nodes=[
            NodeRecord(
                node.name,
                node.op,
                node.layout,
                [None if v is None else place[v] for v in node.inputs],
                [place[v] for v in node.outputs],
                node.attrs,
                [TailRecord(t.op, None if t.other is None else place[t.other], t.other_first, t.attrs) for t in node.tail],
            )
            for node in graph.nodes
        ],
        inputs=[place[v] for v in graph.inputs],
        outputs=[place[v] for v in graph.outputs],
        meta=graph.meta,
    )
    try:
        return write(model)
    except ValueError as error:  # a size or a name that the format cannot hold
        raise ModelError(f"'{graph.name}' cannot be stored: {error}") from None


def _tensor(value: Value, is_input: bool) -> Tensor:
    if value.data is not None:
        stored = block_first(value.data, value.block) if value.block > 1 else value.data
        data = np.ascontiguousarray(stored, stored.dtype.newbyteorder("<")).tobytes()
        return Tensor(value.name, value.dtype, "const", value.data.shape, data, value.block)
    if not is_input:
        return Tensor(value.name, value.dtype, "value")
    if value.shape is None:
        raise ModelError(
            f"input '{value.name}' has no shape: give it, at least its number of dimensions (--shape {value.name}=...)"
        )
    return Tensor(value.name, value.dtype, "input", tuple(d if isinstance(d, int) else -1 for d in value.shape))


def evaluate(node: Node, arrays: Sequence[Optional[Array]], library: Optional[Library] = None) -> list[Array]:
    """Runs one node on constants, on this machine's library: how constant folding gets the same result as the board would.

    arrays   one for each of node.inputs, of that input's type; None where an optional one is not given
    """
    assert not node.tail, "fused steps come after folding"
    inputs: list[Optional[Value]] = []
    given: dict[str, Array] = {}
    for value, array in zip(node.inputs, arrays):
        if value is None or array is None:
            inputs.append(None)
        else:
            inputs.append(Value(f"i{len(inputs)}", value.dtype, array.shape))
            given[f"i{len(inputs) - 1}"] = array
    outputs = [Value(f"o{i}", v.dtype, None) for i, v in enumerate(node.outputs)]
    copy = Node(node.op, node.name, inputs, outputs, node.attrs, node.layout)
    graph = Graph(node.name, [v for v in inputs if v is not None], outputs, [copy])
    results = Model(compile_graph(graph), library).session(threads=1).run(given)
    return [results[v.name] for v in outputs]


@dataclass(frozen=True)
class Report:
    """What compiling did: nodes as imported and as stored, and how often each pass changed something, in order."""

    n_imported: int
    n_nodes: int
    passes: tuple[tuple[str, int], ...]


def compile_model(
    source: PathLike,
    shapes: Optional[Mapping[str, Union[int, Sequence[int]]]] = None,
    io_layout: str = "nchw",
    library: Optional[Library] = None,
) -> tuple[bytes, Report]:
    """Imports an ONNX or TensorFlow Lite file, optimises it and returns the bytes of an .opsnn model.

    source     its name says which: .tflite, anything else is ONNX
    shapes     fixes open dimensions: by an input's name all of its dimensions, by a dimension's name just that one
    io_layout  nchw: pictures go in and come out as in ONNX; nhwc: channels last, which saves the board a transposition. Those
               of TensorFlow Lite are channels last in any case
    library    this machine's, for shape rules and constant folding; None: the one that lib.find() finds

    Raises an OpsNNError; a ModelError's `problems` lists everything that is wrong with the model.
    """
    from . import __version__, passes

    library = library or lib.library()
    is_tflite = Path(source).suffix == ".tflite"
    try:
        importer = importlib.import_module(".importers.tflite" if is_tflite else ".importers.onnx", __package__)
    except ModuleNotFoundError as error:
        raise LibraryError(f"{source}: compiling it needs more packages ({error}): pip install 'ops-nn[convert]'") from None
    graph: Graph = importer.load(source, shapes)
    n_imported = len(graph.nodes)
    if is_tflite:
        io_layout = "nchw"
    tools = passes.Tools(library, functools.partial(evaluate, library=library))
    counts = passes.optimize(graph, tools, io_layout)
    with open(source, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    graph.meta.update(producer=f"ops-nn {__version__}", source=Path(source).name, source_sha256=digest)
    return compile_graph(graph), Report(n_imported, len(graph.nodes), tuple(counts))


# --- what a library must hold ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs:
    """Operators and kernels that a model needs, sorted; and for each of them the first node that does."""

    ops: tuple[str, ...]
    kernels: tuple[str, ...]
    first_use: Mapping[str, str]

    def to_dict(self) -> dict[str, list[str]]:
        return {"ops": list(self.ops), "kernels": list(self.kernels)}


def kernels_for(
    model: bytes,
    target: Optional[Target] = None,
    library: Optional[Library] = None,
    shapes: Optional[Shapes] = None,
    few: bool = False,
) -> Needs:
    """What a library trimmed to a model must hold to run it on the target with the very kernels that a full one would choose.

    target  the board; kernels are chosen for its declared CPU features only. A CPU that lacks them is told so by the library.
    shapes  where the model leaves dimensions open; None: a batch of 1, 224 for anything else
    few     fewer kernels rather than the fastest: for nodes that one kernel can do about as fast (within a quarter), one kernel
    """
    opened = Model(model, library)
    if shapes is not None or all(d >= 0 for info in opened.inputs for d in info.dims):
        return needs_of(opened.plan(shapes, target, pack=False), few)
    sample = {
        info.name: [d if d >= 0 else 1 if axis == 0 else 224 for axis, d in enumerate(info.dims)] for info in opened.inputs
    }
    try:
        return needs_of(opened.plan(sample, target, pack=False), few)
    except ShapeError as error:
        tried = ", ".join(f"{name}={shape_text(dims)}" for name, dims in sample.items())
        raise ShapeError(
            f"{error} (planned for {tried}, as dimensions are open: fix them when compiling)", error.node
        ) from None


def needs_of(plan: Plan, few: bool = False) -> Needs:
    """The operators and kernels of a plan, views (operators without kernels) and fused steps included."""
    nodes = plan.nodes
    chosen = _cover(plan) if few else {i: node.kernel for i, node in enumerate(nodes)}
    first: dict[str, str] = {}
    kernels: dict[str, None] = {}
    for i, node in enumerate(nodes):
        first.setdefault(node.op, node.name)
        for kernel in (chosen[i], *node.tail_kernels):
            if kernel == "view":
                continue
            kernels[kernel] = None
            first.setdefault(kernel, node.name)
            first.setdefault(op_of(kernel), node.name)
    ops = (name for name in first if name in S.BY_NAME)
    return Needs(tuple(sorted(ops)), tuple(sorted(kernels)), first)


def _cover(plan: Plan, slack: float = 1.25) -> dict[int, str]:
    """A kernel for each node, few in all: each time the one that does most of the nodes left within `slack` of their best."""
    able: dict[int, dict[str, float]] = {}
    result: dict[int, str] = {}
    for i, node in enumerate(plan.nodes):
        found = {c.kernel: c.predicted_ns for c in plan.candidates(i) if c.why is None}
        best = found.get(node.kernel)
        if best is None:  # a view
            result[i] = node.kernel
        else:
            able[i] = {k: ns for k, ns in found.items() if ns <= best * slack}
    while able:
        times: dict[str, list[float]] = {}
        for options in able.values():
            for kernel, ns in options.items():
                times.setdefault(kernel, []).append(ns)
        pick = max(times, key=lambda kernel: (len(times[kernel]), -sum(times[kernel]), kernel))
        result.update({i: pick for i, options in able.items() if pick in options})
        able = {i: options for i, options in able.items() if pick not in options}
    return result


# --- files -----------------------------------------------------------------------------------------------------------------


def save(path: PathLike, data: bytes) -> None:
    """Writes a file at once or not at all: a full disk or an interruption leaves what was there before. What is no file, a pipe
    or device, is written to, not replaced. FileError says why it failed."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)  # mkstemp's own files are private
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None
