"""Small ONNX models for tests, and their comparison with onnxruntime."""
from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from ops_nn import compiler, ir, lib, passes
from ops_nn.importers import onnx as importer
from ops_nn.runtime import Model

Array = np.ndarray[Any, Any]


class Net:
    """An ONNX graph in the making: operators take and give the names of values."""

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.functions: list[onnx.FunctionProto] = []

    def input(self, shape: Optional[Sequence[Union[int, str]]], name: str = "x", elem_type: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, elem_type, shape))
        return name

    def const(self, data: Any, name: str = "", dtype: Any = np.float32) -> str:
        name = name or f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.const(numbers, dtype=np.int64)

    def weights(self, *shape: int, name: str = "") -> str:
        return self.const(self.random.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:]))), name)

    def op(self, op_type: str, *inputs: str, name: str = "", n_outputs: int = 1, output: str = "", **attrs: Any) -> Any:
        outputs = [output or f"v{len(self.nodes)}_{i}" for i in range(n_outputs)]
        domain = attrs.pop("domain", "")
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attrs))
        return outputs[0] if n_outputs == 1 else outputs

    def output(self, *names: str) -> Net:
        self.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        return self

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "net", self.inputs, self.outputs, self.initializers)
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(f.domain, 1) for f in self.functions)]
        return helper.make_model(graph, opset_imports=imports, functions=self.functions, ir_version=8)

    # Blocks that many tests need.

    def conv(self, x: str, c_in: int, c_out: int, k: int = 3, bias: bool = True, **attrs: Any) -> str:
        group = attrs.get("group", 1)
        if "auto_pad" not in attrs:
            attrs = {"pads": (k // 2,) * 4, **attrs}
        inputs = [x, self.weights(c_out, c_in // group, k, k), *([self.weights(c_out)] if bias else [])]
        return str(self.op("Conv", *inputs, kernel_shape=(k, k), **attrs))

    def batch_norm(self, x: str, c: int) -> str:
        stats = [self.const(self.random.uniform(0.5, 1.5, c)) for _ in range(4)]
        return str(self.op("BatchNormalization", x, *stats))


def tools(library: Path) -> passes.Tools:
    loaded = lib.library(library)
    return passes.Tools(loaded, functools.partial(compiler.evaluate, library=loaded))


def reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, dict(feeds))))


def run(graph: ir.Graph, library: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    loaded = lib.library(library)
    model = Model(compiler.compile_graph(graph), loaded)
    return dict(model.session(threads=1).run(dict(feeds)))


def random_feeds(model: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for info in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
        feeds[info.name] = random.standard_normal(shape).astype(np.float32)
    return feeds


def check(
    net: Net,
    library: Path,
    sizes: Optional[Mapping[str, int]] = None,
    shapes: Optional[importer.Shapes] = None,
    stop_after: Optional[str] = None,
    rtol: float = 1e-4,
) -> ir.Graph:
    """Imports and optimises a net, compares its results with onnxruntime's, and returns the optimised graph."""
    model = net.model()
    graph = importer.load(model, shapes)
    passes.optimize(graph, tools(library), stop_after=stop_after)
    ir.verify(graph)
    feeds = random_feeds(model, sizes or {})
    wanted, found = reference(model, feeds), run(graph, library, feeds)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        scale = float(np.abs(array).max()) if array.size else 0.0
        np.testing.assert_allclose(found[name], array, rtol=rtol, atol=max(1e-6, rtol * scale), err_msg=name)
    return graph


def ops(graph: ir.Graph) -> dict[str, int]:
    return dict(Counter(node.op for node in graph.nodes))


def steps(graph: ir.Graph) -> list[str]:
    """The fused steps of a graph, in order."""
    return [tail.op for node in graph.nodes for tail in node.tail]
