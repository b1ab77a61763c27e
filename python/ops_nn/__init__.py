"""ops-nn: run neural networks on small boards.

    import ops_nn

    model = ops_nn.Model("net.opsnn")
    session = model.session()
    scores = session.run(image)["scores"]

Running needs numpy and cffi. `compile_model`, which makes models of ONNX and TensorFlow Lite files on a PC, needs the
packages onnx and tflite besides; it is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    ArgumentError,
    CpuError,
    FileError,
    FormatError,
    LibraryError,
    LimitError,
    ModelError,
    OpsNNError,
    OutOfMemory,
    ShapeError,
    UnsupportedOperator,
)
from .lib import Candidate, Library, NodeInfo, PlanInfo, Target, TensorInfo, library, read_build_info
from .runtime import Model, Plan, Session
from .schema import VERSION as __version__

if TYPE_CHECKING:
    from .compiler import compile_model, kernels_for

__all__ = [
    "ArgumentError",
    "Candidate",
    "CpuError",
    "FileError",
    "FormatError",
    "Library",
    "LibraryError",
    "LimitError",
    "Model",
    "ModelError",
    "NodeInfo",
    "OpsNNError",
    "OutOfMemory",
    "Plan",
    "PlanInfo",
    "Session",
    "ShapeError",
    "Target",
    "TensorInfo",
    "UnsupportedOperator",
    "__version__",
    "compile_model",
    "kernels_for",
    "library",
    "read_build_info",
]


def __getattr__(name: str) -> Any:
    """What only a PC needs."""
    if name in ("compile_model", "kernels_for"):
        from . import compiler

        return getattr(compiler, name)
    raise AttributeError(f"module 'ops_nn' has no attribute '{name}'")
