"""The bytes of an .opsnn model: a writer, and a reader for tests and `ops-nn info`.

The format is described in docs/model-format.md. The writer is deterministic: equal models give equal bytes. It stores equal
strings, parameters and constants once. Whether a model makes sense is decided by the library's verifier, which checks every
byte; here only what cannot be written at all raises ValueError.
"""
from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from . import schema as S

if TYPE_CHECKING:  # numpy before 1.21, as on older boards, has no NDArray
    from numpy.typing import NDArray

MAGIC = b"OPSNN\r\n\x1a"
ALIGN = 64  # constants start at multiples of this
NONE = 0xFFFFFFFF  # an optional input that is not given
MAX_BLOCK = 256

KINDS = ("value", "input", "const")  # of tensors; stored as the index
SECTIONS = ("strings", "tensors", "nodes", "operands", "tails", "params", "inputs", "outputs", "meta", "data")  # stored from 1

HEADER = struct.Struct("<8sHHIQQQII")
SECTION = struct.Struct("<IIQQ")
TENSOR = struct.Struct("<IHBB8iHHIQQ")
NODE = struct.Struct("<IHHHHHHIIII")
TAIL = struct.Struct("<HHIII")
INDEX = struct.Struct("<I")
PAIR = struct.Struct("<II")
_STRIDES = {"tensors": TENSOR.size, "nodes": NODE.size, "operands": INDEX.size, "tails": TAIL.size, "inputs": INDEX.size,
            "outputs": INDEX.size, "meta": PAIR.size}  # all others: 1

Buffer = Union[bytes, bytearray, memoryview]
_DTYPE_NAME = {id: name for name, id in S.DTYPE_ID.items()}
_LAYOUT_NAME = {id: name for name, id in S.LAYOUT_ID.items()}


@dataclass(frozen=True)
class Tensor:
    """kind "value": made by a node, dims are () because shapes are inferred; "input": a dim of -1 is open; "const": data holds
    the bytes, little-endian and row-major, blocked as `block_first` does where block > 1."""

    name: str
    dtype: str
    kind: str
    dims: tuple[int, ...] = ()
    data: Optional[Buffer] = None
    block: int = 0


@dataclass(frozen=True)
class TailRecord:
    """A fused element-wise step: acc = op(acc, other), or op(other, acc) with other_first; unary where other is None."""

    op: str
    other: Optional[int] = None
    other_first: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeRecord:
    """inputs and outputs are indices of tensors; None is an optional input that is not given."""

    name: str
    op: str
    layout: str
    inputs: Sequence[Optional[int]]
    outputs: Sequence[int]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    tails: Sequence[TailRecord] = ()


@dataclass(frozen=True)
class ModelFile:
    """nodes are in execution order; inputs and outputs are indices of tensors."""

    tensors: Sequence[Tensor]
    nodes: Sequence[NodeRecord]
    inputs: Sequence[int]
    outputs: Sequence[int]
    meta: Mapping[str, str] = field(default_factory=dict)


# --- parameters ---------------------------------------------------------------------------------------------------------


def _int(where: str, value: Any, clamp: bool = False) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{where} must be an integer, not {value!r}") from None
    low, high = -(2**31), 2**31 - 1
    if clamp:
        return min(max(number, low), high)
    if not low <= number <= high:
        raise ValueError(f"{where} is {number}, which 32 bits cannot hold")
    return number


def _ints(where: str, value: Any, clamp: bool) -> list[int]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(f"{where} must be a list of integers, not {value!r}")
    return [_int(where, v, clamp) for v in value]


def _pack_attr(op: S.Op, attr: S.Attr, value: Any) -> bytes:
    where = f"{op.name}: attribute '{attr.name}'"
    if attr.type == "f32":
        try:
            return struct.pack("<f", value)
        except (struct.error, OverflowError, TypeError):
            raise ValueError(f"{where} is {value!r}, which is no float32") from None
    if attr.type in S.ENUMS:
        members = S.ENUMS[attr.type]
        if isinstance(value, str):
            if value not in members:
                raise ValueError(f"{where} is '{value}', not one of {', '.join(members)}")
            value = members.index(value)
        if not 0 <= _int(where, value) < len(members):
            raise ValueError(f"{where} is {value}, not an index of {', '.join(members)}")
    if attr.type == "bool":
        if value not in (0, 1):
            raise ValueError(f"{where} is {value!r}, not 0 or 1")
        value = int(value)
    if attr.type.startswith("i32["):
        # ONNX means "to the end" by the largest 64-bit numbers there; every other number is an error when it does not fit.
        numbers = _ints(where, value, clamp=op.name == "slice" and attr.name in ("starts", "ends"))
        if attr.type != "i32[]":
            wanted = int(attr.type[4:-1])
            if len(numbers) != wanted:
                raise ValueError(f"{where} has {len(numbers)} numbers, not {wanted}")
            return struct.pack(f"<{wanted}i", *numbers)
        if len(numbers) > S.LIST_CAPACITY:
            raise ValueError(f"{where} has {len(numbers)} numbers; at most {S.LIST_CAPACITY} can be stored")
        return struct.pack(f"<{S.LIST_CAPACITY + 1}i", len(numbers), *numbers, *[0] * (S.LIST_CAPACITY - len(numbers)))
    return struct.pack("<i", _int(where, value))


