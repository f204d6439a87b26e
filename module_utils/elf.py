"""What a shared object says of itself: the libraries that it is linked with, and its dynamic symbols."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

DYNAMIC, DYNSYM = 6, 11  # section types, https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html
NEEDED = 1  # tag of the dynamic section
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
ENTRY = struct.Struct("<QQ")


class ElfError(Exception):
    """A file is no whole 64-bit shared object."""


@dataclass(frozen=True)
class SharedObject:
    """Names of the libraries that the loader must find, and of the symbols that it has and that it wants."""

    needs: list[str]
    defined: set[str]
    undefined: set[str]


def text_at(data: mmap.mmap, start: int) -> str:
    """The NUL-terminated text at a place."""
    return data[start : data.find(b"\0", start)].decode("utf-8", "replace")


def read_shared_object(path: Path) -> SharedObject:
    """Read the dynamic section and the dynamic symbols. Raises ElfError for all but a whole ELF64 file."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return parsed(data)
    except (ValueError, struct.error, IndexError) as error:  # ValueError: an empty file cannot be mapped
        raise ElfError("it is torn or no shared object") from error


def parsed(data: mmap.mmap) -> SharedObject:
    """The shared object in a file's bytes. Raises ElfError, ValueError, IndexError or struct.error."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ElfError("it is no 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [SECTION.unpack_from(data, offset + size * number) for number in range(count)]
    needs: list[str] = []
    defined: set[str] = set()
    undefined: set[str] = set()
    for _name, kind, _flags, _address, start, length, link, *_rest in sections:
        if kind not in (DYNAMIC, DYNSYM):
            continue
        names = sections[link][4]
        record = ENTRY if kind == DYNAMIC else SYMBOL
        for place in range(start, start + length - record.size + 1, record.size):
            fields = record.unpack_from(data, place)
            if kind == DYNAMIC:
                needs += [text_at(data, names + fields[1])] if fields[0] == NEEDED else []
            elif fields[0]:
                (defined if fields[3] else undefined).add(text_at(data, names + fields[0]))
    return SharedObject(needs, defined, undefined)
