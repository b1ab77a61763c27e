#!/usr/bin/env python3
"""Generates what C and cffi need from schema.py and the list of kernels: pure functions from data to text.

    gen.py --out DIR [--kernels "STEM ..."] [--ops all|"OP ..."] [--build-info FILE]

writes opsnn_ops.h (enums and parameter structs), opsnn_table.c (operators and their kernels) and opsnn_cdef.txt (the text that
cffi reads). A file is only touched when its content changes, so that nothing is rebuilt for nothing.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import schema as S

GRAMMAR = "<op>_<dtype>_<layout>[_<algo>]_<isa>.c"
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Kernel:
    """What a kernel's file name says."""

    stem: str
    op: str
    dtype: str
    layout: str
    algo: str
    isa: str


def parse_kernel(stem: str) -> Kernel:
    """Reads a kernel's file stem; ValueError names the part that does not fit the grammar."""
    dtypes = [*(d[0] for d in S.DTYPES), "any"]
    layouts = [name for name, _ in S.LAYOUTS]
    isas = [name for name, _, _ in S.ISAS]
    # Operators' names contain underscores: the longest that fits is meant.
    op = max((o for o in S.BY_NAME if stem.startswith(o + "_")), key=len, default="")
    if not op:
        raise ValueError(f"kernel file '{stem}.c' starts with no operator of schema.py; kernels are named {GRAMMAR}")
    parts = stem[len(op) + 1 :].split("_")
    checks = (("dtype", parts[:1], dtypes), ("layout", parts[1:2], layouts), ("isa", parts[2:][-1:], isas))
    for what, part, allowed in checks:
        if not part or part[0] not in allowed:
            found = part[0] if part else "nothing"
            known = ", ".join(allowed)
            raise ValueError(f"kernel file '{stem}.c': {found} is no {what} ({known}); kernels are named {GRAMMAR}")
    return Kernel(stem, op, parts[0], parts[1], "_".join(parts[2:-1]), parts[-1])


def rule_files(ops: Iterable[str]) -> list[str]:
    """Stems of the files in src/ops/ that these operators need, sorted."""
    return sorted({S.BY_NAME[op].rule for op in ops})


def c_name(*parts: str) -> str:
    return "OPSNN_" + "_".join(parts).upper()


def _enum(name: str, members: Iterable[tuple[str, int]]) -> str:
    body = ",\n".join(f"    {c_name(member)} = {value}" for member, value in members)
    return f"typedef enum opsnn_{name} {{\n{body}\n}} opsnn_{name};\n"


def attr_fields(attr: S.Attr) -> list[tuple[str, str, int]]:
    """C fields of an attribute: (type, name, elements; 0 for a scalar). All are four bytes wide: no padding anywhere."""
    if attr.type == "i32[]":
        return [("int32_t", f"n_{attr.name}", 0), ("int32_t", attr.name, S.LIST_CAPACITY)]
    array = re.fullmatch(r"i32\[(\d+)]", attr.type)
    if array:
        return [("int32_t", attr.name, int(array[1]))]
    return [("float" if attr.type == "f32" else "int32_t", attr.name, 0)]


def params_bytes(op: S.Op) -> int:
    return sum(4 * max(1, n) for attr in op.attrs for _, _, n in attr_fields(attr))


def _params(op: S.Op) -> str:
    if not op.attrs:
        return ""
    lines = []
    for attr in op.attrs:
        for ctype, name, n in attr_fields(attr):
            lines.append(f"    {ctype} {name}{f'[{n}]' if n else ''}; /* {attr.doc} */\n")
    return f"typedef struct opsnn_{op.name}_params {{\n{''.join(lines)}}} opsnn_{op.name}_params;\n"


def declarations() -> str:
    """Enums and parameter structs, legal for C and cffi."""
    out = [
        _enum("dtype", (("dtype_" + n, i) for n, i, _ in S.DTYPES)),
        _enum("layout", (("layout_" + n, i) for n, i in S.LAYOUTS)),
        _enum("op", (("op_" + op.name, op.id) for op in S.OPS)),
        *(_enum(name, ((f"{name}_{v}", i) for i, v in enumerate(values))) for name, values in S.ENUMS.items()),
        "".join(f"#define {c_name('cpu', f)} {1 << i}\n" for i, f in enumerate(S.CPU_FEATURES)),
        *(_params(op) for op in S.OPS),
    ]
    return "\n".join(part for part in out if part)


