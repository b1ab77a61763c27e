"""make_abi.py CDEF OUT: writes the cffi module for out-of-line ABI mode."""
from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import cffi


def main(cdef: str, out: str) -> None:
    ffi = cffi.FFI()
    ffi.cdef(Path(cdef).read_text())
    ffi.set_source("ops_nn._abi", None)
    with contextlib.redirect_stdout(None):  # scons has already said what is being made
        ffi.emit_python_code(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
