"""The packages that other engines come from."""

from __future__ import annotations

from models.fetch import Package

NCNN_VERSION = "1.0.20261020"

# by board and by the version of its Python
_NCNN = {
    ("armhf", "3.10"): "ab92478224a92d34b93fd2ac17e674d118e21b8a8fbf92a0ef3a8e59ed9381a8",
    ("armhf", "3.11"): "fa8e1d7442f7de63871c2a71ae610090cc8e18e508099edbf8327caec5a87b8d",
    ("armhf", "3.12"): "6c9453aa8252b8f09573632a2d91543036536452c23ae4fbbd2f39ef61606571",
    ("armhf", "3.13"): "408f1915fcbae67362a3d3ad0d8863c021cd775fe43c0ffb4ab418d4055e3a4c",
    ("armhf", "3.14"): "23c4b5622df20e81ef0e098fe152083760bf745ed8f5c67488c7729b7ceab1ef",
    ("arm64", "3.10"): "a45997274a3109f9e66874011db982e6cdaaaf8805d364f811c7fe0b39c2d307",
    ("arm64", "3.11"): "0503da4f3960ee2e555feef55db13adffd6c62eb59a4bd22f8083b12d1757ad8",
    ("arm64", "3.12"): "6dc5b1f38953ee91b84e4600707609feed652230d21753b7d8915f3738f9b7a8",
    ("arm64", "3.13"): "63b22234f384ff98883428f081b06f115eb40732733ce2dd02a691359239f746",
    ("arm64", "3.14"): "e48c31b57f1f9feea80d5908d11c68c834ef1e477287d1ba7b40e1b90a87eeb0",
}
_PLATFORM = {"armhf": "manylinux_2_31_armv7l", "arm64": "manylinux_2_28_aarch64"}

# Turns ONNX into ncnn's own files; a program for x86-64.
PNNX = Package(
    "pnnx",
    "20261020",
    "d50d921e5897293d616444191c1a2dc5366423c81bdb4bd22a985fe8071cf17c",
    megabytes=29,
    licence="BSD-3-Clause",
    members=("pnnx/pnnx",),
    platform="manylinux_2_17_x86_64",
)


def ncnn(board: str, python: str) -> Package | None:
    """ncnn for a board, or None if no wheel is known for its version of Python."""
    sha256 = _NCNN.get((board, python))
    if sha256 is None:
        return None
    return Package(
        "ncnn",
        NCNN_VERSION,
        sha256,
        megabytes=5 if board == "arm64" else 4,
        licence="BSD-3-Clause",
        members=("ncnn/__init__.py", "ncnn/ncnn.*.so", "ncnn.libs/*"),
        platform=_PLATFORM[board],
        python=python,
    )
