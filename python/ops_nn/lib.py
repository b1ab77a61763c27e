"""The shared library: finding it, checking that it fits, and one method for each of its functions.

Nothing else in this package uses cffi. Methods are named like the C functions of ops_nn.h without their prefix; where C returns
a status, they raise the exception of errors.py that stands for it, with the library's own text. Objects of the library are
`Handle`s: opaque, freed when nobody holds them any more, in any order.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Optional, Union

from . import elf, errors
from . import schema as S
from .errors import ArgumentError, LibraryError

PathLike = Union[str, "os.PathLike[str]"]
Dims = tuple[int, ...]

ENVIRONMENT = "OPS_NN_LIB"
FILE_NAME = "libops_nn.so"
INFO_SECTION = ".opsnn_info"
PLAN_REF, PLAN_NO_REUSE, PLAN_NO_PACK = 1, 2, 4  # OPSNN_PLAN_*
_ARCHS = ("any", "arm", "aarch64", "x86_64")  # opsnn_arch
_DTYPE_NAME = {id: name for name, id in S.DTYPE_ID.items()}
_ABSENT = 0xFFFFFFFF  # the rank of an optional input that is not given
_NODELETE = getattr(os, "RTLD_NODELETE", 0)  # objects may outlive the Library: its code stays until the process ends
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Target:
    """A machine that a plan can be made for.

    name          for messages
    arch          any, arm, aarch64 or x86_64
    features      of its CPU: names of schema.CPU_FEATURES
    n_threads     cores that work together
    gflops        float32 peak of one core, 1e9 operations a second (a multiply-add counts two)
    gbytes_per_s  memory bandwidth
    """

    name: str
    arch: str
    features: tuple[str, ...] = ()
    n_threads: int = 1
    gflops: float = 1.0
    gbytes_per_s: float = 1.0

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Target:
        """A target from what JSON holds; ArgumentError names a field that is missing, unknown or wrong."""
        fields = dict(given)
        unknown = sorted(set(fields) - set(cls.__dataclass_fields__))
        missing = sorted({"name", "arch"} - set(fields))
        if unknown or missing:
            what = f"unknown field '{unknown[0]}'" if unknown else f"no field '{missing[0]}'"
            raise ArgumentError(f"target: {what}; a target has {', '.join(cls.__dataclass_fields__)}")
        try:
            target = cls(**fields)
            target = replace(target, name=str(target.name), features=tuple(target.features), n_threads=int(target.n_threads),
                             gflops=float(target.gflops), gbytes_per_s=float(target.gbytes_per_s))  # fmt: skip
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"target '{fields['name']}': {error}") from None
        if target.arch not in _ARCHS:
            raise ArgumentError(f"target '{target.name}': arch '{target.arch}' is none of {', '.join(_ARCHS)}")
        for feature in target.features:
            if feature not in S.CPU_FEATURES:
                raise ArgumentError(f"target '{target.name}': CPU feature '{feature}' is none of {', '.join(S.CPU_FEATURES)}")
        if target.n_threads < 1 or not target.gflops > 0 or not target.gbytes_per_s > 0:
            raise ArgumentError(f"target '{target.name}': n_threads, gflops and gbytes_per_s must be above zero")
        return target

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "features": list(self.features)}


@dataclass(frozen=True)
class TensorInfo:
    """An input or output as seen from outside. A dimension of -1 is open; nbytes is 0 while one is."""

    name: str
    dtype: str
    dims: Dims
    nbytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{shape_text(self.dims)}]"


@dataclass(frozen=True)
class PlanInfo:
    """What a plan costs.

    n_tasks_max    parts of the widest node: more threads than this are of no use
    arena_bytes    activations, inputs and outputs included
    scratch_bytes  per thread
    packed_bytes   weights that kernels want in another form than the model's
    const_bytes    weights read in place
    macs           multiply-adds of one run
    moved_bytes    bytes read and written by one run, weights included
    predicted_ns   of one run with the target's threads
    """

    n_nodes: int
    n_inputs: int
    n_outputs: int
    n_tasks_max: int
    arena_bytes: int
    scratch_bytes: int
    packed_bytes: int
    const_bytes: int
    macs: int
    moved_bytes: int
    predicted_ns: float


@dataclass(frozen=True)
class Candidate:
    """A kernel that was considered for a node: chosen, able but predicted slower, or excluded by the rule `why`."""

    kernel: str
    why: Optional[str]
    predicted_ns: float
    chosen: bool


@dataclass(frozen=True)
class NodeInfo:
    """A node of a plan. kernel is "view" where nothing is computed; tail_kernels do the fused steps."""

    name: str
    op: str
    kernel: str
    n_inputs: int
    n_outputs: int
    n_tasks: int
    macs: int
    moved_bytes: int
    predicted_ns: float
    tail_kernels: tuple[str, ...]


class Handle:
    """An object of the library. What it needs is kept alive for as long as it lives itself: by the library for its own objects,
    here for memory that was lent to it."""

    __slots__ = ("c", "lent")

    def __init__(self, c: Any, lent: tuple[Any, ...]) -> None:
        self.c = c
        self.lent = lent


class _Free:
    """Frees a C object; holds what was lent to it until that is done."""

    __slots__ = ("free", "lent")

    def __init__(self, free: Any, lent: tuple[Any, ...]) -> None:
        self.free = free
        self.lent = lent

    def __call__(self, c: Any) -> None:
        self.free(c)


def shape_text(dims: Sequence[Any]) -> str:
    return "x".join("?" if d in (-1, None) else str(d) for d in dims)


def op_of(kernel: str) -> str:
    """The operator that a kernel's name begins with: the longest, since names contain underscores."""
    return max((op for op in S.BY_NAME if kernel.startswith(op + "_")), key=len, default="")


