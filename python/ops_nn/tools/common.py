"""What the verbs share: how shapes and targets are written on the command line, opening models, and printing tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

from .. import lib
from .. import schema as S
from ..errors import ArgumentError, FileError, LibraryError
from ..lib import Library, Target
from ..runtime import Model

IMPORTED = (".onnx", ".tflite")  # what files that are compiled on the way are called
_ROOT = Path(__file__).resolve().parents[3]  # of a source tree; boards/ lies there


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=1x3x224x224; argparse reports what is wrong."""
    name, equals, dims = text.rpartition("=")
    parts = dims.split("x")
    if not name or not equals or not all(p.isdecimal() for p in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is no NAME=1x3x224x224")
    return name, tuple(map(int, parts))


def add_shape(parser: Any) -> None:
    parser.add_argument("--shape", metavar="NAME=DIMS", type=shape, action="append", default=[],
                        help="shape of an input (image=1x3x224x224), or an open dimension (batch=1); repeatable")  # fmt: skip


def import_shapes(given: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, Union[int, tuple[int, ...]]]:
    """What --shape gave, for compile_model: a single number may be that of a dimension, too (batch=1)."""
    return {name: dims[0] if len(dims) == 1 else dims for name, dims in given}


def add_library(parser: Any) -> None:
    parser.add_argument("--lib", metavar="FILE", help=f"the library; default: ${lib.ENVIRONMENT}, or this machine's own build")


def open_library(path: Optional[str]) -> Library:
    return lib.library(path)


def open_model(path: str, library: Library, shapes: Sequence[tuple[str, tuple[int, ...]]] = ()) -> Model:
    """An .opsnn file, or a model of IMPORTED compiled on the way."""
    if Path(path).suffix not in IMPORTED:
        return Model(path, library)
    data, _ = compiler().compile_model(path, import_shapes(shapes), library=library)
    model = Model(data, library)
    model.name = path
    return model


def plan_shapes(model: Model, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> Optional[dict[str, tuple[int, ...]]]:
    """What --shape gave, for Model.plan; ArgumentError where an input stays open."""
    given = dict(shapes)
    for info in model.inputs:
        if min(info.dims, default=0) < 0 and info.name not in given:
            raise ArgumentError(f"input {info} has open dimensions: give --shape {info.name}=DIMS")
    return given or None


def compiler() -> Any:
    """The module that compiles models, which needs more than running them does."""
    try:
        import onnx  # noqa: F401

        from .. import compiler
    except ImportError as error:
        raise LibraryError(f"compiling models needs more packages ({error}): pip install 'ops-nn[convert]'") from None
    return compiler


def read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None


# --- targets ---------------------------------------------------------------------------------------------------------------


def target(text: str) -> Target:
    """A target as JSON, as a file with JSON (config.json of a build too), or as the name of a board of a source tree; argparse
    reports what is wrong."""
    try:
        if text.lstrip().startswith("{"):
            return target_from(_json("the target", text))
        if Path(text).is_file():
            facts = _json(text, read_bytes(text).decode("utf-8", "replace"))
            return target_from(facts.get("planner", facts))
        return target_from(_board(text))
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def target_from(facts: dict[str, Any]) -> Target:
    """A target as configure.py writes it: besides Target's own fields it may list the `isas` that kernels are built for. CPU
    features that only the other ISAs need are left out, since no kernel of such a library uses them."""
    facts = dict(facts)
    isas = facts.pop("isas", None)
    found = Target.from_dict(facts)
    if isas is None:
        return found
    needs = {name: set(features) for name, _, features in S.ISAS}
    special = {f for name, own in needs.items() if name not in isas for f in own} - {"neon", "fma"}
    kept = {f for name in isas for f in needs.get(name, ())}
    features = [f for f in found.features if f in kept or f not in special]
    return Target.from_dict({**found.to_dict(), "features": features})


def _json(where: str, text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{where} holds no JSON: {error}") from None
    if not isinstance(facts, dict):
        raise ArgumentError(f"{where} holds no JSON object")
    return facts


def _board(name: str) -> dict[str, Any]:
    """What configure.py knows of a board."""
    if not (_ROOT / "boards" / f"{name}.toml").is_file():
        known = sorted(p.stem for p in (_ROOT / "boards").glob("*.toml"))
        boards = f"; boards are {', '.join(known)}" if known else ""
        raise ArgumentError(f"target '{name}' is neither JSON, nor a file, nor a board{boards}")
    sys.path.insert(0, str(_ROOT))
    try:
        import configure  # type: ignore[import-not-found,unused-ignore]
    finally:
        sys.path.remove(str(_ROOT))
    board = configure.load_board(name)
    toolchain = next(t for t in configure.all_toolchains() if t.target == board.target)
    isas = {"ref": [], **toolchain.isa}
    facts: dict[str, Any] = configure.planner_facts(toolchain, board.soc.levels[board.target], board, isas)
    return facts


# --- printing --------------------------------------------------------------------------------------------------------------


def count(number: float) -> str:
    """1234567 as 1.23 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= limit * 0.9995:
            return f"{number / limit:.3g}{unit}" if abs(number) < 999.5 * limit else f"{number / limit:.0f}{unit}"
    return f"{number:.0f}"


def size(number: float) -> str:
    """Bytes as 1.23 MB (powers of 1000)."""
    text = count(number)
    return f"{text}B" if " " in text else f"{text} B"


def time(ns: float) -> str:
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= limit * 0.9995:
            return f"{ns / limit:.3g} {unit}" if ns < 999.5 * limit else f"{ns / limit:.0f} {unit}"
    return f"{ns:.0f} ns"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Prints a table: with rich on a terminal that has it, else in plain columns. `right`: columns of numbers."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            pretty = Table(box=None, header_style="bold", pad_edge=False)
            for i, name in enumerate(head):
                pretty.add_column(name, justify="right" if i in right else "left", overflow="fold")
            for row in rows:
                pretty.add_row(*(cell.replace("[", r"\[") for cell in row))
            Console().print(pretty)
            return
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = (cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths)))
        print("  ".join(cells).rstrip())
