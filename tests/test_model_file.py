"""The model file: what Python writes, and one handcrafted bad file for each rule of the verifier."""
from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import numpy as np
import pytest
from conftest import ROOT, Build, run
from native import compile_program
from ops_nn import modelfile as mf
from ops_nn import schema as S
from ops_nn.modelfile import ModelFile, NodeRecord, TailRecord, Tensor

# --- a sound model that has something of everything ------------------------------------------------------------------------
X, W, B, K, C, P, D, Y = range(8)
STEPS = [TailRecord("sigmoid"), TailRecord("mul", K, True)]


def sound_model(**changes: Any) -> ModelFile:
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((6, 1, 1, 4)).astype(np.float32)
    bias = rng.standard_normal(6).astype(np.float32)
    parts: dict[str, Any] = {
        "tensors": [
            Tensor("x", "f32", "input", (1, -1, 5, 4)),
            Tensor("w", "f32", "const", weights.shape, mf.block_first(weights, 4).tobytes(), 4),
            Tensor("b", "f32", "const", bias.shape, bias.tobytes()),
            Tensor("k", "f32", "const", (), struct.pack("<f", 0.5)),
            Tensor("c", "f32", "value"),
            Tensor("p", "f32", "value"),
            Tensor("d", "f32", "value"),
            Tensor("y", "f32", "value"),
        ],
        "nodes": [
            NodeRecord("conv", "conv2d", "nhwc", [X, W, B], [C], {"lo": 0.0}, STEPS),
            NodeRecord("pool", "global_average_pool", "nhwc", [C], [P]),
            NodeRecord("twice", "concat", "any", [P, P], [D], {"axis": 3}),
            NodeRecord("flat", "reshape", "any", [D], [Y], {"shape": [1, -1]}),
        ],
        "inputs": [X],
        "outputs": [Y],
        "meta": {"producer": "tests", "note": "Grüße"},
    }
    return ModelFile(**{**parts, **changes})


# --- writing and reading ---------------------------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    data = mf.write(sound_model())
    model = mf.read(data)
    assert mf.write(model) == data
    assert model.tensors == sound_model().tensors
    assert model.meta == {"producer": "tests", "note": "Grüße"}
    conv = model.nodes[0]
    assert (conv.inputs, conv.outputs, conv.layout) == ([X, W, B], [C], "nhwc")
    assert conv.attrs["strides"] == (1, 1) and conv.attrs["auto_pad"] == "notset" and conv.attrs["hi"] == float("inf")
    assert [(t.op, t.other, t.other_first) for t in conv.tails] == [("sigmoid", None, False), ("mul", K, True)]


def test_equal_models_give_equal_bytes_and_equal_parts_are_stored_once() -> None:
    data = np.arange(1000, dtype=np.float32).tobytes()
    one = [Tensor("a", "f32", "const", (1000,), data)]
    two = [*one, Tensor("b", "f32", "const", (10, 100), bytearray(data))]
    single, double = (mf.write(ModelFile(tensors, [], [], [0])) for tensors in (one, two))
    assert mf.write(ModelFile(two, [], [], [0])) == double
    assert len(double) - len(single) < 2 * mf.TENSOR.size


