"""The topology of MobileNetV2 1.0 (Sandler et al., 2018), for weights from anywhere."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from models.onnx_builder import OnnxBuilder

# expansion, channels, repeats, stride of the first: table 2 of the paper
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
EPSILON = 1e-3


class Weights(Protocol):
    """Where the numbers come from. Names are Keras's: Conv1, block_3_expand, Conv_1."""

    def kernel(self, name: str, shape: tuple[int, int, int, int]) -> np.ndarray:
        """The weights of a convolution: out, in per group, height, width."""

    def norm(self, name: str, channels: int) -> list[np.ndarray]:
        """Scale, bias, mean and variance of the batch normalisation after it."""

    def pads(self, size: int, stride: int) -> tuple[int, int]:
        """The padding before and after, in pixels, of a 3x3 window over a picture of this size."""


def features(net: OnnxBuilder, weights: Weights, size: int) -> str:
    """Add all up to the pooled 1280 features, for a square input picture named "input"."""

    def conv(x: str, name: str, out: int, per_group: int, window: int, stride: int = 1) -> str:
        pads = weights.pads(size, stride) if window > 1 else (0, 0)
        kernel = weights.kernel(name, (out, per_group, window, window))
        depthwise = per_group == 1
        x = net.conv(x, name, kernel, stride=stride, pads=pads, depthwise=depthwise)
        return net.batch_norm(x, f"{name}_BN", weights.norm(name, out), EPSILON)

    x = net.relu6(conv("input", "Conv1", 32, 3, 3, 2))
    size //= 2
    channels, block = 32, 0
    for expansion, out, repeats, first_stride in STAGES:
        for stride in (first_stride, *[1] * (repeats - 1)):
            prefix = f"block_{block}_" if block else "expanded_conv_"
            shortcut, wide = x, channels * expansion
            if expansion > 1:
                x = net.relu6(conv(x, f"{prefix}expand", wide, channels, 1))
            x = net.relu6(conv(x, f"{prefix}depthwise", wide, 1, 3, stride))
            size //= stride
            x = conv(x, f"{prefix}project", out, wide, 1)
            if stride == 1 and channels == out:
                x = net.node("Add", [shortcut, x], f"{prefix}add")
            channels, block = out, block + 1
    return net.pooled(net.relu6(conv(x, "Conv_1", 1280, channels, 1)))
