"""Running models: Model (the bytes), Plan (how this or another machine would run them), Session (running them on arrays).

    model = ops_nn.Model("net.opsnn")
    session = model.session()
    scores = session.run(image)["scores"]

Needs numpy and cffi, nothing else.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from . import lib
from . import schema as S
from .errors import ArgumentError, FormatError, OpsNNError, ShapeError
from .lib import Candidate, Library, NodeInfo, PlanInfo, Target, TensorInfo, shape_text

if TYPE_CHECKING:  # numpy before 1.21, as on older boards, has no NDArray
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Inputs = Union[Array, Mapping[str, Array]]
Shapes = Union[Mapping[str, Sequence[int]], Sequence[Sequence[int]]]

_KIND = {"f": "f", "b": "u", "s": "i", "u": "u"}  # numpy's letters; bfloat16 travels as its bits
NUMPY: dict[str, np.dtype[Any]] = {
    name: np.dtype(np.bool_) if name == "bool" else np.dtype(f"{_KIND[name[0]]}{size}") for name, _, size in S.DTYPES
}
_KEPT = 4  # shapes for which a session keeps its executor


class Model:
    """A verified model.

    source   a path, which is mapped and read in place, or the bytes of a model
    library  the Library to use; None: the one that lib.find() finds

    FileError if it cannot be read, FormatError if it is no sound model. Immutable; may be shared between threads.
    """

    def __init__(self, source: Union[lib.PathLike, bytes, bytearray, memoryview], library: Optional[Library] = None) -> None:
        self.library = library or lib.library()
        if isinstance(source, (str, os.PathLike)):
            path = os.fspath(source)
            if path.endswith(".onnx"):
                raise FormatError(f"{path} is an ONNX model; compile it first: ops-nn compile {path} -o {path[:-5]}.opsnn")
            self._handle = self.library.model_open(path)
            self.name = path
        else:
            # What may change after it was verified is copied.
            self._handle = self.library.model_open_memory(source if isinstance(source, bytes) else bytes(source))
            self.name = "<bytes>"

    def __repr__(self) -> str:
        outputs = ", ".join(f"{o.name}: {o.dtype}" for o in self.outputs)
        return f"<ops_nn.Model {self.name}: {', '.join(map(str, self.inputs))} -> {outputs}>"

    @property
    def inputs(self) -> list[TensorInfo]:
        """Names, types and shapes of the inputs; open dimensions are -1."""
        return self.library.model_inputs(self._handle)

    @property
    def outputs(self) -> list[TensorInfo]:
        """Names and types of the outputs; shapes are known to plans."""
        return self.library.model_outputs(self._handle)

    @property
    def n_nodes(self) -> int:
        return self.library.model_n_nodes(self._handle)

    def meta(self, key: str) -> Optional[str]:
        """What the model says about itself under a key ("producer", "source", ...), or None."""
        return self.library.model_meta(self._handle, key)

    def check_hash(self) -> None:
        """FormatError if the model's bytes are not those that were written: opening does not read all of them."""
        self.library.model_check_hash(self._handle)

    def plan(
        self, shapes: Optional[Shapes] = None, target: Optional[Target] = None, reference: bool = False, pack: bool = True
    ) -> Plan:
        """How a machine would run this model.

        shapes     of the inputs, by name or in order; None: as the model declares them
        target     the machine; None: this one
        reference  use the portable reference kernels only
        pack       False: for looking at only, weights are not prepared for running
        """
        return Plan(self, shapes, target, reference, pack)

    def session(
        self, threads: int = 0, shapes: Optional[Shapes] = None, target: Optional[Target] = None, reference: bool = False
    ) -> Session:
        """A Session for running this model.

        threads    that work together, the caller counted; 0: the big cores of this machine
        shapes     of the inputs, by name or in order, planned for at once; None: as the model declares them, or as the first
                   arrays come where it leaves them open
        target     choose kernels as for this machine, which must be able to run them
        reference  use the portable reference kernels only
        """
        return Session(self, threads, shapes, target, reference)

    def _shapes(self, shapes: Optional[Shapes]) -> Optional[list[lib.Dims]]:
        """shapes in the inputs' order."""
        if shapes is None:
            return None
        infos = self.inputs
        names = [info.name for info in infos]
        if isinstance(shapes, Mapping):
            _check_names("shape", shapes, names)
            return [tuple(int(d) for d in shapes[name]) if name in shapes else info.dims for name, info in zip(names, infos)]
        if len(shapes) != len(names) or any(not isinstance(s, Sequence) for s in shapes):
            raise ArgumentError(f"shapes must be a dict, or one shape for each of the inputs {', '.join(names)}")
        return [tuple(int(d) for d in shape) for shape in shapes]


class Plan:
    """How a machine runs a model with inputs of certain shapes. Immutable; may be shared between threads."""

    def __init__(
        self, model: Model, shapes: Optional[Shapes], target: Optional[Target], reference: bool, pack: bool = True
    ) -> None:
        flags = (lib.PLAN_REF if reference else 0) | (0 if pack else lib.PLAN_NO_PACK)
        self._library = model.library
        self._handle = self._library.plan_create(model._handle, target, model._shapes(shapes), flags)
        #: sizes, work and predicted time
        self.info: PlanInfo = self._library.plan_info(self._handle)
        self.inputs: list[TensorInfo] = self._library.plan_inputs(self._handle)
        self.outputs: list[TensorInfo] = self._library.plan_outputs(self._handle)

    @property
    def nodes(self) -> list[NodeInfo]:
        """The nodes in execution order, with the kernels chosen."""
        return self._library.plan_nodes(self._handle)

    def candidates(self, node: int) -> list[Candidate]:
        """Every kernel considered for the node of that index."""
        return self._library.plan_candidates(self._handle, node)


