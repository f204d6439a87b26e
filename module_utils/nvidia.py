"""What the kernel and nvidia-smi say of NVIDIA's driver and GPUs."""

from __future__ import annotations

from pathlib import Path

DRIVER = Path("/sys/module/nvidia/version")
GPU_QUERY = ["--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
"""Arguments of nvidia-smi whose output `listed_gpus` reads."""


def nvidia_driver(file: Path = DRIVER) -> str | None:
    """The version of the loaded NVIDIA driver, None where none is loaded."""
    return file.read_text().strip() if file.is_file() else None


def listed_gpus(output: str) -> list[dict[str, str | float]]:
    """The GPUs that nvidia-smi lists: {name, memory_gib, compute_capability}. Raises ValueError."""
    gpus: list[dict[str, str | float]] = []
    for line in output.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 2)]
        if len(parts) != 3 or not parts[1].isdigit():
            raise ValueError(f"nvidia-smi: a name, MiB and a compute capability are wanted, not {line!r}")
        name, memory, capability = parts
        gpus.append(
            {"name": name, "memory_gib": round(int(memory) / 1024, 2), "compute_capability": capability}
        )
    return gpus
