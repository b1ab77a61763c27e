"""The card of a network: what a program must know to use it and what its file does not say."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from models import imagenet
from models.fetch import write_atomic
from models.preprocess import Preprocessing, probabilities

USUAL_SIZE = 224  # of the input, in pixels, where a network leaves it open


class CardError(Exception):
    """A network that cannot be used as a classifier; the text says why."""


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
    guessed: str = ""  # not empty if there was no card: what was assumed instead

    def probabilities(self, output: np.ndarray) -> np.ndarray:
        """The probability of each class from the network's output for one picture."""
        scores = output.reshape(-1)
        return scores if self.output_is == "probabilities" else probabilities(scores)

    def save(self, path: Path) -> None:
        """Write the card as JSON."""
        write_atomic(path, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Card:
        """Read what `save` wrote. Raises CardError if it is no card."""
        try:
            fields = json.loads(path.read_text())
            how = fields["preprocessing"]
            how["mean"], how["std"] = tuple(how["mean"]), tuple(how["std"])
            fields["preprocessing"] = Preprocessing(**how)
            fields["labels"] = tuple(fields["labels"])
            return Card(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise CardError(
                f"{path} is not the card of a network: {error!r}. "
                "The cards under build/models/ show the form."
            ) from error

    @staticmethod
    def of(onnx: Path) -> Card:
        """The card beside an ONNX file or, if there is none, one from what the file tells.

        Raises CardError if the file is no classifier of square pictures with three channels.
        """
        if not onnx.exists():
            raise CardError(f"there is no network {onnx}")
        beside = onnx.with_suffix(".json")
        return Card.load(beside) if beside.exists() else _guess(onnx)


def _guess(path: Path) -> Card:
    """A card for a network about which only its file is known."""
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # protobuf's exceptions share no base class of their own
        raise CardError(f"{path} cannot be read as an ONNX file: {error}") from error
    if not graph.node:
        raise CardError(f"{path} cannot be read as an ONNX file: it holds no network")
    weights = {weight.name for weight in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in inputs]
    if len(inputs) != 1 or len(graph.output) != 1 or len(shapes[0]) != 4:
        raise CardError(f"{path} is no network with one picture as input and one output")
    height, width = shapes[0][2] or USUAL_SIZE, shapes[0][3] or USUAL_SIZE  # 0: left open
    if shapes[0][1] not in (0, 3) or height != width:
        raise CardError(
            f"{path} wants an input of {shapes[0]}, not a square picture with three channels"
        )
    shape = graph.output[0].type.tensor_type.shape.dim
    classes = shape[-1].dim_value if shape else 0
    softmax = any(n.op_type == "Softmax" and graph.output[0].name in n.output for n in graph.node)
    return Card(
        name=path.stem,
        title=path.name,
        input=inputs[0].name,
        output=graph.output[0].name,
        output_is="probabilities" if softmax else "logits",
        preprocessing=Preprocessing(
            height, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)
        ),
        labels=imagenet.labels()
        if classes == 1000
        else tuple(f"class {i}" for i in range(classes)),
        source="your file",
        licence="as you know",
        guessed=f"There is no {path.with_suffix('.json').name}: pictures are prepared as is usual "
        "for ImageNet, and the classes may not fit.",
    )
