"""Tells whether a library holds what a model needs. The library may be one for another machine: it is not loaded.

    ops-nn check net.opsnn build/arm-linux-gnueabihf/libops_nn.so

Exit code 0: the library runs the model. 1: it lacks something; the configure.py line that brings it back is printed.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from .. import lib
from ..errors import LibraryError
from ..lib import NodeInfo, op_of
from ..runtime import Plan
from . import common

HELP = "whether a library holds what a model needs"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".opsnn, or .onnx or .tflite, which is compiled on the way")
    parser.add_argument("library", metavar="LIB", help="libops_nn.so of any machine")
    common.add_shape(parser)
    parser.add_argument(
        "--lib", metavar="FILE", help="this machine's full library, which does the planning; default: as for run"
    )


def run(args: argparse.Namespace) -> int:
    info = lib.read_build_info(args.library)
    if not {"ops", "kernels", "planner"} <= set(info):
        raise LibraryError(f"{args.library} does not tell what is inside: it was not built by configure.py and scons")
    planner = common.open_library(args.lib)
    model = common.open_model(args.model, planner, args.shape)
    target = common.target_from(info["planner"])
    plan = model.plan(common.plan_shapes(model, args.shape), target, pack=False)
    lacking, slower = missing(plan, set(info["ops"]), set(info["kernels"]))
    for node, kernel in slower:
        print(f"slower: node '{node.name}' would use {kernel}, which is not in {args.library}; it uses another kernel")
    if not lacking:
        print(f"{args.library} runs {model.name} on {target.name}")
        return 0
    for op, (n_nodes, node) in lacking.items():
        more = f" and {n_nodes - 1} other{'s' * (n_nodes > 2)}" if n_nodes > 1 else ""
        print(f"lacking: {op}, for node '{node.name}'{more}")
    print(f"\n{args.library} cannot run {model.name}. This brings it back:\n\n    {configure_line(info, list(lacking))}")
    return 1


def missing(plan: Plan, ops: set[str], kernels: set[str]) -> tuple[dict[str, tuple[int, NodeInfo]], list[tuple[NodeInfo, str]]]:
    """Operators of the plan that a library of these operators and kernels cannot run, with the number of nodes and the first
    one; and the nodes for which it has not the best kernel but another one."""
    lacking: dict[str, tuple[int, NodeInfo]] = {}
    slower: list[tuple[NodeInfo, str]] = []
    for i, node in enumerate(plan.nodes):
        gone = []
        able = {c.kernel for c in plan.candidates(i) if c.why is None}
        if node.op not in ops or (node.kernel != "view" and not able & kernels):
            gone.append(node.op)
        elif node.kernel != "view" and node.kernel not in kernels:
            slower.append((node, node.kernel))
        for step in node.tail_kernels:
            op = op_of(step)
            kind = step[len(op) + 1 :].split("_")[0]  # the data type: any kernel of the operator and type can do the step
            if op not in ops or not any(k.startswith((f"{op}_{kind}_", f"{op}_any_")) for k in kernels):
                gone.append(op)
        for op in gone:
            n_nodes, first = lacking.get(op, (0, node))
            lacking[op] = (n_nodes + 1, first)
    return lacking, slower


def configure_line(info: dict[str, Any], ops: list[str]) -> str:
    """How to build the same library with these operators too."""
    words = ["./configure.py", f"--board={info['board']}" if info.get("board") else f"--target={info['target']}"]
    models = [f"{Path(name).stem}.onnx" for name in info.get("models", [])]
    if models:
        words += [f"--model={name}" for name in models]
        words += ["--disable-unused-ops", f"--ops=+{','.join(sorted(ops))}"]
    else:
        words.append(f"--ops={','.join(sorted({*info['ops'], *ops}))}")
    if info.get("optimize_for_size"):
        words.append("--optimize-for-size")
    return f"{shlex.join(words)} && scons"
