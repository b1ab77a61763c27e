#!/usr/bin/env python3
"""Run networks here and in the library that is the judge, and print the table of docs/models.md.

python models/compare.py                all that run
python models/compare.py blazeface      some

ONNX networks are judged by onnxruntime, TensorFlow Lite ones by LiteRT's own kernels (no delegates,
but for selfie segmentation, of which only a delegate knows all operators).
Pictures are astronaut.png, squeezed to the input's size; everything else is drawn from a seeded
generator. Outputs of integer networks are compared as the numbers that they stand for.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from PIL import Image

if __package__ in (None, ""):  # started by path: make the repository's packages importable
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent / part) for part in ("", "python")]

from ops_nn.compiler import compile_model
from ops_nn.lib import Library
from ops_nn.runtime import Model

from models import get
from models.fetch import ROOT

RANGES = {  # what the pixels 0 to 255 become; no entry: the input is no picture
    "efficientnet-lite0": (-1.0, 1.0),
    "mobilenetv2-dogs": (-1.0, 1.0),
    "mobilenetv2-224": (-1.0, 1.0),
    "squeezenet11": (-116.0, 139.0),
    "blazeface": (-1.0, 1.0),
    "face-detection-back": (-1.0, 1.0),
    "face-detection-full-range": (-1.0, 1.0),
    "face-landmark": (0.0, 1.0),
    "iris-landmark": (0.0, 1.0),
    "efficientnet-lite0-int8": (0.0, 255.0),
    "deeplabv3": (-1.0, 1.0),
    "selfie-segmentation": (0.0, 1.0),
    "selfie-segmentation-landscape": (0.0, 1.0),
    "person-detector-int8": (0.0, 1.0),
    "cifar10-resnet-int8": (-128.0, 127.0),
}
FLOAT = ("efficientnet-lite0", "squeezenet11", "mobilenetv2-dogs", "mobilenetv2-224", "blazeface", "face-detection-back",
         "face-detection-full-range", "face-landmark", "iris-landmark", "deeplabv3", "selfie-segmentation",
         "selfie-segmentation-landscape")  # fmt: skip
INTEGER = ("efficientnet-lite0-int8", "person-detector-int8", "cifar10-resnet-int8", "keyword-spotting-int8",
           "anomaly-detection-int8")  # fmt: skip
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Difference:
    """Of one output: its largest magnitude, the largest error, and for integers one step."""

    output: str
    largest: float
    error: float
    step: float


def feed(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], channels_last: bool) -> Array:
    """An input for a network: a picture or random numbers."""
    if name not in RANGES:
        rng = np.random.default_rng(0)
        if dtype.kind == "f":
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape).astype(dtype)
    height, width = shape[1:3] if channels_last else shape[2:4]
    picture = Image.open(get.photograph("astronaut.png")).convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    lo, hi = RANGES[name]
    pixels = np.asarray(picture, np.float32)[None] / 255 * (hi - lo) + lo
    return (pixels if channels_last else pixels.transpose(0, 3, 1, 2)).astype(dtype)


def real(array: Array, scale: float, zero_point: int) -> Array:
    """The numbers that an array stands for."""
    return array.astype(np.float64) if array.dtype.kind == "f" or not scale else (array.astype(np.float64) - zero_point) * scale


def compare_onnx(name: str, library: Library) -> list[Difference]:
    judge = onnxruntime.InferenceSession(str(get.network(name)))
    feeds = {}
    for info in judge.get_inputs():
        shape = tuple(d if isinstance(d, int) else 1 if axis == 0 else 224 for axis, d in enumerate(info.shape))
        feeds[info.name] = feed(name, shape, np.dtype(np.float32), False)
    names = [o.name for o in judge.get_outputs()]
    wanted = dict(zip(names, judge.run(names, feeds)))
    data, _ = compile_model(get.network(name), {n: a.shape for n, a in feeds.items()}, library=library)
    found = Model(data, library).session().run(feeds)
    return [Difference(n, float(abs(w).max()), float(abs(found[n] - w).max()), 0.0) for n, w in wanted.items()]


def compare_tflite(name: str, library: Library) -> list[Difference]:
    path = get.get(name)
    # MediaPipe's own operators are known only to the delegate.
    delegate = name.startswith("selfie")
    kernels = OpResolverType.AUTO if delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    judge = Interpreter(str(path), experimental_op_resolver_type=kernels)
    judge.allocate_tensors()
    shapes, feeds, quantization = {}, {}, {}
    for info in judge.get_input_details():
        array = feed(name, tuple(int(d) for d in info["shape"]), np.dtype(info["dtype"]), True)
        judge.set_tensor(info["index"], array)
        shapes[info["name"]], feeds[info["name"]], quantization[info["name"]] = array.shape, array, info["quantization"]
    judge.invoke()
    data, _ = compile_model(path, shapes, library=library)
    model = Model(data, library)
    for given in model.inputs:
        if given.dtype == "f32":
            feeds[given.name] = real(feeds[given.name], *quantization[given.name]).astype(np.float32)
    found = model.session().run(feeds)
    differences = []
    for info in judge.get_output_details():
        wanted = real(judge.get_tensor(info["index"]), *info["quantization"])
        error = abs(real(found[info["name"]], *info["quantization"]) - wanted).max()
        differences.append(Difference(info["name"], float(abs(wanted).max()), float(error), info["quantization"][0]))
    return differences


def compare(name: str, library: Library) -> list[Difference]:
    """Every output of a network against the judge's."""
    return compare_onnx(name, library) if name in get.NETWORKS else compare_tflite(name, library)


def row(name: str, d: Difference) -> str:
    """A line of the table."""
    step = f"{d.step:.2g}" if d.step else ""
    return f"| {name} | {d.output} | {d.largest:.3g} | {d.error:.1g} | {step} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", default=[*FLOAT, *INTEGER])
    parser.add_argument("--lib", default=os.environ.get("OPS_NN_LIB", ROOT / "build" / "host" / "libops_nn.so"))
    args = parser.parse_args()
    library = Library(args.lib)
    print("| network | output | largest value | largest error | one step |\n|---|---|---|---|---|")
    for name in args.name:
        for difference in compare(name, library):
            print(row(name, difference), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
