"""Kernel wheels of a few bytes, and stand-ins for NVIDIA's two programs that speak as those do."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# What nvdisasm 13.2.86 printed of csrc/fp4.cu for sm_120a, and of a cubin without FP4.
FP4_LINE = "        /*0100*/         OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X R12, R8, R12, RZ, R0, R15, URZ ;"
OTHER_LINE = "        /*0010*/                   LDC.64 R2, c[0x0][0x380] ;"
MARKER = "Arch conditional MMA instruction used without targeting appropriate compute capability"

CUOBJDUMP = """#!{python}
import json, pathlib, sys
if "--version" in sys.argv:
    print("Cuda compilation tools, release 13.2, V13.2.86")
    sys.exit()
{fault}
content = pathlib.Path(sys.argv[-1]).read_bytes()
cubins = json.loads(content.partition(b"CUBINS")[2] or b"[]")
if not cubins:
    print("cuobjdump info    : File 'x' does not contain device code")
    sys.exit(255)
for number, (arch, text) in enumerate(cubins, start=1):
    if "--list-elf" in sys.argv:
        print(f"ELF file    {{number}}: object.{{number}}.{{arch}}.cubin")
    elif sys.argv[2] in f".{{arch}}":
        pathlib.Path(f"object.{{number}}.{{arch}}.cubin").write_text(text)
"""
NVDISASM = """#!{python}
import pathlib, sys, time
if "--version" in sys.argv:
    print("Cuda compilation tools, release 13.2, V13.2.86")
    sys.exit()
with pathlib.Path(__file__).with_name("calls").open("a") as calls:
    calls.write("1")
{fault}
print(pathlib.Path(sys.argv[-1]).read_text())
"""


def make_tools(folder: Path, cuobjdump: str = "", nvdisasm: str = "") -> Path:
    """Write the two stand-ins; `cuobjdump` and `nvdisasm` are lines of Python that spoil them."""
    folder.mkdir(exist_ok=True)
    for name, code, fault in (("cuobjdump", CUOBJDUMP, cuobjdump), ("nvdisasm", NVDISASM, nvdisasm)):
        (folder / name).write_text(code.format(python=sys.executable, fault=fault))
        (folder / name).chmod(0o755)
    (folder / "calls").write_text("")
    return folder


def disassembled(folder: Path) -> int:
    """How many cubins the stand-in was given."""
    return len((folder / "calls").read_text())


def shared_object(
    needs: Sequence[str] = (),
    defined: Sequence[str] = (),
    undefined: Sequence[str] = (),
    cubins: Sequence[tuple[str, str]] = (),
) -> bytes:
    """An ELF64 file with a dynamic section and symbols; the cubins' texts stand behind it."""
    strings = b"\0"
    places: dict[str, int] = {}
    for name in (*needs, *defined, *undefined):
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    dynamic = b"".join(struct.pack("<QQ", 1, places[name]) for name in needs) + struct.pack("<QQ", 0, 0)
    symbols = bytes(24)
    for names, section in ((defined, 1), (undefined, 0)):
        symbols += b"".join(struct.pack("<IBBHQQ", places[name], 0x12, 0, section, 0, 0) for name in names)
    body, offsets = b"", []
    for part in (strings, symbols, dynamic):
        offsets.append((64 + len(body), len(part)))
        body += part
    table = bytes(64)
    for kind, link, (start, size) in zip((3, 11, 6), (0, 1, 1), offsets, strict=True):
        table += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, start, size, link, 0, 1, 0)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 4, 0)
    return header + body + table + (b"CUBINS" + json.dumps(list(cubins)).encode() if cubins else b"")


def kernel_wheel(
    folder: Path, objects: Mapping[str, bytes], requires: str = "torch==2.12.0", version: str = "0.3.21"
) -> Path:
    """Write a kernel wheel with these shared objects."""
    info = f"sgl_kernel-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    wheel = folder / f"sgl_kernel-{version}-cp310-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: sgl_kernel\nVersion: {version}\nRequires-Python: >=3.10\n{needs}",
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: cp310-abi3-linux_x86_64\n")
        for name, content in objects.items():
            archive.writestr(name, content)
    return wheel