class _Executor:
    """A plan's executor and its buffers as arrays."""

    def __init__(self, plan: Plan, pool: Optional[lib.Handle], measured: bool) -> None:
        library = plan._library
        self.plan = plan
        self.handle = library.exec_create(plan._handle, pool)
        self.inputs = [_array(t, library.exec_input(self.handle, i, t.nbytes)) for i, t in enumerate(plan.inputs)]
        self.outputs = [_array(t, library.exec_output(self.handle, i, t.nbytes)) for i, t in enumerate(plan.outputs)]
        self.times = library.exec_times(self.handle, plan.info.n_nodes) if measured else None


class Session:
    """Runs a model. Threads may share it: their runs take turns. Made by Model.session.

    measured  True: `times` tells how long each node took in the last run
    """

    def __init__(
        self,
        model: Model,
        threads: int = 0,
        shapes: Optional[Shapes] = None,
        target: Optional[Target] = None,
        reference: bool = False,
        measured: bool = False,
    ) -> None:
        if threads < 0:
            raise ArgumentError(f"{threads} threads are too few: 0 stands for the big cores of this machine")
        self.model = model
        self._how = (target, reference)
        self._measured = measured
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._pool = None if threads == 1 else model.library.pool_create(threads)
        self._declared = {info.name: info for info in model.inputs}
        self._executors: OrderedDict[tuple[lib.Dims, ...], _Executor] = OrderedDict()
        wanted = model._shapes(shapes) or [info.dims for info in self._declared.values()]
        if all(d >= 0 for dims in wanted for d in dims):
            self._executor(tuple(wanted))

    @property
    def plan(self) -> Optional[Plan]:
        """The plan of the last run, or the one that was made first; None before the first run where shapes are open."""
        return next(reversed(self._executors.values())).plan if self._executors else None

    @property
    def times(self) -> list[float]:
        """Nanoseconds that each node took in the last run; empty unless measured."""
        executor = next(reversed(self._executors.values()), None)
        if executor is None or executor.times is None:
            return []
        return list(executor.times)[: executor.plan.info.n_nodes]

    def run(self, inputs: Inputs, copy: bool = True) -> dict[str, Array]:
        """Outputs by name.

        inputs  arrays by name, or the one array of a model with one input; of the input's type, in any byte and memory order
        copy    False: the results are views of the session's memory, which the next run overwrites

        ArgumentError names inputs that are missing or unknown, ShapeError arrays of a wrong type or shape. Where the model
        leaves dimensions open, new shapes are planned for, and the last few plans are kept.
        """
        arrays = self._arrays(inputs)
        if self._pool is not None and os.getpid() != self._process:
            raise OpsNNError("this session's threads stayed behind in another process: make the session after the fork")
        with self._lock:
            executor = self._executor(tuple(array.shape for array in arrays))
            for to, array in zip(executor.inputs, arrays):
                np.copyto(to, array)
            self.model.library.exec_run(executor.handle)
            names = (info.name for info in executor.plan.outputs)
            return {name: array.copy() if copy else array for name, array in zip(names, executor.outputs)}

    def _arrays(self, inputs: Inputs) -> list[Array]:
        """The arrays in the inputs' order, checked against what the model declares."""
        declared = self._declared
        if not isinstance(inputs, Mapping):
            if len(declared) != 1:
                raise ArgumentError(f"the model has {len(declared)} inputs: give a dict of arrays for {', '.join(declared)}")
            inputs = {next(iter(declared)): inputs}
        _check_names("array", inputs, list(declared))
        missing = [name for name in declared if name not in inputs]
        if missing:
            raise ArgumentError(f"no array for input '{missing[0]}'; the model's inputs are {', '.join(declared)}")
        return [_checked(info, np.asarray(inputs[name])) for name, info in declared.items()]

    def _executor(self, shapes: tuple[lib.Dims, ...]) -> _Executor:
        """The executor for inputs of these shapes, the last one used being the last of those kept."""
        executor = self._executors.pop(shapes, None)
        if executor is None:
            executor = _Executor(Plan(self.model, shapes, *self._how), self._pool, self._measured)
            while len(self._executors) >= _KEPT:
                self._executors.popitem(last=False)
        self._executors[shapes] = executor
        return executor


def _check_names(what: str, given: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            raise ArgumentError(f"{what} for '{name}': the model has no such input; its inputs are {', '.join(names)}")


def _checked(info: TensorInfo, array: Array) -> Array:
    wanted = NUMPY[info.dtype]
    if array.dtype.newbyteorder("=") != wanted:
        raise ShapeError(
            f"input '{info.name}' wants {info.dtype}, not {array.dtype}: convert the array with .astype('{wanted}')"
        )
    fits = len(array.shape) == len(info.dims) and all(d in (-1, n) for d, n in zip(info.dims, array.shape))
    if not fits:
        raise ShapeError(f"input '{info.name}' wants the shape {shape_text(info.dims) or 'of a scalar'}, not {_shape(array)}")
    return array


def _shape(array: Array) -> str:
    return shape_text(array.shape) or "a scalar's"


def _array(info: TensorInfo, buffer: Any) -> Array:
    """A tensor's memory as an array; it keeps its executor alive."""
    if info.nbytes == 0:
        return np.empty(info.dims, NUMPY[info.dtype])
    return np.frombuffer(buffer, NUMPY[info.dtype]).reshape(info.dims)
