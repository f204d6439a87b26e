#!/usr/bin/env bash
# The tests that need the lab, and all others. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
molecule test --scenario-name default
exec pytest "$@"
