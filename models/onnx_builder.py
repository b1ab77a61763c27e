"""A small front for `onnx.helper` that reads like the networks it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 13  # low enough for every other engine that we compare with


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's SAME padding (before, after) of a square picture, in pixels."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class OnnxBuilder:
    """Collects nodes and weights; every method returns the name of the value that it adds."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: np.ndarray) -> str:
        """A float32 constant. Adding the same name again changes nothing."""
        if name not in self._weights:
            array = np.ascontiguousarray(value, dtype=np.float32)
            self._weights[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """A node with one output, which is named like the node."""
        self._nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(
        self,
        x: str,
        name: str,
        weight: np.ndarray,
        *,
        stride: int = 1,
        pads: tuple[int, int] = (0, 0),
        depthwise: bool = False,
        bias: Sequence[np.ndarray] = (),
    ) -> str:
        """A square convolution; weight is (out, in per group, height, width)."""
        inputs = [x, self.constant(f"{name}.weight", weight)]
        inputs += [self.constant(f"{name}.bias", value) for value in bias]
        return self.node(
            "Conv",
            inputs,
            name,
            kernel_shape=list(weight.shape[2:]),
            strides=[stride, stride],
            pads=[pads[0], pads[0], pads[1], pads[1]],
            dilations=[1, 1],
            group=weight.shape[0] if depthwise else 1,
        )

    def batch_norm(self, x: str, name: str, values: Sequence[np.ndarray], epsilon: float) -> str:
        """Batch normalisation; values are scale, bias, mean and variance."""
        parts = ("scale", "bias", "mean", "var")
        constants = [self.constant(f"{name}.{p}", v) for p, v in zip(parts, values)]
        return self.node("BatchNormalization", [x, *constants], name, epsilon=epsilon)

    def relu6(self, x: str) -> str:
        """The clamp to [0, 6]."""
        bounds = [self.constant("zero", np.array(0)), self.constant("six", np.array(6))]
        return self.node("Clip", [x, *bounds], f"{x}.relu6")

    def pooled(self, x: str) -> str:
        """The mean over the picture, as a matrix of batch and channels."""
        return self.node("Flatten", [self.node("GlobalAveragePool", [x], "pool")], "flat", axis=1)

    def model(
        self, name: str, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, Sequence[int]]
    ) -> bytes:
        """Return the checked ONNX file's bytes; inputs and outputs give the float32 shapes."""
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
            list(self._weights.values()),
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="ops-nn")
        model.ir_version = 8  # the oldest that fits the opset, for older readers
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))
