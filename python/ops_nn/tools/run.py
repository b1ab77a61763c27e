"""Runs a model on this machine and tells its results and its time.

    ops-nn run net.opsnn
    ops-nn run net.opsnn --input image=picture.npy --output scores=scores.npy --repeat 10

Inputs that are not given are random numbers, the same ones every time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError, FileError
from ..lib import TensorInfo, shape_text
from ..runtime import NUMPY, Model
from . import common

if TYPE_CHECKING:
    from ..runtime import Array

HELP = "run a model on arrays"


def _named(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise argparse.ArgumentTypeError(f"'{text}' is no NAME=FILE")
    return name, path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".opsnn, or .onnx or .tflite, which is compiled on the way")
    group = parser.add_argument_group("data")
    group.add_argument("--input", metavar="NAME=FILE", type=_named, action="append", default=[],
                       help=".npy, or the bare elements of any other file; repeatable")  # fmt: skip
    group.add_argument("--output", metavar="NAME=FILE", type=_named, action="append", default=[],
                       help="where to write an output: .npy, or else its bare elements; repeatable")  # fmt: skip
    common.add_shape(group)
    group = parser.add_argument_group("how to run")
    group.add_argument("--repeat", metavar="N", type=int, default=1, help="runs; the times are told (1)")
    group.add_argument("--threads", metavar="N", type=int, default=0, help="threads; 0: the big cores of this machine (0)")
    group.add_argument("--reference", action="store_true", help="the portable reference kernels only")
    common.add_library(group)


def run(args: argparse.Namespace) -> int:
    model = common.open_model(args.model, common.open_library(args.lib), args.shape)
    if args.repeat < 1:
        raise ArgumentError(f"--repeat {args.repeat}: at least one run is needed")
    inputs = _inputs(model, dict(args.input), dict(args.shape))
    outputs = dict(args.output)
    for name in outputs:
        if name not in [info.name for info in model.outputs]:
            raise ArgumentError(f"--output {name}: the model's outputs are {', '.join(o.name for o in model.outputs)}")
    session = model.session(args.threads, {name: array.shape for name, array in inputs.items()}, reference=args.reference)
    times = []
    for _ in range(args.repeat):
        start = time.perf_counter_ns()
        results = session.run(inputs)
        times.append(time.perf_counter_ns() - start)
    for name, array in results.items():
        print(_summary(name, array))
        if name in outputs:
            _write(outputs[name], array)
    median = sorted(times)[len(times) // 2]
    print(f"{len(times)} run{'s' * (len(times) > 1)}: median {common.time(median)}, fastest {common.time(min(times))}")
    return 0


def _inputs(model: Model, files: dict[str, str], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    for name in (*files, *shapes):
        if name not in [info.name for info in model.inputs]:
            raise ArgumentError(f"'{name}': the model's inputs are {', '.join(i.name for i in model.inputs)}")
    arrays = {}
    for info in model.inputs:
        dims = shapes.get(info.name, info.dims)
        if info.name in files:
            arrays[info.name] = _read(files[info.name], info, dims)
        elif min(dims, default=0) < 0:
            raise ArgumentError(f"input '{info.name}' has open dimensions ({shape_text(dims)}): give --shape {info.name}=DIMS")
        else:
            wanted = NUMPY[info.dtype]
            if wanted.kind == "f":
                arrays[info.name] = random.standard_normal(dims).astype(wanted)
            else:
                arrays[info.name] = random.integers(0, 2 if wanted.kind == "b" else 100, dims).astype(wanted)
    return arrays


def _read(path: str, info: TensorInfo, dims: tuple[int, ...]) -> Array:
    if path.endswith(".npy"):
        try:
            return np.asarray(np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise FileError(f"{path} cannot be read as .npy: {error}") from None
    data = common.read_bytes(path)
    wanted = NUMPY[info.dtype]
    if min(dims, default=0) < 0:
        raise ArgumentError(f"'{info.name}' has open dimensions, which {path} does not tell: give --shape {info.name}=DIMS")
    n_bytes = wanted.itemsize * int(np.prod(dims, dtype=np.int64))
    if len(data) != n_bytes:
        raise ArgumentError(f"{path} has {len(data)} bytes; '{info.name}', {info.dtype}[{shape_text(dims)}], has {n_bytes}")
    return np.frombuffer(data, wanted.newbyteorder("<")).reshape(dims)


def _write(path: str, array: Array) -> None:
    try:
        if path.endswith(".npy"):
            np.save(path, array)
        else:
            Path(path).write_bytes(array.astype(array.dtype.newbyteorder("<")).tobytes())
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None


def _summary(name: str, array: Array) -> str:
    text = f"{name}: {array.dtype}[{shape_text(array.shape)}]"
    if array.size == 0 or array.dtype.kind not in "fiu":
        return text
    flat = array.reshape(-1)
    if flat.size <= 8:
        return f"{text} = {', '.join(f'{v:.6g}' for v in flat)}"
    largest = np.argsort(-flat.astype(np.float64), kind="stable")[:5]
    best = ", ".join(f"[{i}] {flat[i]:.6g}" for i in largest)
    return f"{text} from {flat.min():.6g} to {flat.max():.6g}, mean {flat.mean(dtype=np.float64):.6g}; largest {best}"