@pytest.mark.parametrize("first", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("block", [2, 4, 8])
def test_blocks(first: int, block: int) -> None:
    plain = np.arange(first * 6, dtype=np.int16).reshape(first, 2, 3)
    stored = mf.block_first(plain, block)
    assert stored.shape == (-(-first // block), 2, 3, block)
    for o in range(first):
        assert (stored[o // block, ..., o % block] == plain[o]).all()
    assert stored.sum() == plain.sum()  # what fills up is zero
    assert (mf.unblock_first(stored, first) == plain).all()
    tensor = Tensor("t", "s16", "const", plain.shape, stored.tobytes(), block)
    assert mf.read(mf.write(ModelFile([tensor], [], [], [0]))).tensors == [tensor]


def test_parameters_are_laid_out_as_the_schema_says() -> None:
    packed = mf.pack_params("conv2d", {"strides": [2, 3], "auto_pad": "valid", "group": np.int64(4), "hi": np.float32(6)})
    assert packed == struct.pack("<2i2i4iii2f", 2, 3, 1, 1, 0, 0, 0, 0, 3, 4, -np.inf, 6)
    assert mf.pack_params("reshape", {"shape": (2, -1)}) == struct.pack("<i16ii", 2, 2, -1, *[0] * 14, 0)
    assert mf.pack_params("sigmoid", {}) == b""
    ends = mf.unpack_params("slice", mf.pack_params("slice", {"starts": [-(2**63)], "ends": [2**63 - 1]}))
    assert (ends["starts"], ends["ends"]) == ((-(2**31),), (2**31 - 1,))  # "to the end", as ONNX writes it
    assert mf.unpack_params("conv2d", packed[:8])["dilations"] == (0, 0)  # what is missing reads as zero


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("nonsense", {}, "'nonsense' is no operator"),
        ("conv2d", {"stride": [1, 1]}, "conv2d has no attribute 'stride'; it has strides,"),
        ("concat", {}, "concat needs attribute 'axis'"),
        ("conv2d", {"pads": [1, 1]}, "'pads' has 2 numbers, not 4"),
        ("conv2d", {"group": 2**31}, "'group' is 2147483648, which 32 bits cannot hold"),
        ("conv2d", {"group": 1.5}, "'group' must be an integer, not 1.5"),
        ("conv2d", {"auto_pad": "same"}, "'auto_pad' is 'same', not one of notset,"),
        ("conv2d", {"auto_pad": 4}, "'auto_pad' is 4, not an index of notset,"),
        ("conv2d", {"lo": "low"}, "'lo' is 'low', which is no float32"),
        ("conv2d", {"lo": 1e39}, "which is no float32"),
        ("max_pool", {"kernel_shape": [2, 2], "ceil_mode": 2}, "'ceil_mode' is 2, not 0 or 1"),
        ("reshape", {"shape": 3}, "'shape' must be a list of integers, not 3"),
        ("reshape", {"shape": [1] * 17}, "'shape' has 17 numbers; at most 16"),
        ("slice", {"starts": [0], "ends": [1], "steps": [2**31]}, "'steps' is 2147483648, which 32 bits cannot hold"),
    ],
)
def test_wrong_attributes(op: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        mf.pack_params(op, attrs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensors": [Tensor("t", "f31", "input")]}, "tensor 't' has the unknown data type 'f31'"),
        ({"tensors": [Tensor("t", "f32", "variable")]}, "tensor 't' is of kind 'variable'"),
        ({"tensors": [Tensor("t", "f32", "input", (1,) * 9)]}, "tensor 't' has 9 dimensions"),
        ({"tensors": [Tensor("t", "f32", "value", (1,))]}, "its shape is inferred, not stored"),
        ({"tensors": [Tensor("t", "f32", "const", (1,))]}, "tensor 't' is of kind 'const' but has no data"),
        ({"tensors": [Tensor("t", "f32", "input", (1,), b"1234")]}, "tensor 't' is of kind 'input' but has data"),
        ({"tensors": [Tensor("t", "f32", "const", (2,), b"1234")]}, "tensor 't' has 4 bytes; f32[2] needs 8"),
        ({"tensors": [Tensor("t", "f32", "const", (), b"1234", 2)]}, "tensor 't' of rank 0 cannot have blocks of 2"),
        ({"tensors": [Tensor("t\0", "f32", "input")]}, "holds a NUL"),
        ({"inputs": [8]}, "the list of inputs refers to tensor 8 of 8"),
        ({"nodes": [NodeRecord("n", "conv2d", "hwcn", [X], [Y])]}, "node 'n' has the unknown layout 'hwcn'"),
        ({"nodes": [NodeRecord("n", "tanh", "any", [9], [Y])]}, "node 'n' refers to tensor 9 of 8"),
        ({"nodes": [NodeRecord("n", "tanh", "any", [X], [Y], {"alpha": 1})]}, "node 'n': tanh has no attribute 'alpha'"),
    ],
)
def test_what_cannot_be_written(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        mf.write(sound_model(**changes))


def test_reading_rubbish_gives_one_kind_of_error() -> None:
    data = mf.write(sound_model())
    for end in range(len(data)):
        with pytest.raises(ValueError):
            mf.read(data[:end])
    rng = np.random.default_rng(1)
    for _ in range(2000):
        bad = bytearray(data)
        for at in rng.integers(0, 900, 3):
            bad[at] = rng.integers(256)
        with contextlib.suppress(ValueError):
            mf.read(bad)


# --- the verifier: one bad file per rule -----------------------------------------------------------------------------------
FIELDS: dict[str, tuple[struct.Struct, str]] = {
    "header": (mf.HEADER, "magic major minor n_sections file_bytes schema hash section_stride reserved"),
    "table": (mf.SECTION, "kind stride offset bytes"),
    "tensors": (mf.TENSOR, "name dtype kind rank d0 d1 d2 d3 d4 d5 d6 d7 block reserved reserved2 data_offset data_bytes"),
    "nodes": (mf.NODE, "name op layout n_inputs n_outputs n_tail reserved operands tails params params_bytes"),
    "operands": (mf.INDEX, "tensor"),
    "tails": (mf.TAIL, "op other_first other params params_bytes"),
    "inputs": (mf.INDEX, "tensor"),
    "outputs": (mf.INDEX, "tensor"),
    "meta": (mf.PAIR, "key value"),
}
Where = Union[int, str]


class File:
    """The bytes of a model, and its fields by name."""

    def __init__(self, model: ModelFile) -> None:
        self.data = bytearray(mf.write(model))

    def start(self, section: str) -> int:
        if section in ("header", "table"):
            return 0 if section == "header" else mf.HEADER.size
        return int(self.get("table", section, "offset"))

    def _place(self, section: str, record: Where, field: str) -> tuple[int, str]:
        form, names = FIELDS[section]
        if isinstance(record, str):
            record = mf.SECTIONS.index(record)  # of the section table
        codes = re.findall(r"\d+s|[A-Za-z]", re.sub(r"(\d+)i", lambda m: "i" * int(m[1]), form.format[1:]))
        k = names.split().index(field)
        return self.start(section) + record * form.size + struct.calcsize("<" + "".join(codes[:k])), "<" + codes[k]

    def get(self, section: str, record: Where, field: str) -> Any:
        at, code = self._place(section, record, field)
        return struct.unpack_from(code, self.data, at)[0]

    def set(self, section: str, record: Where, field: str, value: Any) -> None:
        at, code = self._place(section, record, field)
        struct.pack_into(code, self.data, at, value)


Edit = Callable[[File], None]


def put(section: str, record: Where, field: str, value: Any) -> Edit:
    return lambda f: f.set(section, record, field, value)


def add(section: str, record: Where, field: str, value: int) -> Edit:
    return lambda f: f.set(section, record, field, f.get(section, record, field) + value)


def byte(section: str, at: int, value: int) -> Edit:
    """at: from the section's start; negative: from its end."""

    def edit(f: File) -> None:
        f.data[f.start(section) + at + (f.get("table", section, "bytes") if at < 0 else 0)] = value

    return edit


def size(change: Callable[[bytearray], bytearray]) -> Edit:
    def edit(f: File) -> None:
        f.data = change(f.data)

    return edit


@dataclass(frozen=True)
class Bad:
    name: str
    message: str  # what the verifier must say, as a regular expression
    edits: tuple[Edit, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()  # of sound_model
    status: str = "FORMAT"


def bad(name: str, message: str, *edits: Edit, status: str = "FORMAT", **changes: Any) -> Bad:
    return Bad(name, message, edits, tuple(changes.items()), status)


NONE = mf.NONE
CONV, POOL, CONCAT, FLAT = range(4)
SIGMOID, MUL = range(2)

CASES = [
    # header
    bad("short", "no .opsnn model: it has 47 bytes", size(lambda d: d[:47])),
    bad("magic", "does not begin with the eight bytes", put("header", 0, "magic", b"OPSNN\n\x1a\x00")),
    bad("major", rf"format {S.FORMAT_MAJOR + 1}\.0 and this library reads {S.FORMAT_MAJOR}\.x: compile the model again",
        put("header", 0, "major", S.FORMAT_MAJOR + 1), status="VERSION"),
    bad("cut off", r"cut off: \d+ of its \d+ bytes", size(lambda d: d[:-8])),
    bad("appended", "something was appended", size(lambda d: d + bytes(8))),
    bad("table stride small", "section table has records of 16 bytes", put("header", 0, "section_stride", 16)),
    bad("table stride odd", "section table has records of 28 bytes", put("header", 0, "section_stride", 28)),
    bad("table too long", "section table has 4294967295 records", put("header", 0, "n_sections", 2**32 - 1)),
    bad("header reserved", "header's reserved field is 1", put("header", 0, "reserved", 1)),
    # sections
    bad("section unaligned", r"section 2 starts at \d+, not at a multiple of 8", add("table", "nodes", "offset", 4)),
    bad("section far", "section 2 has 128 bytes at 18446744073709551608, beyond", put("table", "nodes", "offset", 2**64 - 8)),
    bad("section long", "section 2 has 18446744073709551584 bytes at", put("table", "nodes", "bytes", 2**64 - 32)),
    bad("section twice", "section 8 is a second one of kind strings", put("table", "meta", "kind", 1)),
    bad("bytes with stride", "section strings has a stride of 2, not 1", put("table", "strings", "stride", 2)),
    bad("stride zero", "section data has a stride of 0, not 1", put("table", "data", "stride", 0)),
    bad("stride small", "section nodes has records of 28 bytes, not a multiple of 4 of at least 32",
        put("table", "nodes", "stride", 28)),
    bad("record stride zero", "section operands has records of 0 bytes", put("table", "operands", "stride", 0)),
    bad("stride odd", "section tensors has records of 68 bytes, not a multiple of 8", put("table", "tensors", "stride", 68)),
    bad("part of a record", "section nodes has 124 bytes, which are not whole records", add("table", "nodes", "bytes", -4)),
    bad("data unaligned", r"section data starts at \d+, not at a multiple of 64",
        add("table", "data", "offset", 8), add("table", "data", "bytes", -8)),
    *(bad(f"section {name} absent", f"section {name} is missing", put("table", name, "kind", 99))
      for name in ("strings", "tensors", "nodes", "operands", "inputs", "outputs")),
    # strings
    bad("strings empty", "does not begin with the empty string", put("table", "strings", "bytes", 0)),
    bad("strings start", "does not begin with the empty string", byte("strings", 0, 65)),
    bad("strings end", "does not end in NUL", byte("strings", -1, 65)),
    *(bad(f"UTF-8 {text.hex()}", f"holds no UTF-8 at byte {at}", *(byte("strings", 5 + i, b) for i, b in enumerate(text)))
      for text, at in ((b"\x80", 5), (b"\xc0\x80", 5), (b"\xe0\x80\x80", 5), (b"\xed\xa0\x80", 5), (b"\xf4\x90\x80\x80", 5),
                       (b"\xff", 5), (b"\xe2\x82A", 5), (b"A\xc3\x00", 6))),
    bad("UTF-8 at the end", "holds no UTF-8", byte("strings", -2, 0xF0)),
    # tensors
    bad("tensor name far", "name of tensor 2 is at byte 100000", put("tensors", B, "name", 100000)),
    bad("tensor name amid", "name of tensor 2 is at byte 2 of the strings, where none starts", put("tensors", B, "name", 2)),
    bad("dtype", r"tensor 2 \('b'\) has the unknown data type 77; this is version",
        put("tensors", B, "dtype", 77), status="VERSION"),
    bad("dtype 0", "unknown data type 0", put("tensors", C, "dtype", 0), status="VERSION"),
    bad("kind", r"tensor 4 \('c'\) is of the unknown kind 3", put("tensors", C, "kind", 3)),
    bad("rank", r"tensor 0 \('x'\) has 9 dimensions, more than 8", put("tensors", X, "rank", 9)),
    bad("rank of a value", r"tensor 4 \('c'\) is made by a node, but has 1 dimensions", put("tensors", C, "rank", 1)),
    bad("tensor reserved", "tensor 0 .* reserved field", put("tensors", X, "reserved", 1)),
    bad("tensor reserved2", "tensor 0 .* reserved field", put("tensors", X, "reserved2", 1)),
    bad("block of an input", r"tensor 0 \('x'\) is no constant, but has blocks of 2", put("tensors", X, "block", 2)),
    bad("block large", "tensor 1 .* has blocks of 257, more than 256", put("tensors", W, "block", 257)),
    bad("block of a scalar", r"tensor 3 \('k'\) has blocks of 4, but no dimensions", put("tensors", K, "block", 4)),
    bad("dim behind rank", r"tensor 4 \('c'\) has rank 0, but 3 as dimension 7", put("tensors", C, "d7", 3)),
    bad("dim -2", r"tensor 0 \('x'\) has -2 as dimension 1", put("tensors", X, "d1", -2)),
    bad("dim of a constant", r"tensor 2 \('b'\) has -1 as dimension 0", put("tensors", B, "d0", -1)),
    bad("too large", r"tensor 0 \('x'\) is larger than this machine can address",
        *(put("tensors", X, f"d{i}", 2**31 - 1) for i in range(3)),
        status="LIMIT"),
    bad("too large but for a zero", r"tensor 0 \('x'\) is larger than this machine can address",
        *(put("tensors", X, f"d{i}", 2**31 - 1) for i in range(3)), put("tensors", X, "d3", 0), status="LIMIT"),
    bad("data size", r"tensor 2 \('b'\) has 20 bytes of data, not the 24", put("tensors", B, "data_bytes", 20)),
    bad("data size wrapped", "tensor 1 .* bytes of data, not the",
        put("tensors", W, "d0", 2**30), put("tensors", W, "d1", 2**28)),
    bad("data of a value", r"tensor 4 \('c'\) has 4 bytes of data, not the 0", put("tensors", C, "data_bytes", 4)),
    bad("filter of 5 x 5 that is 1 x 1", r"tensor 1 \('w'\) has 128 bytes of data, not the 3200",
        put("tensors", W, "d1", 5), put("tensors", W, "d2", 5)),
    bad("data unaligned in section", "tensor 2 .* has its data at 132, not at a multiple of 64",
        put("tensors", B, "data_offset", 132)),
    bad("data far", "tensor 2 .* has 24 bytes of data at 18446744073709551552, beyond",
        put("tensors", B, "data_offset", 2**64 - 64)),
    bad("data beyond", "tensor 2 .* has 24 bytes of data at 256, beyond", put("tensors", B, "data_offset", 256)),
    # inputs
    bad("input range", "input 0 is tensor 8 of 8", put("inputs", 0, "tensor", 8)),
    bad("input kind", "input 0 is tensor 2, which is not of kind input", put("inputs", 0, "tensor", B)),
    bad("input twice", "input 1 is tensor 0, which is listed before", inputs=[X, X]),
    bad("input not listed", r"tensor 0 \('x'\) is an input that the list of inputs lacks",
        inputs=[], nodes=[NodeRecord("n", "tanh", "any", [B], [C])], outputs=[C],
        tensors=[sound_model().tensors[i] if i < C else Tensor("c", "f32", "value") for i in range(C + 1)]),
    # nodes
    bad("node name", "name of node 1 is at byte 2 of the strings, where none starts", put("nodes", POOL, "name", 2)),
    bad("op", r"node 1 \('pool'\) is the unknown operator 999; this is version",
        put("nodes", POOL, "op", 999), status="VERSION"),
    bad("layout any", r"node 1 \('pool'\): global_average_pool has layout 0, not 1", put("nodes", POOL, "layout", 0)),
    bad("layout unknown", "node 1 .* has layout 7, not 1", put("nodes", POOL, "layout", 7)),
    bad("layout nhwc", r"node 2 \('twice'\): concat has layout 2, not 0", put("nodes", CONCAT, "layout", 2)),
    bad("node reserved", "node 0 .* reserved field", put("nodes", CONV, "reserved", 1)),
    bad("few inputs", "node 0 .*: conv2d has 1 inputs, not 2 to 3", put("nodes", CONV, "n_inputs", 1)),
    bad("many inputs", "node 2 .*: concat has 33 inputs, not 1 to 32", put("nodes", CONCAT, "n_inputs", 33)),
    bad("outputs", "node 0 .*: conv2d has 2 outputs, not 1", put("nodes", CONV, "n_outputs", 2)),
    bad("operands beyond", "node 3 .* has 2 operands at 4294967295, beyond", put("nodes", FLAT, "operands", 2**32 - 1)),
    bad("operands at the end", "node 3 .* has 2 operands at 10, beyond the section's 11", put("nodes", FLAT, "operands", 10)),
    bad("params long", r"node 3 .*: reshape has 76 bytes of parameters, more than the 72 known; this is version",
        put("nodes", FLAT, "params_bytes", 76), status="VERSION"),
    bad("params unaligned", "node 3 .*: reshape has 72 bytes of parameters at 2, not multiples of 4",
        put("nodes", FLAT, "params", 2)),
    bad("params of 70 bytes", "reshape has 70 bytes of parameters", put("nodes", FLAT, "params_bytes", 70)),
    bad("params beyond", "reshape has 72 bytes of parameters at 4294967292, beyond", put("nodes", FLAT, "params", 2**32 - 4)),
    bad("needed input", "node 0 .*: input 1 of conv2d must be given", put("operands", 1, "tensor", NONE)),
    bad("needed variadic input", "node 2 .*: input 1 of concat must be given", put("operands", 7, "tensor", NONE)),
    bad("operand range", "node 0 .*: input 0 of conv2d is tensor 8 of 8", put("operands", 0, "tensor", 8)),
    bad("cycle", "node 0 .*: input 0 of conv2d is tensor 7, which is not made yet", put("operands", 0, "tensor", Y)),
    bad("self", "node 1 .*: input 0 of global_average_pool is tensor 5, which is not made yet",
        put("operands", 4, "tensor", P)),
    bad("many steps", "node 0 .* has 5 fused steps, more than 4", put("nodes", CONV, "n_tail", 5)),
    bad("step of a view", r"node 3 \('flat'\): reshape computes nothing", put("nodes", FLAT, "n_tail", 1)),
    bad("steps beyond", "node 0 .* has 2 fused steps at 1, beyond the section's 2", put("nodes", CONV, "tails", 1)),
    bad("makes nothing", "node 3 .* makes tensor 8 of 8", put("operands", 10, "tensor", 8)),
    bad("makes none", "node 3 .* makes tensor 4294967295 of 8", put("operands", 10, "tensor", NONE)),
    bad("makes an input", "node 3 .* makes tensor 0, which is an input or a constant", put("operands", 10, "tensor", X)),
    bad("makes a constant", "node 3 .* makes tensor 1, which is an input or a constant", put("operands", 10, "tensor", W)),
    bad("made twice", "node 3 .* makes tensor 5, which an earlier node makes", put("operands", 10, "tensor", P)),
    bad("made by none", r"tensor 8 \('z'\) is made by no node", tensors=[*sound_model().tensors, Tensor("z", "f32", "value")]),
    # fused steps
    bad("step op", "node 0 .*: step 1 is the unknown operator 999; this is version",
        put("tails", MUL, "op", 999), status="VERSION"),
    bad("step not element-wise", "step 0 is softmax, which is not element-wise",
        put("tails", SIGMOID, "op", S.BY_NAME["softmax"].id)),
    bad("step without operand", "step 1, mul, has no other operand", put("tails", MUL, "other", NONE)),
    bad("step with operand", "step 0, sigmoid, has an other operand", put("tails", SIGMOID, "other", K)),
    bad("step order", "step 1, mul, has 2 as its order of operands", put("tails", MUL, "other_first", 2)),
    bad("order of one operand", "step 0, sigmoid, has 1 as its order of operands", put("tails", SIGMOID, "other_first", 1)),
    bad("step operand range", "step 1, mul, reads tensor 8 of 8", put("tails", MUL, "other", 8)),
    bad("step operand is the result", "step 1, mul, reads tensor 4, which is not made yet", put("tails", MUL, "other", C)),
    bad("step params", "fused mul has 12 bytes of parameters, more than the 8 known", put("tails", MUL, "params_bytes", 12),
        status="VERSION"),
    # outputs and metadata
    bad("no outputs", "the model has no outputs", outputs=[]),
    bad("output range", "output 0 is tensor 8 of 8", put("outputs", 0, "tensor", 8)),
    bad("output none", "output 0 is tensor 4294967295 of 8", put("outputs", 0, "tensor", NONE)),
    bad("meta key", "metadata 0 is at bytes 2 and", put("meta", 0, "key", 2)),
    bad("meta value", r"metadata 1 is at bytes \d+ and 9999", put("meta", 1, "value", 9999)),
]  # fmt: skip


def file_of(case: Bad) -> bytes:
    f = File(sound_model(**dict(case.changes)))
    for edit in case.edits:
        edit(f)
    return bytes(f.data)


Verdict = tuple[str, int, int, str]  # status, node, rule, text
Verifier = Callable[[list[bytes]], tuple[int, list[Verdict]]]


@pytest.fixture(scope="session")
def verifier(sanitized_build: Build, tmp_path_factory: pytest.TempPathFactory) -> Verifier:
    folder = tmp_path_factory.mktemp("verify")
    others = [o for o in sanitized_build.objects("core", "ops", "ref", "neon", "gen") if o.stem != "verify"]
    program = compile_program(sanitized_build, "verify_rules.c", folder / "verify_rules", others)

    def verify(files: list[bytes]) -> tuple[int, list[Verdict]]:
        paths = [folder / f"{i}.opsnn" for i in range(len(files))]
        for path, content in zip(paths, files):
            path.write_bytes(content)
        done = run(program, *paths)
        assert done.returncode == 0, done.stderr[-4000:]
        n_rules, *lines = done.stdout.splitlines()
        assert len(lines) == len(files)
        rows = [line.split("\t") for line in lines]
        return int(n_rules), [(status[len("OPSNN_") :], int(node), int(rule), text) for status, node, rule, text in rows]

    return verify


@pytest.fixture(scope="session")
def verdicts(verifier: Verifier) -> tuple[int, dict[str, Verdict]]:
    n_rules, found = verifier([file_of(case) for case in CASES])
    return n_rules, {case.name: verdict for case, verdict in zip(CASES, found)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_file(case: Bad, verdicts: tuple[int, dict[str, Verdict]]) -> None:
    status, node, _, text = verdicts[1][case.name]
    assert status == f"E_{case.status}" and re.search(case.message, text), text
    told = re.search(r"node (\d+)", text)
    assert node == (int(told[1]) if told else -1)


def test_every_rule_has_a_bad_file(verdicts: tuple[int, dict[str, Verdict]]) -> None:
    n_rules, found = verdicts
    assert n_rules > 60
    assert sorted({rule for _, _, rule, _ in found.values()}) == list(range(n_rules))
    assert len({case.name for case in CASES}) == len(CASES)


def grown(model: ModelFile) -> bytes:
    """The same model as a newer minor version might write it: longer records, a section of a new kind, a higher minor."""
    old = mf.write(model)
    table = [list(mf.SECTION.unpack_from(old, mf.HEADER.size + i * mf.SECTION.size)) for i in range(len(mf.SECTIONS))]
    start = mf.HEADER.size + 32 * (len(table) + 1)
    body, rows = bytearray(), []
    for kind, stride, offset, n in table:
        content = old[offset : offset + n]
        if stride > 1:
            content = b"".join(content[at : at + stride] + b"\xee" * 8 for at in range(0, n, stride))
            stride += 8
        body += bytes(-(start + len(body)) % 64)
        rows.append((kind, stride, start + len(body), len(content)))
        body += content
    rows.append((77, 3, start, 5))
    rest = b"".join(mf.SECTION.pack(*row) + b"\xee" * 8 for row in rows) + body
    magic, major, minor, _, _, schema, *_ = mf.HEADER.unpack_from(old)
    return mf.HEADER.pack(magic, major, minor + 5, len(rows), mf.HEADER.size + len(rest), schema, 0, 32, 0) + rest


def test_sound_files(verifier: Verifier) -> None:
    constant = Tensor("k", "u8", "const", (0, 3), b"")
    files = {
        "everything": mf.write(sound_model()),
        "a newer minor version": grown(sound_model()),
        "an output that is an input": mf.write(ModelFile([Tensor("x", "f32", "input", (2**28, 0))], [], [0], [0])),
        "an empty constant": mf.write(ModelFile([constant], [], [], [0, 0])),
        "optional input not given": mf.write(sound_model(nodes=[
            NodeRecord("conv", "conv2d", "nhwc", [X, W, None], [C]), *sound_model().nodes[1:],
        ])),
        "absent sections": mf.assemble({
            "strings": b"\0", "tensors": mf.TENSOR.pack(0, 1, 1, 0, *[0] * 8, 0, 0, 0, 0, 0), "nodes": b"", "operands": b"",
            "inputs": mf.INDEX.pack(0), "outputs": mf.INDEX.pack(0),
        }),
    }  # fmt: skip
    _, found = verifier(list(files.values()))
    assert dict(zip(files, found)) == dict.fromkeys(files, ("OK", -1, -1, ""))


def test_verifying_takes_linear_time(verifier: Verifier) -> None:
    """A hundred thousand tensors and nodes that share one huge name: any pass over names or pairs would take minutes."""
    n = 100_000
    tensors = [Tensor("", "f32", "input", (1,)), *(Tensor("", "f32", "value") for _ in range(n))]
    nodes = [NodeRecord("", "tanh", "any", [i], [i + 1]) for i in range(n)]
    f = File(ModelFile(tensors, nodes, [0], [n] * n, {"": "n" * 1_000_000}))
    huge = f.get("meta", 0, "value")
    for section, form in (("tensors", mf.TENSOR), ("nodes", mf.NODE)):
        records = np.frombuffer(f.data, "<u4", offset=f.start(section), count=n * form.size // 4).reshape(n, -1)
        records[:, 0] = huge
    start = time.monotonic()
    _, [verdict] = verifier([bytes(f.data)])
    assert verdict[0] == "OK" and time.monotonic() - start < 90


# --- opening -----------------------------------------------------------------------------------------------------------------


def test_opening_what_is_no_model(host_build: Build, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello\n" * 100)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked").write_bytes(mf.write(sound_model()))
    (tmp_path / "locked").chmod(0)
    cases = {
        "absent": "cannot open '.*absent': No such file or directory",
        ".": "cannot open '.*': Is a directory",
        "empty": "'.*empty': the file is empty",
        "text": "'.*text': this is no .opsnn model: it does not begin",
        "pipe": "cannot open '.*pipe': it is not a regular file",
        "a" * 300: "cannot open '.*a': File name too long",
    }
    if os.geteuid() != 0:
        cases["locked"] = "cannot open '.*locked': Permission denied"
    for name, message in cases.items():
        done = host_build.run(host_build.runner, tmp_path / name)
        assert done.returncode == 1 and re.fullmatch(f"ops-nn-run: {message}.*\n", done.stderr), done.stderr


def test_a_file_beyond_the_address_space(armhf_build: Build, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as f:
        f.truncate(5 << 30)  # holes: it takes no room
    done = armhf_build.run(armhf_build.runner, tmp_path / "huge")
    assert done.returncode == 1 and "has 5368709120 bytes, more than this machine can address" in done.stderr


def test_names_from_a_file_cannot_break_the_line(verifier: Verifier) -> None:
    f = File(sound_model(nodes=[NodeRecord("a\nb\x1b[31m\x7fé", "tanh", "any", [X], [Y])]))
    f.set("nodes", 0, "op", 999)
    long = File(sound_model(nodes=[NodeRecord("é" * 400, "tanh", "any", [X], [Y])]))
    long.set("nodes", 0, "op", 999)
    _, [broken, cut] = verifier([bytes(f.data), bytes(long.data)])
    assert "node 0 ('a?b?[31m?é') is the unknown operator" in broken[3]
    assert f"node 0 ('{'é' * 32}') is" in cut[3]


def test_the_hash_is_fnv1a_over_words() -> None:
    assert mf.fnv1a(b"") == 0xCBF29CE484222325
    h = 0xCBF29CE484222325
    for word in (0x6867666564636261, 0x69):
        h = (h ^ word) * 0x100000001B3 % 2**64
    assert mf.fnv1a(b"abcdefghi") == h
    data = mf.write(sound_model())
    assert mf.HEADER.unpack_from(data)[6] == mf.fnv1a(data[mf.HEADER.size :])


def test_schema_is_the_same_file() -> None:
    assert (ROOT / "python" / "ops_nn" / "schema.py").samefile(ROOT / "src" / "schema.py")
