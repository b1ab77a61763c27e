#!/usr/bin/env python3
"""Make a network or fetch pictures under build/models/ and print where they are.

python models/get.py efficientnet-lite0      the network as ONNX; its card lies beside it (.json)
python models/get.py blazeface               a network as TensorFlow Lite, as it comes
python models/get.py pictures                the folder of labelled ImageNet pictures
python models/get.py chelsea.png             a photograph of a cat
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

if __package__ in (None, ""):  # started by path: make the repository's packages importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from models import tflite_files
from models.fetch import ROOT, FetchError, fetch, write_atomic
from models.packages import FOOLBOX, SCIKIT_IMAGE

OUT = ROOT / "build" / "models"
NETWORKS = ("efficientnet-lite0", "mobilenetv2-dogs", "mobilenetv2-224", "squeezenet11")
PHOTOGRAPHS = ("chelsea.png", "coffee.png", "astronaut.png")


def network(name: str) -> Path:
    """Return the ONNX file of a network, made again if a file of this package is newer."""
    path = OUT / f"{name}.onnx"
    card = path.with_suffix(".json")
    newest = max(source.stat().st_mtime for source in Path(__file__).parent.glob("*.py"))
    if not (path.exists() and card.exists() and card.stat().st_mtime > newest):
        content, made = import_module("models." + name.replace("-", "_")).build()
        write_atomic(path, content)
        made.save(card)  # last: a card means that its network is complete
    return path


def labelled_pictures() -> list[tuple[Path, int]]:
    """Twenty ImageNet pictures and the class of each."""
    pictures = sorted(fetch(FOOLBOX).rglob("imagenet_*.jpg"))
    return [(path, int(path.stem.split("_")[-1])) for path in pictures]


def photograph(name: str) -> Path:
    """The path of one of PHOTOGRAPHS."""
    (path,) = fetch(SCIKIT_IMAGE).rglob(name)
    return path


def get(name: str) -> Path:
    """Return the path of anything that this program can get."""
    if name in NETWORKS:
        return network(name)
    if name in PHOTOGRAPHS:
        return photograph(name)
    if name in tflite_files.NETWORKS:
        return tflite_files.path(name)
    return labelled_pictures()[0][0].parent


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="+", choices=[*NETWORKS, *tflite_files.NETWORKS, "pictures", *PHOTOGRAPHS])
    try:
        for name in parser.parse_args().name:
            print(get(name))
    except FetchError as error:
        print(f"get.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
