"""Models of a single node, made and run from numpy arrays: how tests try one operator through the whole library.

    y = run(library, "conv2d", [x, const(w, block=4), None], {"strides": (2, 2)})
"""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray
from ops_nn import modelfile as M
from ops_nn import schema as S
from ops_nn.lib import Library
from ops_nn.runtime import NUMPY, Model, Session

Array = NDArray[Any]
_DTYPES = {numpy: name for name, numpy in NUMPY.items() if name != "bf16"}


@dataclass(frozen=True)
class Operand:
    """An array and how the model holds it: as an input or as a constant, in blocks of its first dimension where block > 1.
    dtype None: the array's own; bfloat16 is given as its bits."""

    array: Array
    constant: bool = False
    block: int = 0
    dtype: Optional[str] = None


Given = Union[Array, Operand, None]


@dataclass(frozen=True)
class Tail:
    """A fused step behind the node: acc = op(acc, other), or op(other, acc) with other_first."""

    op: str
    other: Given = None
    other_first: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)


def const(array: Any, block: int = 0, dtype: Optional[str] = None) -> Operand:
    return Operand(np.asarray(array), True, block, dtype)


def default_layout(op: str) -> str:
    """The layout that kernels exist for."""
    return "nhwc" if S.BY_NAME[op].layout else "any"


def one_node(
    op: str,
    inputs: Sequence[Given],
    attrs: Optional[Mapping[str, Any]] = None,
    layout: Optional[str] = None,
    tails: Sequence[Tail] = (),
) -> tuple[bytes, dict[str, Array]]:
    """The model's bytes, and the arrays to run it with. Its output is "y", its inputs are "in0", "in1", ... and "tail0", ..."""
    tensors: list[M.Tensor] = []
    feeds: dict[str, Array] = {}
    model_inputs: list[int] = []

    def place(name: str, given: Given) -> Optional[int]:
        if given is None:
            return None
        o = given if isinstance(given, Operand) else Operand(np.asarray(given))
        dtype = o.dtype or _DTYPES[o.array.dtype]
        if o.constant:
            stored = M.block_first(o.array, o.block) if o.block > 1 else np.ascontiguousarray(o.array)
            tensors.append(M.Tensor(name, dtype, "const", o.array.shape, stored.tobytes(), o.block))
        else:
            tensors.append(M.Tensor(name, dtype, "input", o.array.shape))
            feeds[name] = o.array
            model_inputs.append(len(tensors) - 1)
        return len(tensors) - 1

    placed = [place(f"in{i}", given) for i, given in enumerate(inputs)]
    records = [M.TailRecord(t.op, place(f"tail{i}", t.other), t.other_first, t.attrs) for i, t in enumerate(tails)]
    first = next(o.array if isinstance(o, Operand) else o for o in inputs if o is not None)
    dtype = inputs[0].dtype if isinstance(inputs[0], Operand) and inputs[0].dtype else _DTYPES[first.dtype]
    tensors.append(M.Tensor("y", dtype, "value"))
    node = M.NodeRecord("node", op, layout or default_layout(op), placed, [len(tensors) - 1], attrs or {}, records)
    return M.write(M.ModelFile(tensors, [node], model_inputs, [len(tensors) - 1])), feeds


def run(
    library: Union[Library, str, os.PathLike[str]],
    op: str,
    inputs: Sequence[Given],
    attrs: Optional[Mapping[str, Any]] = None,
    layout: Optional[str] = None,
    tails: Sequence[Tail] = (),
    reference: bool = False,
    threads: int = 1,
) -> Array:
    """The result of one node. reference: by the portable reference kernels only."""
    data, feeds = one_node(op, inputs, attrs, layout, tails)
    model = Model(data, library if isinstance(library, Library) else Library(library))
    return Session(model, threads=threads, reference=reference).run(feeds)["y"]
