"""The operators of ops-nn, as data.

Everything that must agree about an operator (C enums and parameter structs, the cffi text, Python signatures, the trim
vocabulary, the reference in docs/) is generated from this table by gen.py. Names are ONNX's in snake case, and so are
attributes, wherever ONNX has them. Only the standard library is used here.

Adding an operator: append an `Op` with a new, higher `id` (ids are stored in model files and are never reused), write its
rule `src/ops/<rule>.c` unless an existing family fits, and its reference kernel `src/ref/<name>_<dtype>_<layout>_ref.c`.
"""
from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Optional, Union

# Format of a model file: majors never load across each other, minors only append (docs/model-format.md).
FORMAT_MAJOR = 1
FORMAT_MINOR = 0
# Version of the C interface: the major is the library's soname.
VERSION = "0.1.0"

MAX_RANK = 8  # dimensions of a tensor
MAX_INPUTS = 32  # inputs of a node (concat is the operator that needs many)
MAX_TAIL = 4  # fused element-wise steps behind a node

# name, stored id, bytes of an element. The ids are stored in model files.
DTYPES: tuple[tuple[str, int, int], ...] = (
    ("f32", 1, 4),
    ("f16", 2, 2),
    ("bf16", 3, 2),
    ("f64", 4, 8),
    ("s8", 5, 1),
    ("s16", 6, 2),
    ("s32", 7, 4),
    ("s64", 8, 8),
    ("u8", 9, 1),
    ("u16", 10, 2),
    ("u32", 11, 4),
    ("u64", 12, 8),
    ("bool", 13, 1),
)

# Layout of a node's activations: `any` for operators that do not know what an axis means.
LAYOUTS: tuple[tuple[str, int], ...] = (("any", 0), ("nchw", 1), ("nhwc", 2))

# Instruction sets that a kernel's file name may end in; the last field names the CPU features it needs (CPU_FEATURES).
# "neon" needs "fma" as well where the compiler's flags gave the file fused multiply-add: simd.h says so in OPSNN_NEON_CPU.
ISAS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("ref", "portable C: the definition", ()),
    ("neon", "NEON of ARMv7 and AArch64", ("neon",)),
    ("neon64", "NEON of AArch64 only", ("neon", "fma", "a64")),
    ("neonfp16", "float16 arithmetic (ARMv8.2)", ("neon", "fma", "fp16")),
    ("neondot", "8-bit dot products (ARMv8.2)", ("neon", "fma", "dotprod")),
    ("neoni8mm", "8-bit matrix multiply (ARMv8.6)", ("neon", "fma", "i8mm")),
)
CPU_FEATURES: tuple[str, ...] = ("neon", "fma", "a64", "fp16", "dotprod", "i8mm")  # bit i of the mask

# An attribute's type: i32, f32, bool, an enum's name, "i32[N]" (exactly N) or "i32[]" (a list of at most 2 * MAX_RANK,
# stored as a count and an array).
ENUMS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("notset", "same_upper", "same_lower", "valid"),
    "pad_mode": ("constant", "reflect", "edge", "wrap"),
    "gelu_approximate": ("none", "tanh"),
}
LIST_CAPACITY = 2 * MAX_RANK

Value = Union[int, float, str, tuple[int, ...]]
INF = float("inf")


@dataclass(frozen=True)
class Attr:
    """An attribute. `default` of None means that it must be given."""

    name: str
    type: str
    default: Optional[Value]
    doc: str


@dataclass(frozen=True)
class Input:
    name: str
    doc: str
    optional: bool = False
    variadic: bool = False  # only the last one


