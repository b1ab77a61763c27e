"""EfficientNet-Lite0: MobileNetV2's blocks, made for edge boards; ImageNet, 224x224, 4.7 M weights.

Tan and Le, "EfficientNet" (2019), and TensorFlow's tpu repository, models/official/efficientnet/lite.
"""

from __future__ import annotations

from dataclasses import replace

from models import pth
from models.card import Card
from models.fetch import fetch
from models.imagenet import labels
from models.onnx_builder import OnnxBuilder, same_pads
from models.packages import EFFICIENTNET_LITE0
from models.preprocess import Preprocessing

SIZE = 224
EPSILON = 1e-3
STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))  # repeats, stride of the first

CARD = Card(
    name="efficientnet-lite0",
    title="EfficientNet-Lite0, 1000 ImageNet classes",
    input="input",
    output="logits",
    output_is="logits",
    preprocessing=Preprocessing(SIZE, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)),
    labels=(),
    source=EFFICIENTNET_LITE0.source,
    licence=EFFICIENTNET_LITE0.licence,
)


def build() -> tuple[bytes, Card]:
    """Return the ONNX file and its card. Batch normalisation is left as nodes of its own."""
    (path,) = fetch(EFFICIENTNET_LITE0).rglob("*.pth")
    state = pth.load(path)
    net = OnnxBuilder()

    def conv(x: str, conv_name: str, norm_name: str, size: int, stride: int = 1) -> str:
        weight = state[f"{conv_name}.weight"]
        depthwise = weight.shape[1] == 1
        pads = same_pads(size, weight.shape[2], stride)
        x = net.conv(x, conv_name, weight, stride=stride, pads=pads, depthwise=depthwise)
        parts = ("weight", "bias", "running_mean", "running_var")
        return net.batch_norm(x, norm_name, [state[f"{norm_name}.{p}"] for p in parts], EPSILON)

    size = SIZE
    x = net.relu6(conv("input", "_conv_stem", "_bn0", size, stride=2))
    size //= 2
    strides = [stride if n == 0 else 1 for repeats, stride in STAGES for n in range(repeats)]
    firsts = [n == 0 for repeats, _ in STAGES for n in range(repeats)]
    for i, (stride, first) in enumerate(zip(strides, firsts)):
        block, shortcut = f"_blocks.{i}.", x
        if f"{block}_expand_conv.weight" in state:
            x = net.relu6(conv(x, f"{block}_expand_conv", f"{block}_bn0", size))
        x = net.relu6(conv(x, f"{block}_depthwise_conv", f"{block}_bn1", size, stride))
        size //= stride
        x = conv(x, f"{block}_project_conv", f"{block}_bn2", size)
        if not first:
            x = net.node("Add", [x, shortcut], f"{block}add")
    x = net.relu6(conv(x, "_conv_head", "_bn1", size))
    head = [net.constant(f"_fc.{part}", state[f"_fc.{part}"]) for part in ("weight", "bias")]
    net.node("Gemm", [net.pooled(x), *head], "logits", transB=1)
    model = net.model(CARD.name, {"input": (1, 3, SIZE, SIZE)}, {"logits": (1, 1000)})
    return model, replace(CARD, labels=labels())
