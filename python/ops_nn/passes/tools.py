"""What passes may ask the C library for: they hold no second copy of its knowledge."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ..ir import Array, Node
from ..shapes import Rules

Evaluate = Callable[[Node, Sequence[Optional[Array]]], list[Array]]


@dataclass(frozen=True)
class Tools:
    """lib: shape rules (lib.py). evaluate: runs one node on constant inputs, on this machine's library (compiler.py)."""

    lib: Rules
    evaluate: Evaluate
