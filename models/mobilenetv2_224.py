"""MobileNetV2 1.0 at 224x224 with 1000 classes and random weights: a measure, not a classifier.

This is the network that engines publish their times for: 300.8 million multiply-adds. The weights
are drawn from a seeded generator at He's scale, so values keep the size that they have in a trained
network, and every machine makes the same file.
"""

from __future__ import annotations

import numpy as np

from models import mobilenetv2
from models.card import Card
from models.onnx_builder import OnnxBuilder
from models.preprocess import Preprocessing

SIZE = 224

CARD = Card(
    name="mobilenetv2-224",
    title="MobileNetV2 1.0, random weights, for benchmarks only",
    input="input",
    output="logits",
    output_is="logits",
    preprocessing=Preprocessing(SIZE, mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5)),
    labels=tuple(f"class {i}" for i in range(1000)),
    source="made from random numbers",
    licence="Apache-2.0",
)


class _RandomWeights:
    def __init__(self) -> None:
        # random(), unlike NumPy's distributions, is promised to stay the same between versions
        self._generator = np.random.Generator(np.random.PCG64(1))

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(self._generator.random(shape) * (high - low) + low)

    def kernel(self, name: str, shape: tuple[int, int, int, int]) -> np.ndarray:
        fan_in = shape[1] * shape[2] * shape[3]
        limit = float(np.sqrt(6 / fan_in))  # a uniform distribution of variance 2 / fan_in
        return self.uniform(-limit, limit, shape)

    def norm(self, name: str, channels: int) -> list[np.ndarray]:
        shape = (channels,)
        scale, bias = self.uniform(0.8, 1.2, shape), self.uniform(-0.1, 0.1, shape)
        mean, variance = self.uniform(-0.1, 0.1, shape), self.uniform(0.8, 1.2, shape)
        return [scale, bias, mean, variance]

    def pads(self, size: int, stride: int) -> tuple[int, int]:
        return 1, 1


def build() -> tuple[bytes, Card]:
    """Return the ONNX file and its card. Batch normalisation is left as nodes of its own."""
    net, weights = OnnxBuilder(), _RandomWeights()
    pooled = mobilenetv2.features(net, weights, SIZE)
    limit = float(np.sqrt(3 / 1280))
    head = [
        net.constant("head.weight", weights.uniform(-limit, limit, (1000, 1280))),
        net.constant("head.bias", weights.uniform(-0.1, 0.1, (1000,))),
    ]
    net.node("Gemm", [pooled, *head], "logits", transB=1)
    return net.model(CARD.name, {"input": (1, 3, SIZE, SIZE)}, {"logits": (1, 1000)}), CARD
