#!/usr/bin/env bash
# Take off what setup, demo and test put on this machine: labs, root file system, wheelhouse, .venv, Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."
state=${XDG_STATE_HOME:-$HOME/.local/state}/smokestack
python3 tests/lab/lab.py clean --all
rm -rf .venv build reports .ansible .pytest_cache .mypy_cache .ruff_cache "${XDG_CACHE_HOME:-$HOME/.cache}/smokestack"
find . -name __pycache__ -type d -prune -exec rm -rf {} +
if [ -s "$state/apt-installed" ]; then
  mapfile -t packages < <(sort -u "$state/apt-installed" | while read -r name; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' && echo "$name" || true
  done)
  if [ ${#packages[@]} -gt 0 ]; then
    echo "clean: removing the Debian packages that setup installed: ${packages[*]}" >&2
    DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq "${packages[@]}" >/dev/null
  fi
fi
rm -rf "$state"
echo "clean: done" >&2
