"""From a picture file to the numbers that a network expects, and back from scores to names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError


class PictureError(Exception):
    """A picture that cannot be read; the text says why."""


@dataclass(frozen=True)
class Preprocessing:
    """How a network's training saw pictures.

    The pixel values 0..255 become (value - mean) / std, channel by channel. `crop` is the part of
    the shorter side that a square around the centre keeps; without it the whole picture is squeezed
    into a square. Resizing is bicubic.
    """

    size: int  # of the square input, in pixels
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop: float | None = 0.875
    order: str = "RGB"  # or "BGR"; mean and std follow this order


def load_picture(path: Path, how: Preprocessing) -> np.ndarray:
    """Return a picture as float32 of shape (1, 3, size, size).

    Raises PictureError for a file that is missing or is no picture.
    """
    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except FileNotFoundError:
        raise PictureError(f"there is no picture {path}") from None
    except (UnidentifiedImageError, OSError) as error:
        raise PictureError(f"{path} cannot be read as a picture: {error}") from error
    return preprocess(picture, how)


def preprocess(picture: Image.Image, how: Preprocessing) -> np.ndarray:
    """Return an RGB picture as float32 of shape (1, 3, size, size)."""
    if how.crop is not None:
        side = int(min(picture.size) * how.crop)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    picture = picture.resize((how.size, how.size), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture, np.float32)
    if how.order == "BGR":
        pixels = pixels[..., ::-1]
    values = (pixels - np.asarray(how.mean, np.float32)) / np.asarray(how.std, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1)[np.newaxis], dtype=np.float32)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The softmax of a vector, in float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())


def best(scores: np.ndarray, labels: Sequence[str], count: int = 5) -> list[tuple[str, float]]:
    """The names and scores of the best classes, best first. A class without a name gets a number."""
    order = np.argsort(-scores, kind="stable")[:count]
    return [(labels[i] if i < len(labels) else f"class {i}", float(scores[i])) for i in order]