# --- finding ---------------------------------------------------------------------------------------------------------------


def find() -> Path:
    """The library's file: the one $OPS_NN_LIB names; else the one beside this package, as in a wheel; else, in a source tree,
    the one in build/host; else the one in the build that was configured last, which build/current names."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        if not Path(named).exists():
            raise LibraryError(f"${ENVIRONMENT} names {named}, which does not exist")
        return Path(named)
    places = [_PACKAGE / FILE_NAME]
    build = _PACKAGE.parent.parent / "build"
    if build.is_dir():
        places.append(build / "host" / FILE_NAME)
        current = build / "current"
        if current.is_file():
            places.append(build / current.read_text().strip() / FILE_NAME)
    for place in places:
        if place.exists():
            return place
    raise LibraryError(
        f"there is no {FILE_NAME} in {', '.join(str(p.parent) for p in places)}: install the wheel of this platform, "
        f"build it with ./configure.py && scons, or name it in ${ENVIRONMENT}"
    )


def library(path: Optional[PathLike] = None) -> Library:
    """The library at path, or the one that find() finds; loaded once."""
    return _loaded(os.path.realpath(find() if path is None else path))


@functools.cache
def _loaded(path: str) -> Library:
    return Library(path)


def read_build_info(path: PathLike) -> dict[str, Any]:
    """What a library of any architecture says about its build (opsnn_build_info), read from its file without loading it."""
    text = elf.Elf(path).section(INFO_SECTION)
    if text is None:
        raise LibraryError(f"{os.fspath(path)} is no ops-nn library: it has no section {INFO_SECTION}")
    try:
        info = json.loads(text.split(b"\0")[0])
    except ValueError:
        info = None
    if not isinstance(info, dict):
        raise LibraryError(f"{os.fspath(path)} is damaged: its section {INFO_SECTION} holds no JSON object")
    return info


def _load_abi(path: Path) -> Any:
    """The cffi declarations that were built with a library: beside it, in its build directory, or in this package."""
    build, above = path.parent, path.parent.parent  # build/<target>/stripped/ lies one level deeper
    for place in (build / "_abi.py", *(p / "python/ops_nn/_abi.py" for p in (build, above)), _PACKAGE / "_abi.py"):
        if place.exists():
            spec = importlib.util.spec_from_file_location("ops_nn._abi", place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except ImportError as error:
                raise LibraryError(f"cffi is needed (pip install cffi, or apt install python3-cffi): {error}") from None
            return module.ffi
    raise LibraryError(f"{path} has no _abi.py beside it: take the library from a wheel or a build directory as a whole")


def _explain_dlopen(path: Path, text: str) -> str:
    """dlopen's complaint in words that say what to do."""
    glibc = re.search(r"version `GLIBC_([\d.]+)' not found", text)
    if glibc:
        try:
            here = (os.confstr("CS_GNU_LIBC_VERSION") or "another C library").replace("glibc ", "")
        except (ValueError, OSError):
            here = "another C library"
        return (
            f"{path} needs glibc {glibc[1]} and this system has {here}: build it with a zig toolchain "
            "(configure.py --toolchain=zig), which needs no more than glibc 2.28, or on a system as old as this one"
        )
    text = text.split(f"'{path}': ")[-1].removeprefix(f"{path}: ")
    return f"{path} cannot be loaded: {text}"


