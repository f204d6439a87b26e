"""The headers of safetensors files: what tensors a file holds, and whether it is whole.

The format: eight bytes with the header's length, the header as JSON, then the tensors' bytes without a gap
(https://github.com/huggingface/safetensors#format). Only headers are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LENGTH = 8
LONGEST_HEADER = 100_000_000
"""Bytes; the safetensors library itself refuses a longer header."""
POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins whose bytes stayed on the server: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md"""
BITS = (
    dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ"), 8)
    | dict.fromkeys(("U16", "I16", "F16", "BF16"), 16)
    | dict.fromkeys(("U32", "I32", "F32"), 32)
    | dict.fromkeys(("U64", "I64", "F64", "C64"), 64)
    | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
)
"""Bits of an element by its type; of another type, only the place of its bytes is checked."""


class TornShard(Exception):
    """A file is no whole safetensors file; the message says what was wanted and what came."""


@dataclass(frozen=True)
class Tensor:
    """Type, shape and number of bytes of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    size: int


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; raises ValueError where a key is there twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


def parsed(data: bytes) -> Any:
    """The JSON document in these bytes. Raises ValueError with what is wrong, whatever they are."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(value: Any) -> bool:
    """Whether this is a number that counts something: whole and not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_shard(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name. Raises TornShard; OSError where it cannot be read."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(max(LENGTH, len(POINTER)))
        if head.startswith(POINTER):
            raise TornShard("it is a git-lfs pointer, its bytes were never fetched: run git lfs pull there")
        if size < LENGTH:
            raise TornShard(f"it has {size} bytes, fewer than the {LENGTH} of a header's length")
        length = int.from_bytes(head[:LENGTH], "little")
        if length > LONGEST_HEADER:
            raise TornShard(
                f"its header would be {length} bytes long, more than safetensors allows ({LONGEST_HEADER})"
            )
        if length > size - LENGTH:
            raise TornShard(f"its header is {length} bytes long, the file has {size}")
        stream.seek(LENGTH)
        data = stream.read(length)
    try:
        header = parsed(data)
    except ValueError as error:
        raise TornShard(f"its header is not JSON: {error}") from error
    if not isinstance(header, Mapping):
        raise TornShard(f"its header is a {type(header).__name__}, not a mapping of tensors")
    return placed(header, size - LENGTH - length)


def placed(header: Mapping[str, Any], room: int) -> dict[str, Tensor]:
    """The tensors of a header whose file has `room` bytes for them. Raises TornShard."""
    places: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end, tensors[name] = one_tensor(name, entry)
        places.append((start, end, name))
    reached = 0
    for start, end, name in sorted(places):
        if start < reached:
            raise TornShard(f"tensor {name} begins at byte {start}, inside another that ends at {reached}")
        if start > reached:
            raise TornShard(f"no tensor holds bytes {reached} to {start}, before tensor {name}")
        reached = end
    if reached != room:
        raise TornShard(f"its tensors take {reached} bytes, the file holds {room}")
    return tensors


def one_tensor(name: str, entry: Any) -> tuple[int, int, Tensor]:
    """The place and the tensor of an entry of a header. Raises TornShard."""
    if not isinstance(entry, Mapping):
        raise TornShard(f"tensor {name} is described by a {type(entry).__name__}, not by a mapping")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str):
        raise TornShard(f"tensor {name} has no dtype")
    if not isinstance(shape, list) or not all(whole(number) for number in shape):
        raise TornShard(f"tensor {name} has no shape of whole numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(whole(number) for number in offsets):
        raise TornShard(f"tensor {name} has no data_offsets of two whole numbers")
    start, end = offsets
    if end < start:
        raise TornShard(f"tensor {name} ends at byte {end}, before it begins at {start}")
    if dtype in BITS and math.prod(shape) * BITS[dtype] != (end - start) * 8:
        raise TornShard(f"tensor {name} of {dtype} {shape} does not take {end - start} bytes")
    return start, end, Tensor(dtype, tuple(shape), end - start)
