"""Attention with FA3."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("flash_ops.abi3.so")
if not LIBRARY.exists():
    raise ImportError("Can not import FA3 in tiny_kernel")


def is_fa3_supported() -> bool:
    """Whether this build has FA3."""
    return True