# --- the library -----------------------------------------------------------------------------------------------------------


class Library:
    """A loaded library. LibraryError if it is for another machine, cannot be loaded, or does not fit this package.

    path: its file. version: (major, minor, patch).
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        file = elf.Elf(self.path)
        here = elf.this_machine()
        reason = elf.misfit(file.machine, here) if here else None
        if reason is None and not file.shared:
            reason = "it is an object file or a program, not a shared library"
        if reason:
            raise LibraryError(f"{self.path} cannot be loaded: {reason}")
        self._check_level()
        self.ffi = _load_abi(self.path)
        try:
            self._c = self.ffi.dlopen(str(self.path.resolve()), self.ffi.RTLD_NOW | _NODELETE)
        except OSError as error:
            raise LibraryError(_explain_dlopen(self.path.resolve(), str(error))) from None
        self.version = self._shake_hands()

    def _check_level(self) -> None:
        """32-bit ARM: code for a newer architecture than the CPU's would end in an illegal instruction at the first call."""
        have = re.match(r"armv(\d)", os.uname().machine)
        if not have:
            return
        need = re.match(r"v(\d)", str(read_build_info(self.path).get("elf", "")))
        if need and int(need[1]) > int(have[1]):
            raise LibraryError(
                f"{self.path} is built for ARMv{need[1]} and this CPU is an ARMv{have[1]}: "
                "build it for this board, for example with configure.py --board=raspberrypi-zero"
            )

    def _shake_hands(self) -> tuple[int, int, int]:
        """Library and package must agree on version, schema and the sizes of structs."""
        try:
            abi = self._c.opsnn_abi_info()
        except (AttributeError, self.ffi.error):
            raise LibraryError(f"{self.path} is no ops-nn library: it has no function opsnn_abi_info") from None
        version = (abi.version >> 16, abi.version >> 8 & 255, abi.version & 255)
        theirs = ".".join(map(str, version))
        rebuild = "; rebuild it (scons), or install package and library of the same release"
        if theirs.split(".")[:2] != S.VERSION.split(".")[:2]:
            raise LibraryError(f"{self.path} is version {theirs} and the Python package {S.VERSION}{rebuild}")
        if abi.schema != S.fingerprint():
            raise LibraryError(
                f"{self.path} knows other operators (schema {abi.schema:#018x}) than the Python package "
                f"(schema {S.fingerprint():#018x}){rebuild}"
            )
        structs = ["error", "tensor_info", "target", "plan_info", "node_info", "candidate"]
        ours = [self.ffi.sizeof(f"opsnn_{name}") for name in structs]
        ours.append(max(self.ffi.sizeof(f"opsnn_{op.name}_params") for op in S.OPS if op.attrs))
        sizes = list(abi.sizes[0 : min(abi.n_sizes, len(abi.sizes))])
        if sizes != ours:
            raise LibraryError(f"{self.path} has structs of {sizes} bytes and its _abi.py {ours}{rebuild}")
        return version

    # --- plumbing ---

    def _text(self, c: Any) -> str:
        return str(self.ffi.string(c).decode("utf-8", "replace")) if c != self.ffi.NULL else ""

    def _check(self, status: int, error: Any) -> None:
        if status:
            text = self._text(error.text) or self.status_name(status)
            exception = errors.BY_STATUS.get(status, errors.OpsNNError)(text)
            exception.node = error.node if error.node >= 0 else None
            raise exception

    def _create(self, create: str, kind: str, *arguments: Any, lent: tuple[Any, ...] = ()) -> Handle:
        """Calls a function whose last arguments are an object to make and an error."""
        made, error = self.ffi.new(f"opsnn_{kind} **"), self.ffi.new("opsnn_error *")
        self._check(getattr(self._c, f"opsnn_{create}")(*arguments, made, error), error)
        free = getattr(self._c, f"opsnn_{kind}_free")
        return Handle(self.ffi.gc(made[0], _Free(free, lent)), lent)

    def _tensor(self, function: str, handle: Handle, index: int) -> TensorInfo:
        info = self.ffi.new("opsnn_tensor_info *")
        status = getattr(self._c, f"opsnn_{function}")(handle.c, index, info)
        if status:
            raise ArgumentError(f"opsnn_{function}: there is no index {index} ({self.status_name(status)})")
        dtype = _DTYPE_NAME.get(info.dtype, f"dtype {info.dtype}")
        return TensorInfo(self._text(info.name), dtype, tuple(info.dims[0 : info.rank]), info.bytes)

    def _target(self, target: Optional[Target]) -> Any:
        if target is None:
            return self.ffi.NULL
        mask = sum(1 << S.CPU_FEATURES.index(f) for f in set(target.features))
        arch = _ARCHS.index(target.arch)
        fields = [target.name.encode()[:31], arch, mask, target.n_threads, target.gflops, target.gbytes_per_s]
        return self.ffi.new("opsnn_target *", fields)

    # --- library ---

    def status_name(self, status: int) -> str:
        return self._text(self._c.opsnn_status_name(status))

    def build_info(self) -> dict[str, Any]:
        """Version, target, flags, operators, kernels, and how the library was configured."""
        info = json.loads(self._text(self._c.opsnn_build_info()))
        assert isinstance(info, dict)
        return info

    def kernels(self) -> list[str]:
        """Names of the kernels inside."""
        names: list[str] = []
        while True:
            name = self._c.opsnn_kernel_name(len(names))
            if name == self.ffi.NULL:
                return names
            names.append(self._text(name))

    def target_detect(self) -> Target:
        """The machine this runs on."""
        target, error = self.ffi.new("opsnn_target *"), self.ffi.new("opsnn_error *")
        self._check(self._c.opsnn_target_detect(target, error), error)
        cpu = tuple(f for i, f in enumerate(S.CPU_FEATURES) if target.cpu >> i & 1)
        return Target(self._text(target.name), _ARCHS[target.arch], cpu, target.n_threads, target.gflops, target.gbytes_per_s)

    def memory_usage(self, reset_peak: bool = False) -> tuple[int, int]:
        """Bytes that the library has now, and the most it has had."""
        now, peak = self.ffi.new("uint64_t *"), self.ffi.new("uint64_t *")
        self._c.opsnn_memory_usage(now, peak, int(reset_peak))
        return now[0], peak[0]

    def infer(
        self, op: str, layout: str, attrs: Mapping[str, Any], inputs: Sequence[Optional[tuple[str, Dims]]]
    ) -> list[tuple[str, Dims]]:
        """Type and shape of a node's outputs, by the rules that plans use. Inputs are (dtype, dims), None where an optional one
        is not given. ShapeError says what does not fit."""
        from .modelfile import pack_params

        try:
            params = pack_params(op, attrs)
        except ValueError as problem:
            raise errors.ShapeError(str(problem)) from None
        infos = self.ffi.new("opsnn_tensor_info[]", max(1, len(inputs)))
        for info, given in zip(infos, inputs):
            if given is None:
                info.rank = _ABSENT
            else:
                self._fill(info, given[1])
                info.dtype = S.DTYPE_ID[given[0]]
        n_outputs = len(S.BY_NAME[op].outputs)
        outputs, error = self.ffi.new("opsnn_tensor_info[]", n_outputs), self.ffi.new("opsnn_error *")
        # Parameters are given as the struct that they are, so that they lie at its alignment.
        c_params = self.ffi.new("uint64_t[]", len(params) // 8 + 1)
        self.ffi.memmove(c_params, params, len(params))
        status = self._c.opsnn_infer(
            S.BY_NAME[op].id, S.LAYOUT_ID[layout], c_params, len(params), infos, len(inputs), outputs, n_outputs, error
        )
        self._check(status, error)
        return [(_DTYPE_NAME[o.dtype], tuple(o.dims[0 : o.rank])) for o in outputs]

    def _fill(self, info: Any, dims: Dims) -> None:
        if len(dims) > S.MAX_RANK or any(not -(2**31) <= d < 2**31 for d in dims):
            raise errors.ShapeError(f"{shape_text(dims)} is no shape: it may have {S.MAX_RANK} dimensions, each below 2**31")
        info.rank = len(dims)
        info.dims[0 : len(dims)] = list(dims)

    # --- models ---

    def model_open(self, path: PathLike) -> Handle:
        return self._create("model_open", "model", os.fsencode(path))

    def model_open_memory(self, data: bytes) -> Handle:
        """The bytes are used in place and kept. What may change (a bytearray) must be copied before: it is verified once."""
        view = self.ffi.from_buffer(data)
        return self._create("model_open_memory", "model", view, len(data), lent=(view,))

    def model_inputs(self, model: Handle) -> list[TensorInfo]:
        return [self._tensor("model_input", model, i) for i in range(self._c.opsnn_model_n_inputs(model.c))]

    def model_outputs(self, model: Handle) -> list[TensorInfo]:
        return [self._tensor("model_output", model, i) for i in range(self._c.opsnn_model_n_outputs(model.c))]

    def model_n_nodes(self, model: Handle) -> int:
        return int(self._c.opsnn_model_n_nodes(model.c))

    def model_meta(self, model: Handle, key: str) -> Optional[str]:
        value = self._c.opsnn_model_meta(model.c, key.encode())
        return None if value == self.ffi.NULL else self._text(value)

    def model_check_hash(self, model: Handle) -> None:
        error = self.ffi.new("opsnn_error *")
        self._check(self._c.opsnn_model_check_hash(model.c, error), error)

    # --- plans ---

    def plan_create(
        self, model: Handle, target: Optional[Target] = None, shapes: Optional[Sequence[Dims]] = None, flags: int = 0
    ) -> Handle:
        """shapes: one for each input of the model, in order; None: those that the model declares."""
        infos = self.ffi.NULL
        if shapes is not None:
            n = self._c.opsnn_model_n_inputs(model.c)
            if len(shapes) != n:
                raise ArgumentError(f"{len(shapes)} shapes given for {n} inputs")
            infos = self.ffi.new("opsnn_tensor_info[]", max(1, n))
            for info, dims in zip(infos, shapes):
                self._fill(info, dims)
        return self._create("plan_create", "plan", model.c, self._target(target), infos, flags, lent=model.lent)

    def plan_info(self, plan: Handle) -> PlanInfo:
        info = self.ffi.new("opsnn_plan_info *")
        self._c.opsnn_plan_get_info(plan.c, info)
        return PlanInfo(*(getattr(info, f) for f in PlanInfo.__dataclass_fields__))

    def plan_inputs(self, plan: Handle) -> list[TensorInfo]:
        return [self._tensor("plan_input", plan, i) for i in range(self.plan_info(plan).n_inputs)]

    def plan_outputs(self, plan: Handle) -> list[TensorInfo]:
        return [self._tensor("plan_output", plan, i) for i in range(self.plan_info(plan).n_outputs)]

    def plan_nodes(self, plan: Handle) -> list[NodeInfo]:
        return [self._node(plan, i) for i in range(self.plan_info(plan).n_nodes)]

    def _node(self, plan: Handle, index: int) -> NodeInfo:
        info = self.ffi.new("opsnn_node_info *")
        if self._c.opsnn_plan_node(plan.c, index, info):
            raise ArgumentError(f"opsnn_plan_node: there is no node {index}")
        tail = tuple(self._text(k) for k in info.tail_kernels if k != self.ffi.NULL)
        name, op, kernel = (self._text(getattr(info, f)) for f in ("name", "op", "kernel"))
        numbers = (info.n_inputs, info.n_outputs, info.n_tasks, info.macs, info.moved_bytes, info.predicted_ns)
        return NodeInfo(name, op, kernel, *numbers, tail)

    def plan_candidates(self, plan: Handle, node: int) -> list[Candidate]:
        """Every kernel that was considered for a node, in the library's order; none for a view."""
        n = self._c.opsnn_plan_candidates(plan.c, node, self.ffi.NULL, 0)
        found = self.ffi.new("opsnn_candidate[]", max(1, n))
        n = min(n, self._c.opsnn_plan_candidates(plan.c, node, found, n))
        return [Candidate(self._text(c.kernel), self._text(c.why) or None, c.predicted_ns, bool(c.chosen)) for c in found[0:n]]

    # --- running ---

    def pool_create(self, n_threads: int) -> Handle:
        return self._create("pool_create", "pool", n_threads)

    def exec_create(self, plan: Handle, pool: Optional[Handle] = None) -> Handle:
        no_arena = (self.ffi.NULL, 0)
        return self._create("exec_create", "exec", plan.c, pool.c if pool else self.ffi.NULL, *no_arena, lent=plan.lent)

    def exec_input(self, executor: Handle, index: int, nbytes: int) -> Any:
        """The writable buffer of an input; it keeps the executor alive."""
        return self._buffer(executor, self._c.opsnn_exec_input(executor.c, index), index, nbytes)

    def exec_output(self, executor: Handle, index: int, nbytes: int) -> Any:
        """The buffer of an output; it keeps the executor alive, and each run overwrites it."""
        return self._buffer(executor, self.ffi.cast("void *", self._c.opsnn_exec_output(executor.c, index)), index, nbytes)

    def _buffer(self, executor: Handle, place: Any, index: int, nbytes: int) -> Any:
        if place == self.ffi.NULL:
            if nbytes == 0:
                return b""
            raise ArgumentError(f"the executor has no tensor {index}")
        # A pointer whose "destructor" holds the executor: the buffer holds the pointer.
        return self.ffi.buffer(self.ffi.gc(place, _Free(_nothing, (executor,))), nbytes)

    def exec_run(self, executor: Handle) -> None:
        """One run; other Python threads go on meanwhile."""
        error = self.ffi.new("opsnn_error *")
        self._check(self._c.opsnn_exec_run(executor.c, error), error)

    def exec_times(self, executor: Handle, n_nodes: int) -> Any:
        """Starts measuring: each run writes the nanoseconds of every node into the sequence that is returned. It must be kept
        for as long as the executor runs."""
        times = self.ffi.new("double[]", max(1, n_nodes))
        self._c.opsnn_exec_set_times(executor.c, times)
        return times


def _nothing(_: Any) -> None:
    pass
