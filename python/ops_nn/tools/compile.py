"""Compiles an ONNX or TensorFlow Lite model to an .opsnn model.

Examples:
    ops-nn compile net.onnx -o net.opsnn
    ops-nn compile net.tflite -o net.opsnn
    ops-nn compile net.onnx -o net.opsnn --shape image=1x3x224x224 --io-layout nhwc
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..errors import ArgumentError
from . import common

HELP = "compile an ONNX or TensorFlow Lite model to an .opsnn model"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=".onnx or .tflite")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="default: the model's name with .opsnn, in the current directory"
    )
    group = parser.add_argument_group("the model's inputs")
    common.add_shape(group)
    group.add_argument(
        "--io-layout", choices=("nchw", "nhwc"), default="nchw", help="how pictures of ONNX go in and out (nchw, as in ONNX)"
    )
    group = parser.add_argument_group("for a trimmed library")
    group.add_argument("--for-target", metavar="TARGET", type=common.target,
                       help="what --kernels-json is for: JSON, a file with it, or a board")  # fmt: skip
    group.add_argument("--kernels-json", metavar="FILE", help="write the operators and kernels that the model needs")
    group.add_argument("--optimize-for-size", action="store_true", help="fewer kernels rather than the fastest ones")
    common.add_library(group)
    parser.add_argument("-v", "--verbose", action="store_true", help="what each pass changed")


def run(args: argparse.Namespace) -> int:
    compiler = common.compiler()
    if not args.kernels_json and (args.for_target or args.optimize_for_size):
        raise ArgumentError("--for-target and --optimize-for-size decide what --kernels-json says, which is not given")
    library = common.open_library(args.lib)
    data, report = compiler.compile_model(args.model, common.import_shapes(args.shape), args.io_layout, library)
    needs = compiler.kernels_for(data, args.for_target, library, few=args.optimize_for_size) if args.kernels_json else None
    output = args.output or f"{Path(args.model).stem}.opsnn"
    compiler.save(output, data)
    if needs is not None:
        compiler.save(args.kernels_json, (json.dumps(needs.to_dict(), indent=1) + "\n").encode())
    if args.verbose:
        for name, changes in report.passes:
            print(f"{name:24} {changes}")
    print(f"{output}: {common.size(len(data))}, {report.n_nodes} nodes from {report.n_imported}")
    return 0
