"""Tells what is inside a model or a library. Neither is loaded: a library may be one for another machine.

Examples:
    ops-nn info net.opsnn
    ops-nn info build/arm-linux-gnueabihf/libops_nn.so
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from .. import lib
from ..elf import Elf
from ..errors import FormatError
from ..lib import shape_text
from . import common

HELP = "what is inside a model or a library"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an .opsnn model or libops_nn.so")
    parser.add_argument("--tensors", action="store_true", help="also every constant of a model, or every kernel of a library")


def run(args: argparse.Namespace) -> int:
    data = common.read_bytes(args.file)
    if data[:4] == b"\x7fELF":
        _library(args.file, len(data), args.tensors)
    else:
        _model(args.file, data, args.tensors)
    return 0


def _print(rows: list[tuple[str, Any]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:{width}}  {text}")


def _library(path: str, n_bytes: int, in_full: bool) -> None:
    info = dict(lib.read_build_info(path))
    kernels, ops = info.pop("kernels", []), info.pop("ops", [])
    rows: list[tuple[str, Any]] = [("library", path), ("machine", Elf(path).machine), ("size", common.size(n_bytes))]
    for name, fact in sorted(info.items()):
        if isinstance(fact, dict):
            fact = ", ".join(f"{k} {v}" for k, v in fact.items())
        rows.append((name, ", ".join(map(str, fact)) or "none" if isinstance(fact, list) else fact))
    used = Counter(kernel.rsplit("_", 1)[-1] for kernel in kernels)
    rows.append(("kernels", f"{len(kernels)} ({', '.join(f'{n} {isa}' for isa, n in used.items())})"))
    rows.append(("ops", f"{len(ops)}: {', '.join(ops)}"))
    _print(rows)
    if in_full:
        print(*("", *kernels), sep="\n")


def _model(path: str, data: bytes, in_full: bool) -> None:
    from ..modelfile import read

    try:
        model = read(data)
    except ValueError as error:
        hint = f"; compile it first: ops-nn compile {path}" if Path(path).suffix in common.IMPORTED else ""
        raise FormatError(f"{path}: {error}{hint}") from None
    constants = [t for t in model.tensors if t.kind == "const"]
    n_bytes = sum(len(t.data) for t in constants if t.data is not None)
    ops = Counter(node.op for node in model.nodes)
    tails = Counter(tail.op for node in model.nodes for tail in node.tails)
    rows: list[tuple[str, Any]] = [("model", path), ("size", common.size(len(data))), *sorted(model.meta.items())]
    for i in model.inputs:
        tensor = model.tensors[i]
        rows.append(("input", f"{tensor.name}: {tensor.dtype}[{shape_text(tensor.dims)}]"))
    rows += [("output", f"{model.tensors[i].name}: {model.tensors[i].dtype}") for i in model.outputs]
    rows.append(("constants", f"{len(constants)}, {common.size(n_bytes)}"))
    rows.append(("nodes", f"{len(model.nodes)}: {', '.join(f'{n} {op}' for op, n in ops.most_common())}"))
    if tails:
        rows.append(("fused", ", ".join(f"{n} {op}" for op, n in tails.most_common())))
    _print(rows)
    if in_full:
        print()
        common.table(["constant", "type", "shape", "block", "bytes"],
                     [[t.name, t.dtype, shape_text(t.dims), str(t.block or ""), str(len(t.data or b""))] for t in constants],
                     right=(3, 4))  # fmt: skip
