"""TensorFlow Lite models made from nothing, for the importer's tests, and LiteRT's results to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

Array = NDArray[Any]

_TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9, "resource": 13}


@dataclass
class Net:
    """A model, operator by operator. Tensors are numbers."""

    tensors: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=lambda: [schema.BufferT()])  # the first is empty by definition
    operators: list[Any] = field(default_factory=list)
    codes: list[Any] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        scale: Union[float, Sequence[float], None] = None,
        zero_point: Union[int, Sequence[int]] = 0,
        axis: int = 0,
        signature: Optional[Sequence[int]] = None,
    ) -> int:
        tensor = schema.TensorT()
        tensor.name = f"t{len(self.tensors)}"
        tensor.shape, tensor.type, tensor.buffer = np.array(shape, np.int32), _TYPES[dtype], 0
        if signature is not None:
            tensor.shapeSignature = np.array(signature, np.int32)
        if scale is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.array(scale, np.float32).reshape(-1)
            tensor.quantization.zeroPoint = np.array(zero_point, np.int64).reshape(-1)
            tensor.quantization.quantizedDimension = axis
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def input(self, *shape: int, **more: Any) -> int:
        self.inputs.append(self.tensor(shape, **more))
        return self.inputs[-1]

    def constant(self, data: Any, **more: Any) -> int:
        array = np.asarray(data)
        array = array.astype(np.int32) if array.dtype == np.int64 else array
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        index = self.tensor(array.shape, str(array.dtype), **more)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self.buffers.append(buffer)
        self.tensors[index].buffer = len(self.buffers) - 1
        return index

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Union[int, Sequence[int]],
        kind: str = "",
        custom: Optional[bytes] = None,
        **options: Any,
    ) -> int:
        """kind: what its options are called in the schema. Returns the first output, if there is one."""
        code = schema.OperatorCodeT()
        number = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        if number == schema.BuiltinOperator.CUSTOM:
            code.customCode = name
        self.codes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.codes) - 1
        outputs = [outputs] if isinstance(outputs, int) else list(outputs)
        operator.inputs, operator.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        if kind:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = getattr(schema, f"{kind}T")()
            for option, value in options.items():
                assert hasattr(operator.builtinOptions, option), option
                setattr(operator.builtinOptions, option, value)
        if custom is not None:
            operator.customOptions = np.frombuffer(custom, np.uint8)
        self.operators.append(operator)
        return outputs[0] if outputs else -1

    def bytes(self, *outputs: int) -> bytes:
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = "main", self.tensors, self.operators
        graph.inputs, graph.outputs = np.array(self.inputs, np.int32), np.array(outputs, np.int32)
        model = schema.ModelT()
        model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], self.buffers, self.codes
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def litert(model: bytes, feeds: Mapping[str, Array], delegates: bool = False) -> dict[str, Array]:
    """The outputs that LiteRT computes, by its own kernels or with the delegate that it loads by itself."""
    kernels = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    run = Interpreter(model_content=model, experimental_op_resolver_type=kernels)
    run.allocate_tensors()
    for info in run.get_input_details():
        run.set_tensor(info["index"], feeds[info["name"]])
    run.invoke()
    return {info["name"]: run.get_tensor(info["index"]) for info in run.get_output_details()}
