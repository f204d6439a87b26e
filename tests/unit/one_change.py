"""Documents that are right but for one key."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one key, named like `a.b`, set to another value; `...` takes the key out."""
    copy = deepcopy(data)
    *parents, last = path.split(".")
    inner = copy
    for parent in parents:
        inner = inner[parent]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copy
