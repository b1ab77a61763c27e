"""Runs on the board: measures ncnn on one network. Only needs NumPy and ncnn's own package."""

import argparse
import contextlib
import json
import os
import resource
import sys
import time

import numpy as np


def mark() -> None:
    """Start or end a region for the instruction counter; changes nothing anywhere else."""
    with contextlib.suppress(OSError):
        os.close(-7701)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", required=True, help="folder that holds ncnn's package")
    parser.add_argument("--model", required=True, help="the path without .param and .bin")
    parser.add_argument("--input", required=True, help="float32 .npy of shape (1, channels, h, w)")
    parser.add_argument("--output", required=True, help=".npy to write")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()

    sys.path.insert(0, options.package)
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = 1
    # float32 against float32: by default ncnn keeps values in 16 bits on CPUs that can
    net.opt.use_fp16_packed = False
    net.opt.use_fp16_storage = False
    net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_packed = False
    net.opt.use_bf16_storage = False
    if net.load_param(options.model + ".param") or net.load_model(options.model + ".bin"):
        sys.exit("ncnn cannot load " + options.model)
    array = np.load(options.input)[0]  # must outlive the Mat, which only borrows its memory
    picture = ncnn.Mat(array).clone()

    times = []
    for _ in range(options.repeat):
        mark()
        start = time.perf_counter_ns()
        with net.create_extractor() as extractor:
            extractor.input("in0", picture)
            status, output = extractor.extract("out0")
            if status:
                sys.exit(f"ncnn failed with status {status}")
            scores = np.array(output)
        times.append(time.perf_counter_ns() - start)
        mark()
    np.save(options.output, scores)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"times_ns": times, "peak_rss_bytes": peak}))


main()
