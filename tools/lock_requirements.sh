#!/usr/bin/env bash
# Resolve requirements*.in to exact versions with hashes, for every supported Python.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in requirements requirements-dev; do
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
    --no-emit-index-url --no-emit-find-links --no-header --output-file "$name.txt" "$name.in"
done
