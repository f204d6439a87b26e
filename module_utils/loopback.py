"""Asking a server on this host over HTTP."""

from __future__ import annotations

import urllib.request
from typing import Any


def ask_directly(url: str, timeout: float) -> Any:
    """The reply to GET, a context with `status` and `read`. No proxy that the environment names is asked.

    Raises OSError (HTTPError for a status that is an error) and http.client.HTTPException.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(url, timeout=timeout)
