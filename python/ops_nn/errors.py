"""What can go wrong, as a small family of exceptions: every one is an OpsNNError, and its text is one line that says what is
wrong with which numbers and, where there is one, the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional


class OpsNNError(Exception):
    """The family's head. `node` is the index of the node at fault in the model, or None."""

    def __init__(self, text: str, node: Optional[int] = None) -> None:
        super().__init__(text)
        self.node = node


class LibraryError(OpsNNError, ImportError):
    """The shared library cannot be found, loaded or used with this package."""

    def __init__(self, text: str) -> None:
        OpsNNError.__init__(self, text)


class ArgumentError(OpsNNError, ValueError):
    """A call makes no sense: a name that does not exist, an index out of range, contradictory options."""


class ModelError(OpsNNError):
    """The model is at fault. `problems` holds everything that is wrong with it, one line each."""

    def __init__(self, text: str, node: Optional[int] = None, problems: Sequence[str] = ()) -> None:
        super().__init__(text, node)
        self.problems = tuple(problems) or (text,)


class FormatError(ModelError):
    """The bytes are not a sound model, or one of another major version."""


class UnsupportedOperator(ModelError):
    """An operator that does not exist here, or that this library was built without: the text names the configure.py line."""


class ShapeError(ModelError):
    """Shapes, types or attributes do not fit an operator, or an array does not fit an input."""


class CpuError(OpsNNError):
    """This CPU lacks what the library was built for."""


class LimitError(OpsNNError):
    """A size is beyond what this machine can address."""


class OutOfMemory(OpsNNError, MemoryError):
    """Memory could not be had."""


class FileError(OpsNNError, OSError):
    """A file could not be read or written."""

    def __init__(self, text: str) -> None:
        OpsNNError.__init__(self, text)


# By opsnn_status of ops_nn.h.
BY_STATUS: dict[int, type[OpsNNError]] = {
    1: ArgumentError,
    2: OutOfMemory,
    3: FileError,
    4: FormatError,
    5: FormatError,
    6: UnsupportedOperator,
    7: ShapeError,
    8: CpuError,
    9: LimitError,
}
