"""Small models for tests, made without ONNX."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from ops_nn.compiler import compile_graph
from ops_nn.ir import Graph, Node, Shape, Value


def conv_sigmoid(height: Any = 8, channels: int = 4) -> bytes:
    """x [1, height, 8, 3] nhwc -> conv2d 'conv' 3x3, pads 1 -> sigmoid 'act' -> z; a height that is a str is open."""
    w = np.random.default_rng(1).standard_normal((channels, 3, 3, 3)).astype(np.float32)
    x, y, z = Value("x", "f32", (1, height, 8, 3)), Value("y", "f32", None), Value("z", "f32", None)
    conv = Node("conv2d", "conv", [x, Value("w", "f32", w.shape, w), None], [y], {"pads": (1, 1, 1, 1)}, "nhwc")
    return compile_graph(Graph("tiny", [x], [z], [conv, Node("sigmoid", "act", [y], [z])], {"producer": "tests"}))


def elementwise(op: str, shapes: list[Shape], dtype: str = "f32", **attrs: Any) -> bytes:
    """Inputs in0, in1, ... of these shapes -> op 'node' -> out."""
    inputs = [Value(f"in{i}", dtype, shape) for i, shape in enumerate(shapes)]
    out = Value("out", dtype, None)
    given: list[Optional[Value]] = list(inputs)
    return compile_graph(Graph("tiny", inputs, [out], [Node(op, "node", given, [out], attrs)]))
