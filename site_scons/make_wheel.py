"""make_wheel.py BUILD DIST: packs the Python package and the stripped library of a build into a wheel.

The platform tag comes from the library's own ELF header and attributes: it cannot claim another machine than the code is for.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path

import elf_facts
from wheel.wheelfile import WheelFile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
import schema  # noqa: E402  (src/ is on the path only now)

METADATA = """Metadata-Version: 2.1
Name: ops-nn
Version: {version}
Summary: Neural networks on small Arm boards
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy >=1.19
Requires-Dist: cffi >=1.14
Provides-Extra: convert
Requires-Dist: onnx >=1.14 ; extra == 'convert'
Requires-Dist: tflite >=2.18 ; extra == 'convert'
"""
WHEEL = """Wheel-Version: 1.0
Generator: ops-nn
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
ENTRY_POINTS = """[console_scripts]
ops-nn = ops_nn.__main__:main
"""


def main(build: str, dist: str) -> None:
    library = Path(build) / "stripped" / "libops_nn.so"
    platform = elf_facts.wheel_platform(library)
    info = f"ops_nn-{schema.VERSION}.dist-info"
    package = ROOT / "python" / "ops_nn"
    files = {
        **{f"ops_nn/{p.relative_to(package)}": p.read_bytes() for p in package.rglob("*.py")},
        "ops_nn/_abi.py": (Path(build) / "python" / "ops_nn" / "_abi.py").read_bytes(),
        "ops_nn/libops_nn.so": library.read_bytes(),
        f"{info}/METADATA": METADATA.format(version=schema.VERSION).encode(),
        f"{info}/WHEEL": WHEEL.format(platform=platform).encode(),
        f"{info}/entry_points.txt": ENTRY_POINTS.encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    Path(dist).mkdir(exist_ok=True)
    path = Path(dist) / f"ops_nn-{schema.VERSION}-py3-none-{platform}.whl"
    path.unlink(missing_ok=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # 1980, zip's oldest: equal input, equal bytes
    with WheelFile(path, "w") as wheel:
        for name in sorted(files):
            wheel.writestr(name, files[name])
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
