"""What the kernel says of NVIDIA's driver."""

from __future__ import annotations

from pathlib import Path

DRIVER = Path("/sys/module/nvidia/version")


def nvidia_driver(file: Path = DRIVER) -> str | None:
    """The version of the loaded NVIDIA driver, None where none is loaded."""
    return file.read_text().strip() if file.is_file() else None