@dataclass(frozen=True)
class Op:
    """One operator.

    rule      stem of the file in src/ops/ that validates parameters, infers shapes and counts work
    layout    its activations have spatial axes: nodes are nchw or nhwc, never any
    view      the result is the first input's bytes under another shape: no kernel, no copy
    inplace   the result may take the place of an equally large input that dies here
    map       element-wise: usable as a fused step behind another node (the kernel has a `map` function)
    """

    name: str
    id: int
    onnx: str
    inputs: tuple[Input, ...]
    attrs: tuple[Attr, ...] = ()
    rule: str = ""
    doc: str = ""
    layout: bool = False
    view: bool = False
    inplace: bool = False
    map: bool = False
    outputs: tuple[str, ...] = field(default=("y",))

    @property
    def min_inputs(self) -> int:
        return sum(not i.optional for i in self.inputs)

    @property
    def max_inputs(self) -> int:
        return MAX_INPUTS if self.inputs[-1].variadic else len(self.inputs)


_X = (Input("x", "any shape"),)
_CLAMP = (
    Attr("lo", "f32", -INF, "the result is at least this (fused Relu, Clip)"),
    Attr("hi", "f32", INF, "the result is at most this"),
)
_WINDOW = (
    Attr("strides", "i32[2]", (1, 1), "step of the window: height, width"),
    Attr("dilations", "i32[2]", (1, 1), "distance between a window's taps"),
    Attr("pads", "i32[4]", (0, 0, 0, 0), "top, left, bottom, right; ignored unless auto_pad is notset"),
    Attr("auto_pad", "auto_pad", "notset", "padding computed from the input's size, as ONNX defines it"),
)


def _unary(name: str, id: int, onnx: str, doc: str, *attrs: Attr) -> Op:
    return Op(name, id, onnx, _X, attrs, "unary", doc, inplace=True, map=True)


def _binary(name: str, id: int, onnx: str, doc: str) -> Op:
    inputs = (Input("a", "any shape"), Input("b", "a shape that broadcasts with a"))
    return Op(name, id, onnx, inputs, _CLAMP, "binary", doc, inplace=True, map=True)


