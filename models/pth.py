"""Read the weights in a PyTorch `.pth` file without PyTorch, and without running what is in it.

Both the zip format (PyTorch 1.6 and newer) and the older plain one are pickles that refer to
separately stored numbers. Only the few names that a state dictionary needs may be unpickled; any
other is refused, since unpickling it could run code.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_STORAGES = {
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "DoubleStorage": np.float64,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


@dataclass(frozen=True)
class _StorageType:
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage; offset and strides count elements."""

    storage: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, storages: dict[str, tuple[np.dtype[Any], int]]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _StorageType(np.dtype(_STORAGES[name]))
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
        }
        if (module, name) in allowed:
            return allowed[module, name]
        raise pickle.UnpicklingError(
            f"the file refers to {module}.{name}, which is no part of a state dictionary"
        )

    def persistent_load(self, pid: Any) -> str:
        _, storage_type, key, _, count = pid[:5]
        self._storages[key] = (storage_type.dtype, count)
        return str(key)


def _rebuild_tensor(
    storage: str, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> _Tensor:
    return _Tensor(storage, offset, size, stride)


def load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a state dictionary by name.

    Raises pickle.UnpicklingError for a file that holds anything else.
    """
    data = path.read_bytes()
    storages: dict[str, tuple[np.dtype[Any], int]] = {}
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            pickled = next(n for n in archive.namelist() if n.endswith("data.pkl"))
            state = _Unpickler(io.BytesIO(archive.read(pickled)), storages).load()
            folder = pickled[: -len("data.pkl")] + "data/"
            content = {key: archive.read(folder + key) for key in storages}
    else:
        file = io.BytesIO(data)
        for _ in range(3):  # magic number, protocol version, sizes of C types
            _Unpickler(file, storages).load()
        state = _Unpickler(file, storages).load()
        content = {}
        for key in _Unpickler(file, storages).load():
            (count,) = struct.unpack("<q", file.read(8))
            content[key] = file.read(count * storages[key][0].itemsize)
    if not isinstance(state, dict):
        raise pickle.UnpicklingError(f"{path} holds a {type(state).__name__}, no state dictionary")
    return {
        name: _view(value, np.frombuffer(content[value.storage], storages[value.storage][0]))
        for name, value in state.items()
        if isinstance(value, _Tensor)
    }


def _view(tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.size, tensor.stride))
    if min((tensor.offset, *tensor.stride, *tensor.size)) < 0 or last >= storage.size:
        raise pickle.UnpicklingError("a tensor reaches beyond the numbers that the file holds")
    strides = [stride * storage.itemsize for stride in tensor.stride]
    start = storage[tensor.offset :]
    view = np.lib.stride_tricks.as_strided(start, tensor.size, strides, writeable=False)
    return np.array(view)
