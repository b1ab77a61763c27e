#!/usr/bin/env python3
"""The whole road for a Raspberry Pi: a trained network in, a small library and a right answer out.

    scons demo                                         EfficientNet-Lite0 on the photograph of a cat
    scons demo args="--picture dog.jpg"                and on one of yours
    scons demo args="--model mobilenetv2-dogs"         another network
    scons demo args="--model mine.onnx"                your own

It runs the two commands that build for a board, and shows them; then it runs library and compiled
network on an emulated board and compares the answer with ONNX Runtime's on this PC. A network of
your own may have a card, NAME.json, beside NAME.onnx that tells how pictures are prepared and what
its classes are called: those under build/models/ show the form. Without a card, the usual
preparation for ImageNet is tried.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # started by path: make the repository's packages importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benchmarks import ours
from benchmarks.board import ARCHS, ROOT, BoardError, board_root
from benchmarks.measure import Measured
from models import get
from models.card import Card, CardError
from models.fetch import FetchError
from models.preprocess import PictureError, best, load_picture

console = Console(highlight=False)


def choose_network(text: str) -> tuple[Path, Card]:
    """The ONNX file and the card of a network given by name or by path."""
    if text in get.NETWORKS:
        path = get.network(text)
    else:
        path = Path(text).resolve()
    return path, Card.of(path)


def usual_picture(model: str) -> Path:
    """A picture that suits a network: a cat, or a dog for the one that only knows dogs."""
    if model == "mobilenetv2-dogs":
        bull_mastiff = 243
        return next(path for path, label in get.labelled_pictures() if label == bull_mastiff)
    return get.photograph("chelsea.png")


def run_visibly(command: Sequence[str]) -> None:
    """Show a command, run it in the repository and let it print."""
    console.print(f"\n$ {shlex.join(command)}", style="bold", soft_wrap=True)
    result = subprocess.run(ours.with_python(command), cwd=ROOT, check=False)
    if result.returncode:
        raise BoardError(f"{shlex.join(command)} failed: see above")


def reference(onnx: Path, card: Card, values: np.ndarray) -> np.ndarray:
    """The probabilities that ONNX Runtime computes on this PC."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    (output,) = session.run([card.output], {card.input: values})
    return card.probabilities(np.asarray(output))


def show_classes(picture: Path, card: Card, found: np.ndarray, wanted: np.ndarray) -> None:
    """Print the five best classes, and how far they are from ONNX Runtime's."""
    table = Table(title=picture.name, title_justify="left", title_style="bold", min_width=40)
    table.add_column("class")
    table.add_column("probability", justify="right")
    for name, probability in best(found, card.labels):
        table.add_row(name, f"{100 * probability:.1f} %")
    console.print(table)
    same = [n for n, _ in best(found, card.labels)] == [n for n, _ in best(wanted, card.labels)]
    console.print(
        f"{'the same five' if same else '[red]not the five[/red]'} as ONNX Runtime's; "
        f"probabilities differ by at most {np.abs(found - wanted).max():.0e}\n"
    )


def show_figures(built: ours.Build, onnx: Path, measured: Measured) -> None:
    """Print what it takes on the board."""
    model_bytes = built.model(onnx).stat().st_size
    arena = measured.arena_bytes or 0
    table = Table(
        title="What it takes", title_justify="left", title_style="bold", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    table.add_row("library, stripped", f"{measured.library_bytes / 1000:.1f} kB")
    table.add_row("compiled network, read in place", f"{model_bytes / 1e6:.1f} MB")
    table.add_row("peak memory for activations (arena)", f"{arena / 1e6:.2f} MB")
    table.add_row(
        "peak memory of the process, emulator included", f"{measured.peak_rss_bytes / 1e6:.1f} MB"
    )
    table.add_row("instructions per inference", f"{measured.instructions / 1e6:.1f} million")
    table.add_row("time per inference, emulated", f"{measured.milliseconds:.0f} ms")
    console.print(table)
    console.print(
        f"The library is {ours.shown(built.library)}, the network {ours.shown(built.model(onnx))}."
    )


def demonstrate(
    model: str, pictures: Sequence[Path], board: str, folder: Path | None = None
) -> bool:
    """Take the whole road; return whether every answer is ONNX Runtime's."""
    arch = ARCHS[board]
    onnx, card = choose_network(model)
    console.print(f"[bold]{card.title}[/bold], from {card.source}, licence {card.licence}")
    if card.guessed:
        console.print(f"[yellow]{card.guessed}[/yellow]")
    # pictures are read first: a mistake in a name should not cost the time of a build
    prepared = [(path, load_picture(path, card.preprocessing)) for path in pictures]
    built = ours.build(board, [onnx], folder, ["--optimize-for-size"], run_visibly)
    board_root(board)
    console.print(f"\nRunning on an emulated {board} board ({arch.cpu})\n")
    good, first = True, None
    for path, values in prepared:
        with console.status(f"running {path.name} through the network"):
            names = (card.input, card.output)
            measured, output = ours.run(built, arch.cpu, onnx, values, names)
        first = first or measured
        found, wanted = card.probabilities(output), reference(onnx, card, values)
        show_classes(path, card, found, wanted)
        good = good and bool(np.abs(found - wanted).max() <= 1e-3)
    if first:
        show_figures(built, onnx, first)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        default="efficientnet-lite0",
        metavar="NAME|FILE.onnx",
        help=f"{', '.join(get.NETWORKS)}, or the path of an ONNX file",
    )
    parser.add_argument(
        "--picture", type=Path, action="append", default=[], help="one more to classify; repeatable"
    )
    parser.add_argument("--board", choices=ARCHS, default="armhf", help="armhf (default) or arm64")
    parser.add_argument("--build-dir", type=Path, metavar="DIR", help="default: build/<target>")
    options = parser.parse_args()
    folder = options.build_dir.resolve() if options.build_dir else None
    try:
        pictures = [usual_picture(options.model), *options.picture]
        good = demonstrate(options.model, pictures, options.board, folder)
    except (BoardError, CardError, FetchError, PictureError) as error:
        print(f"demo.py: {error}", file=sys.stderr)
        return 1
    if not good:
        print("demo.py: the board's answer is not ONNX Runtime's", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