OPS: tuple[Op, ...] = (
    Op(
        "conv2d", 1, "Conv",
        (
            Input("x", "[N, H, W, C] (nhwc) or [N, C, H, W] (nchw)"),
            Input("w", "[O, KH, KW, C/group] in nhwc nodes, [O, C/group, KH, KW] in nchw nodes; blocked or plain"),
            Input("b", "[O]", optional=True),
        ),
        (*_WINDOW, Attr("group", "i32", 1, "groups of channels; C and O are multiples of it"), *_CLAMP),
        "conv2d", "Two-dimensional convolution (cross-correlation) with bias and clamp.", layout=True,
    ),
    Op(
        "matmul", 2, "MatMul, Gemm",
        (
            Input("a", "[..., M, K]"),
            Input("b", "[..., K, N], or [..., N, K] with trans_b; a blocked constant is [N, K] with trans_b"),
            Input("c", "[N], added to each row", optional=True),
        ),
        (Attr("trans_b", "bool", 0, "b is stored transposed"), *_CLAMP),
        "matmul", "Matrix product with numpy's batch broadcasting, bias and clamp.",
    ),
    Op(
        "max_pool", 3, "MaxPool", (Input("x", "[N, H, W, C] or [N, C, H, W]"),),
        (
            Attr("kernel_shape", "i32[2]", None, "height and width of the window"), *_WINDOW,
            Attr("ceil_mode", "bool", 0, "round the output size up"), *_CLAMP,
        ),
        "pool", "Largest value of each window; padding never wins.", layout=True,
    ),
    Op(
        "average_pool", 4, "AveragePool", (Input("x", "[N, H, W, C] or [N, C, H, W]"),),
        (
            Attr("kernel_shape", "i32[2]", None, "height and width of the window"), *_WINDOW,
            Attr("ceil_mode", "bool", 0, "round the output size up"),
            Attr("count_include_pad", "bool", 0, "padding counts as zeros in the mean"), *_CLAMP,
        ),
        "pool", "Mean of each window.", layout=True,
    ),
    Op("global_average_pool", 5, "GlobalAveragePool", (Input("x", "[N, H, W, C] or [N, C, H, W]"),), (),
       "global_pool", "Mean over height and width, which become 1.", layout=True),
    Op("global_max_pool", 6, "GlobalMaxPool", (Input("x", "[N, H, W, C] or [N, C, H, W]"),), (),
       "global_pool", "Maximum over height and width, which become 1.", layout=True),
    Op(
        "batch_normalization", 7, "BatchNormalization",
        (
            Input("x", "[N, ..., C] (nhwc) or [N, C, ...] (nchw)"), Input("scale", "[C]"), Input("bias", "[C]"),
            Input("mean", "[C]"), Input("var", "[C]"),
        ),
        (Attr("epsilon", "f32", 1e-5, "added to the variance"),),
        "batch_normalization", "Inference form: (x - mean) / sqrt(var + epsilon) * scale + bias.",
        layout=True, inplace=True,
    ),
    Op("softmax", 8, "Softmax", _X, (Attr("axis", "i32", -1, "the axis that sums to one"),),
       "softmax", "exp(x) / sum(exp(x)) along one axis (opset 13's meaning).", inplace=True),
    # Views -------------------------------------------------------------------------------------------------------------
    Op("identity", 16, "Identity", _X, (), "identity", "The input itself.", view=True),
    Op("reshape", 17, "Reshape", _X,
       (
           Attr("shape", "i32[]", None, "the new shape; -1 once for what is left, 0 for the input's own dimension"),
           Attr("allowzero", "bool", 0, "0 means an empty dimension"),
       ),
       "reshape", "The same elements under another shape.", view=True),
    Op("flatten", 18, "Flatten", _X, (Attr("axis", "i32", 1, "dimensions before it make the rows"),),
       "flatten", "A matrix of the dimensions before and from axis on.", view=True),
    Op("squeeze", 19, "Squeeze", _X, (Attr("axes", "i32[]", (), "dimensions of 1 to remove; empty: all"),),
       "squeeze", "Removes dimensions of 1.", view=True),
    Op("unsqueeze", 20, "Unsqueeze", _X, (Attr("axes", "i32[]", None, "where the result has new dimensions of 1"),),
       "unsqueeze", "Inserts dimensions of 1.", view=True),
    # Data movement -----------------------------------------------------------------------------------------------------
    Op("transpose", 24, "Transpose", _X, (Attr("perm", "i32[]", (), "input axis of each output axis; empty: reversed"),),
       "transpose", "Permutes the axes."),
    Op("concat", 25, "Concat", (Input("x", "tensors equal in all but one dimension", variadic=True),),
       (Attr("axis", "i32", None, "the dimension they are joined along"),), "concat", "Joins tensors along an axis."),
    Op("pad", 26, "Pad", _X,
       (
           Attr("pads", "i32[]", None, "begin of each axis, then end of each axis; negative crops"),
           Attr("mode", "pad_mode", "constant", "what the border holds"),
           Attr("value", "f32", 0.0, "the constant"),
       ),
       "pad", "Adds a border, or crops."),
    Op("slice", 27, "Slice", _X,
       (
           Attr("starts", "i32[]", None, "per axis; counted from the end where negative; clamped"),
           Attr("ends", "i32[]", None, "per axis, exclusive"),
           Attr("axes", "i32[]", (), "empty: the first axes"),
           Attr("steps", "i32[]", (), "empty: 1; may be negative"),
       ),
       "slice", "A strided part of a tensor."),
    # Element-wise, two inputs ------------------------------------------------------------------------------------------
    _binary("add", 32, "Add, Sum", "a + b, clamped."),
    _binary("sub", 33, "Sub", "a - b, clamped."),
    _binary("mul", 34, "Mul", "a * b, clamped."),
    _binary("div", 35, "Div", "a / b, clamped."),
    _binary("min", 36, "Min", "The smaller of a and b; NaN if either is NaN."),
    _binary("max", 37, "Max", "The larger of a and b; NaN if either is NaN."),
    _binary("pow", 38, "Pow", "a to the power b, clamped."),
    _binary("prelu", 39, "PRelu", "a where a >= 0, else a * b."),
    # Element-wise, one input -------------------------------------------------------------------------------------------
    _unary("clip", 64, "Clip, Relu", "x limited to [lo, hi]; NaN stays.", *_CLAMP),
    _unary("sigmoid", 65, "Sigmoid", "1 / (1 + exp(-x))."),
    _unary("tanh", 66, "Tanh", "Hyperbolic tangent."),
    _unary("hard_sigmoid", 67, "HardSigmoid", "max(0, min(1, alpha * x + beta)).",
           Attr("alpha", "f32", 0.2, "slope"), Attr("beta", "f32", 0.5, "offset")),
    _unary("hard_swish", 68, "HardSwish", "x * max(0, min(1, x / 6 + 1/2))."),
    _unary("silu", 69, "Swish", "x * sigmoid(alpha * x).", Attr("alpha", "f32", 1.0, "factor inside the sigmoid")),
    _unary("gelu", 70, "Gelu", "x * Phi(x), exactly or by tanh.",
           Attr("approximate", "gelu_approximate", "none", "none: erf; tanh: its approximation")),
    _unary("leaky_relu", 71, "LeakyRelu", "x where x >= 0, else alpha * x.", Attr("alpha", "f32", 0.01, "slope below zero")),
    _unary("elu", 72, "Elu", "x where x >= 0, else alpha * (exp(x) - 1).", Attr("alpha", "f32", 1.0, "scale below zero")),
    _unary("selu", 73, "Selu", "gamma * elu(x, alpha).",
           Attr("alpha", "f32", 1.67326319217681884765625, "scale below zero"),
           Attr("gamma", "f32", 1.05070102214813232421875, "scale")),
    _unary("celu", 74, "Celu", "max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).",
           Attr("alpha", "f32", 1.0, "scale below zero")),
    _unary("softplus", 75, "Softplus", "log(1 + exp(x))."),
    _unary("softsign", 76, "Softsign", "x / (1 + |x|)."),
    _unary("mish", 77, "Mish", "x * tanh(softplus(x))."),
    _unary("exp", 78, "Exp", "e to the power x."),
    _unary("log", 79, "Log", "Natural logarithm."),
    _unary("sqrt", 80, "Sqrt", "Square root."),
    _unary("reciprocal", 81, "Reciprocal", "1 / x."),
    _unary("abs", 82, "Abs", "|x|."),
    _unary("neg", 83, "Neg", "-x."),
    _unary("sign", 84, "Sign", "-1, 0 or 1; NaN stays."),
    _unary("erf", 85, "Erf", "The error function."),
    _unary("floor", 86, "Floor", "Rounded down."),
    _unary("ceil", 87, "Ceil", "Rounded up."),
    _unary("round", 88, "Round", "Rounded to the nearest, halves to even."),
)

BY_NAME: dict[str, Op] = {op.name: op for op in OPS}
BY_ID: dict[int, Op] = {op.id: op for op in OPS}
DTYPE_ID: dict[str, int] = {name: id for name, id, _ in DTYPES}
DTYPE_BYTES: dict[str, int] = {name: size for name, _, size in DTYPES}
LAYOUT_ID: dict[str, int] = dict(LAYOUTS)


def fingerprint() -> int:
    """A 64-bit hash of everything that C and Python must agree on."""
    text = repr((FORMAT_MAJOR, FORMAT_MINOR, MAX_RANK, MAX_INPUTS, MAX_TAIL, DTYPES, LAYOUTS, CPU_FEATURES, ENUMS, OPS))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _check() -> None:
    assert len(BY_NAME) == len(OPS) and len(BY_ID) == len(OPS), "names and ids are unique"
    assert [op.id for op in OPS] == sorted(op.id for op in OPS), "ids ascend"
    scalar = {"i32", "f32", "bool", "i32[]", "i32[2]", "i32[4]", *ENUMS}
    for op in OPS:
        assert all(a.type in scalar for a in op.attrs), op.name
        assert all(not i.variadic for i in op.inputs[:-1]), op.name


_check()
