"""Tells how a machine would run a model: for each node the kernel that was chosen, its work and its predicted time, and why
the other kernels were not chosen.

    ops-nn explain net.opsnn
    ops-nn explain net.opsnn --target raspberrypi-4b --brief
"""

from __future__ import annotations

import argparse

from ..lib import Candidate, NodeInfo
from ..runtime import Plan
from . import common

HELP = "how a machine would run a model, and why so"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".opsnn, or .onnx or .tflite, which is compiled on the way")
    common.add_shape(parser)
    parser.add_argument("--target", metavar="TARGET", type=common.target,
                        help="the machine: a board, JSON, or a file with it (config.json of a build); "
                             "default: this one")  # fmt: skip
    parser.add_argument("--brief", action="store_true", help="leave out the kernels that were not chosen")
    common.add_library(parser)


def run(args: argparse.Namespace) -> int:
    library = common.open_library(args.lib)
    model = common.open_model(args.model, library, args.shape)
    target = args.target or library.target_detect()
    plan = model.plan(common.plan_shapes(model, args.shape), target, pack=False)
    features = ", ".join(target.features) or "no special features"
    print(f"{model.name} on {target.name}: {target.arch} with {features}")
    print(f"{target.n_threads} cores of {target.gflops:g} GFLOPS, {target.gbytes_per_s:g} GB/s")
    print()
    rows = []
    for i, node in enumerate(plan.nodes):
        rows.append([str(i), node.name, _what(node), *_figures(node), _share(node.predicted_ns, plan)])
        if not args.brief:
            rows += [["", "", f"  {c.kernel}: {_why(c)}", "", "", common.time(c.predicted_ns) if c.why is None else "", ""]
                     for c in plan.candidates(i) if not c.chosen]  # fmt: skip
    common.table(["#", "node", "kernel", "MACs", "moved", "time", "share"], rows, right=(0, 3, 4, 5, 6))
    print()
    _totals(plan, target.n_threads)
    return 0


def _what(node: NodeInfo) -> str:
    kernel = f"{node.op} (a view: nothing to do)" if node.kernel == "view" else node.kernel
    return " + ".join([kernel, *node.tail_kernels])


def _figures(node: NodeInfo) -> list[str]:
    return [common.count(node.macs), common.size(node.moved_bytes), common.time(node.predicted_ns)]


def _share(ns: float, plan: Plan) -> str:
    return f"{100 * ns / plan.info.predicted_ns:.1f} %" if plan.info.predicted_ns > 0 else ""


def _why(candidate: Candidate) -> str:
    return f"cannot: {candidate.why}" if candidate.why else "slower"


def _totals(plan: Plan, n_threads: int) -> None:
    info = plan.info
    rows = [
        ("predicted time", f"{common.time(info.predicted_ns)} with {n_threads} thread{'s' * (n_threads > 1)}"),
        ("multiply-adds", common.count(info.macs)),
        ("bytes moved", common.size(info.moved_bytes)),
        ("weights", f"{common.size(info.const_bytes)} read in place, {common.size(info.packed_bytes)} packed"),
        ("arena", f"{common.size(info.arena_bytes)}, and {common.size(info.scratch_bytes)} of scratch for each thread"),
        ("tasks", f"{info.n_tasks_max} at the widest node: more threads are of no use"),
    ]
    for name, text in rows:
        print(f"{name:15} {text}")