def pack_params(op_name: str, attrs: Mapping[str, Any]) -> bytes:
    """The parameter struct of an operator (opsnn_<op>_params). Attributes that are not given take the schema's default."""
    op = S.BY_NAME.get(op_name)
    if op is None:
        raise ValueError(f"'{op_name}' is no operator of schema.py")
    known = [attr.name for attr in op.attrs]
    for name in attrs:
        if name not in known:
            raise ValueError(f"{op.name} has no attribute '{name}'; it has {', '.join(known) or 'none'}")
    missing = [attr.name for attr in op.attrs if attr.default is None and attr.name not in attrs]
    if missing:
        raise ValueError(f"{op.name} needs attribute '{missing[0]}'")
    return b"".join(_pack_attr(op, attr, attrs.get(attr.name, attr.default)) for attr in op.attrs)


def unpack_params(op_name: str, data: Buffer) -> dict[str, Any]:
    """The attributes in a parameter struct; what is missing at its end reads as zero."""
    op = S.BY_NAME[op_name]
    data = bytes(data)
    at = 0

    def take(code: str, n: int) -> tuple[Any, ...]:
        nonlocal at
        part = data[at : at + 4 * n].ljust(4 * n, b"\0")
        at += 4 * n
        return struct.unpack(f"<{n}{code}", part)

    attrs: dict[str, Any] = {}
    for attr in op.attrs:
        if attr.type == "i32[]":
            n, *numbers = take("i", S.LIST_CAPACITY + 1)
            attrs[attr.name] = tuple(numbers[: max(n, 0)])
        elif attr.type.startswith("i32["):
            attrs[attr.name] = take("i", int(attr.type[4:-1]))
        else:
            (value,) = take("f" if attr.type == "f32" else "i", 1)
            members = S.ENUMS.get(attr.type, ())
            attrs[attr.name] = members[value] if 0 <= value < len(members) else value
    return attrs


# --- constants ----------------------------------------------------------------------------------------------------------