def ops_header() -> str:
    sizes = "\n".join(f"    case {c_name('dtype', n)}: return {b};" for n, _, b in S.DTYPES)
    return f"""/* Generated from schema.py. */
#ifndef OPSNN_OPS_H
#define OPSNN_OPS_H

#include <stddef.h>
#include <stdint.h>

#define OPSNN_VERSION_TEXT "{S.VERSION}"
#define OPSNN_VERSION_NUMBER {version_number()}
#define OPSNN_FORMAT_MAJOR {S.FORMAT_MAJOR}
#define OPSNN_FORMAT_MINOR {S.FORMAT_MINOR}
#define OPSNN_SCHEMA UINT64_C({S.fingerprint():#x})
#define OPSNN_MAX_INPUTS {S.MAX_INPUTS}
#define OPSNN_MAX_OUTPUTS {max(len(op.outputs) for op in S.OPS)}
#define OPSNN_MAX_TAIL {S.MAX_TAIL}
#define OPSNN_LIST_CAPACITY {S.LIST_CAPACITY}
#define OPSNN_MAX_PARAMS_BYTES {max(params_bytes(op) for op in S.OPS)}

{declarations()}
/* Lists, to be expanded by a macro of one's own: X(name, id, bytes), X(name, id), X(name, bit of the mask). */
#define OPSNN_DTYPES(X) {" ".join(f"X({n}, {i}, {b})" for n, i, b in S.DTYPES)}
#define OPSNN_LAYOUTS(X) {" ".join(f"X({n}, {i})" for n, i in S.LAYOUTS)}
#define OPSNN_CPU_FEATURES(X) {" ".join(f"X({f}, {1 << i})" for i, f in enumerate(S.CPU_FEATURES))}

/* Bytes of an element, 0 for an id that is none. */
static inline size_t opsnn_dtype_bytes(uint32_t dtype) {{
    switch (dtype) {{
{sizes}
    default: return 0;
    }}
}}

static inline const char *opsnn_dtype_name(uint32_t dtype) {{
    switch (dtype) {{
{chr(10).join(f'    case {c_name("dtype", n)}: return "{n}";' for n, _, _ in S.DTYPES)}
    default: return "?";
    }}
}}
#endif
"""


def version_number() -> int:
    major, minor, patch = (int(p) for p in S.VERSION.split("."))
    return major << 16 | minor << 8 | patch


def table(kernels: Sequence[Kernel], ops: Sequence[str], build_info: str) -> str:
    """opsnn_table.c: every operator of the schema; those outside `ops` have no rule and no kernels. Kernels of better ISAs come
    first, so that of two equally fast ones the better wins."""
    rank = {name: i for i, (name, _, _) in enumerate(S.ISAS)}
    lines = ["/* Generated from schema.py and the kernels' file names. */", '#include "kernel.h"', ""]
    lines += [f"extern const opsnn_rule opsnn_rule_{rule};" for rule in rule_files(ops)]
    lines += [f"extern const opsnn_kernel opsnn_k_{k.stem};" for k in sorted(kernels, key=lambda k: k.stem)]
    lines.append("\nstatic const opsnn_kernel *const none[] = {NULL};")
    entries = []
    for op in S.OPS:
        own = sorted((k for k in kernels if k.op == op.name), key=lambda k: (-rank[k.isa], k.stem))
        if own:
            refs = ", ".join(f"&opsnn_k_{k.stem}" for k in own)
            lines.append(f"static const opsnn_kernel *const k_{op.name}[] = {{{refs}, NULL}};")
        flags = [f for f in ("view", "inplace", "map", "layout") if getattr(op, f)]
        entries.append(
            f'    {{"{op.name}", {f"&opsnn_rule_{op.rule}" if op.name in ops else "NULL"}, '
            f'{f"k_{op.name}" if own else "none"}, {op.id}, {params_bytes(op)}, {op.min_inputs}, {op.max_inputs}, '
            f'{len(op.outputs)}, {" | ".join(c_name("op", f) for f in flags) or "0"}}},'
        )
    lines += ["\nconst opsnn_op_entry opsnn_ops_table[] = {", *entries, "};"]
    lines.append(f"const uint32_t opsnn_ops_count = {len(S.OPS)};")
    # A section of its own, so that tools find the text in a library of any architecture without loading it. Numbers, since
    # a string literal may be too long for a C11 compiler.
    codes = ",".join(str(b) for b in build_info.encode() + b"\0")
    lines.append(f'__attribute__((section(".opsnn_info"))) const char opsnn_build_info_json[] = {{{codes}}};')
    return "\n".join(lines) + "\n"


def cdef(header: str) -> str:
    """The text that cffi reads: generated declarations and the marked region of ops_nn.h."""
    region = re.search(r"/\* cdef begin.*?\*/(.*)/\* cdef end \*/", header, re.S)
    if not region:
        raise ValueError("ops_nn.h has no region between 'cdef begin' and 'cdef end'")
    return declarations() + region[1]


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Generate C and cffi text from schema.py.")
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--header", type=Path, default=HERE / "ops_nn.h", help="the public header")
    parser.add_argument("--kernels", default="", help="file stems of the kernels to include")
    parser.add_argument("--ops", default="all", help="operators to include, or 'all'")
    parser.add_argument("--build-info", type=Path, help="JSON file that the library carries")
    args = parser.parse_args(argv)
    try:
        kernels = [parse_kernel(stem) for stem in args.kernels.split()]
        ops = list(S.BY_NAME) if args.ops == "all" else args.ops.split()
        for op in ops:
            if op not in S.BY_NAME:
                raise ValueError(f"'{op}' is no operator of schema.py")
        info = json.loads(args.build_info.read_text()) if args.build_info else {}
    except ValueError as error:
        print(f"gen.py: {error}", file=sys.stderr)
        return 1
    info = {
        "version": S.VERSION,
        **info,
        "ops": [op.name for op in S.OPS if op.name in ops],
        "kernels": sorted(k.stem for k in kernels),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    write_if_changed(args.out / "opsnn_ops.h", ops_header())
    write_if_changed(args.out / "opsnn_table.c", table(kernels, ops, json.dumps(info, sort_keys=True)))
    write_if_changed(args.out / "opsnn_cdef.txt", cdef(args.header.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
