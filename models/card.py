"""The card of a network: what a program must know to use it and what its file does not say."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from models.fetch import write_atomic
from models.preprocess import Preprocessing, probabilities


@dataclass(frozen=True)
class Card:
    """Kept as NAME.json beside NAME.onnx."""

    name: str
    title: str
    input: str  # name of the input, float32 of shape (1, 3, size, size)
    output: str  # name of the output, float32 of shape (1, number of labels)
    output_is: str  # "logits" or "probabilities"
    preprocessing: Preprocessing
    labels: tuple[str, ...]
    source: str
    licence: str

    def probabilities(self, output: np.ndarray) -> np.ndarray:
        """The probability of each class from the network's output for one picture."""
        scores = output.reshape(-1)
        return scores if self.output_is == "probabilities" else probabilities(scores)

    def save(self, path: Path) -> None:
        """Write the card as JSON."""
        write_atomic(path, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Card:
        """Read what `save` wrote."""
        fields = json.loads(path.read_text())
        how = fields["preprocessing"]
        how["mean"], how["std"] = tuple(how["mean"]), tuple(how["std"])
        fields["preprocessing"] = Preprocessing(**how)
        fields["labels"] = tuple(fields["labels"])
        return Card(**fields)
