"""Asks a server one question again and again until stdin ends; a line of JSON an answer. Runs on a node.

Arguments: base URL, seconds between two questions, the request of a chat completion as JSON. A line holds
`began` and `ended` (seconds of the clock that systemd's monotonic timestamps are of), `status` (null without
a reply) and `text` (the answer, or what was wrong instead).
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
import urllib.error
import urllib.request

PATIENCE = 30.0  # the gate's own patience with one answer


def ask(url: str, question: bytes) -> tuple[int | None, str]:
    """The status and the answer. Loopback is asked directly, whatever proxy the environment names."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", question, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE) as reply:
            choice = json.load(reply)["choices"][0]
            return reply.status, str(choice["message"]["content"])
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        return None, f"{type(error).__name__}: {error}"


def main() -> None:
    url, pause, question = sys.argv[1], float(sys.argv[2]), sys.argv[3].encode()
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        began = time.monotonic()
        status, text = ask(url, question)
        answer = {"began": began, "ended": time.monotonic(), "status": status, "text": text}
        print(json.dumps(answer), flush=True)
        over.wait(max(0.0, began + pause - time.monotonic()))


if __name__ == "__main__":
    main()
