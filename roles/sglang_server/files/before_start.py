#!/usr/bin/env python3
"""Refuses to start the server where it could not serve: its port is taken, or its GPUs' memory is.

    before_start.py --port PORT [--gpus]

Run by the unit, as the server's user, before each start. SGLang itself would load the weights first and then
fail, or share a GPU with what already fills it. Exit status: 0 go on, 1 with a sentence for the journal.
"""

from __future__ import annotations

import argparse
import errno
import os
import socket
import subprocess
import sys
import time

QUERY = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
VISIBLE = "CUDA_VISIBLE_DEVICES"  # the server's GPUs, where it does not take all
DRIVER_TIMEOUT = 30.0  # seconds; nvidia-smi hangs on a GPU that fell off the bus
LEAVE = 15.0  # seconds that a process which has just been killed may take to give its memory back


def port_problem(port: int) -> str | None:
    """Why nobody can listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f"port {port} cannot be used: {error.strerror}"
            return f"port {port} is taken by another process: see `ss -ltnp 'sport = :{port}'`"
    return None


def gpu_problem() -> str | None:
    """Why the GPUs cannot be used now: the driver does not answer, or processes hold their memory."""
    query = [*QUERY, f"--id={os.environ[VISIBLE]}"] if os.environ.get(VISIBLE) else QUERY
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=DRIVER_TIMEOUT, check=False)
    except FileNotFoundError:
        return "there is no nvidia-smi: install the NVIDIA driver's utilities"
    except subprocess.TimeoutExpired:
        return (
            f"the NVIDIA driver did not answer nvidia-smi within {DRIVER_TIMEOUT:.0f} s: see `dmesg` for Xid"
        )
    if told.returncode:
        said = (told.stdout + told.stderr).strip().splitlines() or [
            f"nvidia-smi ended with {told.returncode}"
        ]
        return f"the NVIDIA driver does not answer: {said[-1]}"
    held = [[word.strip() for word in line.split(",")] for line in told.stdout.splitlines() if line.strip()]
    if not held:
        return None
    processes = "; ".join(
        f"PID {line[0]} ({', '.join(line[1:-1])}) {line[-1]} MiB" for line in held if len(line) > 2
    )
    return f"GPU memory is held by other processes: {processes or told.stdout.strip()}. Stop them first"


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuse to start a server that could not serve.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--gpus", action="store_true", help="it runs on GPUs")
    options = parser.parse_args()
    until = time.monotonic() + LEAVE
    while problem := port_problem(options.port) or (gpu_problem() if options.gpus else None):
        if time.monotonic() >= until:
            print(f"not started: {problem}", file=sys.stderr)
            return 1
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
