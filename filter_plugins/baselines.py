"""What the controller knows of baselines: which files there are, and what a node says of its GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any


def stored_baselines(texts: Mapping[str, str], model: str) -> list[dict[str, Any]]:
    """The baselines of one model, each {path, document}; `texts` are all files' contents by path.

    A file that is no baseline is an error, whichever model it is of: a torn one must not count as none.
    """
    found = []
    for path, text in sorted(texts.items()):
        shown = f"catalog/baselines/{PurePath(path).name}"
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f"{shown} is not whole JSON ({error}); remove it and record it again with baseline.yml"
            ) from None
        key = document.get("key") if isinstance(document, dict) else None
        if not isinstance(key, dict) or not isinstance(key.get("model"), str):
            raise ValueError(f"{shown} is no baseline: it names no model; record it again with baseline.yml")
        if key["model"] == model:
            found.append({"path": shown, "document": document})
    return found


def gpu_hardware(lines: Sequence[str]) -> dict[str, Any] | None:
    """{gpu, count, power_cap_w} from the lines `NAME, WATTS` of nvidia-smi; None for no GPU or mixed ones.

    A power cap that the driver does not tell, as `[N/A]`, is null.
    """
    gpus = [tuple(part.strip() for part in line.rsplit(",", 1)) for line in lines if line.strip()]
    if len(set(gpus)) != 1 or len(gpus[0]) != 2 or not gpus[0][0]:
        return None
    name, cap = gpus[0]
    try:
        watts = float(cap)
    except ValueError:
        watts = 0.0
    return {"gpu": name, "count": len(gpus), "power_cap_w": watts if watts > 0 else None}


class FilterModule:
    """Filters about baselines."""

    def filters(self) -> dict[str, Any]:
        return {"stored_baselines": stored_baselines, "gpu_hardware": gpu_hardware}