def block_first(array: NDArray[Any], block: int) -> NDArray[Any]:
    """[D, ...] stored as [ceil(D / block), ..., block]: how a tensor with `block` > 1 lies in the file. The last block is
    filled up with zeros."""
    blocks = -(-array.shape[0] // block)
    padded = np.zeros((blocks * block, *array.shape[1:]), array.dtype)
    padded[: array.shape[0]] = array
    return np.ascontiguousarray(np.moveaxis(padded.reshape(blocks, block, *array.shape[1:]), 1, -1))


def unblock_first(array: NDArray[Any], first: int) -> NDArray[Any]:
    """The inverse of block_first: [ceil(first / block), ..., block] back to [first, ...]."""
    plain = np.moveaxis(array, -1, 1)
    return np.ascontiguousarray(plain.reshape(-1, *plain.shape[2:])[:first])


def stored_dims(tensor: Tensor) -> tuple[int, ...]:
    """The shape in which a constant's elements lie in the file."""
    if tensor.block <= 1:
        return tuple(tensor.dims)
    return (-(-tensor.dims[0] // tensor.block), *tensor.dims[1:], tensor.block)


def constant_bytes(tensor: Tensor) -> int:
    """Bytes that a constant of this type, shape and block takes."""
    n = S.DTYPE_BYTES[tensor.dtype]
    for d in stored_dims(tensor):
        n *= d
    return n


# --- writing ------------------------------------------------------------------------------------------------------------


class _Pieces:
    """Bytes of a section; equal pieces are stored once."""

    def __init__(self, align: int = 1) -> None:
        self.data = bytearray()
        self.align = align
        self.places: dict[bytes, int] = {}

    def put(self, piece: bytes) -> int:
        if piece not in self.places:
            self.data += bytes(-len(self.data) % self.align)
            self.places[piece] = len(self.data)
            self.data += piece
        return self.places[piece]


def fnv1a(data: Buffer) -> int:
    """FNV-1a, 64 bits, over little-endian 64-bit words (a quicker loop than over bytes); the last word is filled with zeros."""
    words = np.frombuffer(bytes(data) + bytes(-len(data) % 8), "<u8").tolist()
    h = 0xCBF29CE484222325
    for word in words:
        h = (h ^ word) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def _tensor(tensor: Tensor, strings: _Pieces, data: _Pieces) -> bytes:
    where = f"tensor '{tensor.name}'"
    if tensor.dtype not in S.DTYPE_ID:
        raise ValueError(f"{where} has the unknown data type '{tensor.dtype}'")
    if tensor.kind not in KINDS:
        raise ValueError(f"{where} is of kind '{tensor.kind}', not {', '.join(KINDS)}")
    if len(tensor.dims) > S.MAX_RANK:
        raise ValueError(f"{where} has {len(tensor.dims)} dimensions; at most {S.MAX_RANK} are possible")
    if tensor.kind == "value" and tensor.dims:
        raise ValueError(f"{where} is made by a node: its shape is inferred, not stored")
    if (tensor.kind == "const") != (tensor.data is not None):
        raise ValueError(f"{where} is of kind '{tensor.kind}' but has {'no ' if tensor.data is None else ''}data")
    offset = size = 0
    if tensor.data is not None:
        if not 0 <= tensor.block <= MAX_BLOCK or (tensor.block > 1 and not tensor.dims):
            raise ValueError(f"{where} of rank {len(tensor.dims)} cannot have blocks of {tensor.block}")
        content = memoryview(tensor.data).tobytes()
        size = len(content)
        wanted = constant_bytes(tensor)
        if size != wanted:
            raise ValueError(f"{where} has {size} bytes; {tensor.dtype}{list(stored_dims(tensor))} needs {wanted}")
        offset = data.put(content) if size else 0
    dims = [_int(where, d) for d in tensor.dims]
    return TENSOR.pack(strings.put(_string(tensor.name)), S.DTYPE_ID[tensor.dtype], KINDS.index(tensor.kind), len(dims),
                       *dims, *[0] * (S.MAX_RANK - len(dims)), tensor.block, 0, 0, offset, size)


def _string(text: str) -> bytes:
    if "\0" in text:
        raise ValueError(f"{text!r} holds a NUL, which a string of a model cannot")
    return text.encode() + b"\0"


def write(model: ModelFile) -> bytes:
    """The bytes of an .opsnn file."""
    strings, params, data = _Pieces(), _Pieces(8), _Pieces(ALIGN)
    strings.put(b"\0")
    tensors, nodes, operands, tails = bytearray(), bytearray(), bytearray(), bytearray()

    def index(where: str, i: int) -> bytes:
        if not 0 <= i < len(model.tensors):
            raise ValueError(f"{where} refers to tensor {i} of {len(model.tensors)}")
        return INDEX.pack(i)

    def place_params(op: str, attrs: Mapping[str, Any]) -> tuple[int, int]:
        packed = pack_params(op, attrs)
        return (params.put(packed) if packed else 0), len(packed)

    for tensor in model.tensors:
        tensors += _tensor(tensor, strings, data)
    for node in model.nodes:
        where = f"node '{node.name}'"
        if node.layout not in S.LAYOUT_ID:
            raise ValueError(f"{where} has the unknown layout '{node.layout}'")
        try:
            place = place_params(node.op, node.attrs)
            tail_places = [place_params(tail.op, tail.attrs) for tail in node.tails]
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        nodes += NODE.pack(strings.put(_string(node.name)), S.BY_NAME[node.op].id, S.LAYOUT_ID[node.layout], len(node.inputs),
                           len(node.outputs), len(node.tails), 0, len(operands) // INDEX.size, len(tails) // TAIL.size, *place)
        for i in node.inputs:
            operands += INDEX.pack(NONE) if i is None else index(where, i)
        for i in node.outputs:
            operands += index(where, i)
        for tail, tail_place in zip(node.tails, tail_places):
            other = NONE if tail.other is None else tail.other
            if other != NONE:
                index(where, other)
            tails += TAIL.pack(S.BY_NAME[tail.op].id, int(tail.other_first), other, *tail_place)
    inputs = b"".join(index("the list of inputs", i) for i in model.inputs)
    outputs = b"".join(index("the list of outputs", i) for i in model.outputs)
    meta = b"".join(PAIR.pack(strings.put(_string(k)), strings.put(_string(v))) for k, v in model.meta.items())
    return assemble({
        "strings": strings.data, "tensors": tensors, "nodes": nodes, "operands": operands, "tails": tails,
        "params": params.data, "inputs": inputs, "outputs": outputs, "meta": meta, "data": data.data,
    })  # fmt: skip


def assemble(sections: Mapping[str, Union[bytes, bytearray]]) -> bytes:
    """Header, section table and the given sections, in the given order."""
    table = bytearray()
    body = bytearray()
    start = HEADER.size + SECTION.size * len(sections)
    for name, content in sections.items():
        body += bytes(-(start + len(body)) % (ALIGN if name == "data" else 8))
        table += SECTION.pack(SECTIONS.index(name) + 1, _STRIDES.get(name, 1), start + len(body), len(content))
        body += content
    rest = bytes(table + body)
    header = HEADER.pack(MAGIC, S.FORMAT_MAJOR, S.FORMAT_MINOR, len(sections), HEADER.size + len(rest), S.fingerprint(),
                         fnv1a(rest), SECTION.size, 0)  # fmt: skip
    return header + rest


# --- reading ------------------------------------------------------------------------------------------------------------


def read(data: Buffer) -> ModelFile:
    """The model in the bytes of an .opsnn file, constants being views of it. ValueError where it cannot be understood; this is
    no replacement for the library's verifier."""
    try:
        return _read(memoryview(data).cast("B"))
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"this is no sound model file: {error}") from None


def _read(data: memoryview) -> ModelFile:
    magic, major, minor, n_sections, file_bytes, _, _, section_stride, _ = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError("this is no .opsnn model: it does not begin with its eight bytes")
    if major != S.FORMAT_MAJOR:
        raise ValueError(f"the model has format {major}.{minor}; this version reads {S.FORMAT_MAJOR}.x")
    if file_bytes != len(data):
        raise ValueError(f"the model should have {file_bytes} bytes, but {len(data)} are here")
    sections: dict[str, tuple[memoryview, int]] = {}
    for i in range(n_sections):
        kind, stride, offset, size = SECTION.unpack_from(data, HEADER.size + i * section_stride)
        if 1 <= kind <= len(SECTIONS):
            sections[SECTIONS[kind - 1]] = (data[offset : offset + size], stride)

    def part(name: str) -> memoryview:
        return sections[name][0] if name in sections else data[:0]

    def records(name: str, form: struct.Struct) -> list[tuple[Any, ...]]:
        if name not in sections:
            return []
        content, stride = sections[name]
        return [form.unpack_from(content, at) for at in range(0, len(content), max(stride, form.size))]

    texts, pool = part("strings"), bytes(part("strings"))

    def string(offset: int) -> str:
        if offset >= len(texts):
            raise IndexError(f"string offset {offset}")
        return pool[offset : pool.index(b"\0", offset)].decode()

    def attrs(op: int, offset: int, size: int) -> dict[str, Any]:
        return unpack_params(S.BY_ID[op].name, part("params")[offset : offset + size])

    def tensor(r: tuple[Any, ...]) -> Tensor:
        name, dtype, kind, rank, *rest = r
        dims, (block, _, _, offset, size) = rest[:8], rest[8:]
        content = part("data")[offset : offset + size] if KINDS[kind] == "const" else None
        return Tensor(string(name), _DTYPE_NAME[dtype], KINDS[kind], tuple(dims[:rank]), content, block)

    operands = [i for (i,) in records("operands", INDEX)]
    tails = [
        TailRecord(S.BY_ID[op].name, None if other == NONE else other, bool(first), attrs(op, offset, size))
        for op, first, other, offset, size in records("tails", TAIL)
    ]
    nodes = []
    for name, op, layout, n_in, n_out, n_tail, _, first, tail, offset, size in records("nodes", NODE):
        ins = [None if i == NONE else i for i in operands[first : first + n_in]]
        outs = operands[first + n_in : first + n_in + n_out]
        params, steps = attrs(op, offset, size), tails[tail : tail + n_tail]
        nodes.append(NodeRecord(string(name), S.BY_ID[op].name, _LAYOUT_NAME[layout], ins, outs, params, steps))
    return ModelFile(
        [tensor(r) for r in records("tensors", TENSOR)],
        nodes,
        [i for (i,) in records("inputs", INDEX)],
        [i for (i,) in records("outputs", INDEX)],
        {string(k): string(v) for k, v in records("meta", PAIR)},
    )
