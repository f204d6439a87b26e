#!/usr/bin/env bash
# Put on this machine what a command needs, after saying what that is. Quick when it is there already.
#   setup.sh demo    system packages, .venv, the lab's root file system
#   setup.sh test    the same with the test tools in .venv
#   setup.sh unit    only .venv with the test tools
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?setup.sh demo, test or unit}
state=${XDG_STATE_HOME:-$HOME/.local/state}/smokestack
lock=requirements.txt; [ "$kind" = demo ] || lock=requirements-dev.txt
say() { echo "setup: $*" >&2; }

pick_python() { # the first Python that the locks are made for
  local name
  for name in python3 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      command -v "$name"; return
    fi
  done
}
stamp() { sha256sum "$lock" | cut -c1-16; }

python=$(pick_python) || true
missing=()
[ -n "$python" ] || missing+=(python3)
if [ -z "$python" ] || ! "$python" -c 'import ensurepip' 2>/dev/null; then missing+=(python3-venv); fi
if [ "$kind" != unit ]; then
  if [ -n "$python" ]; then
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then tools/as_root.sh true; fi
    if ! tools/as_root.sh "$python" tests/lab/lab.py check >&2; then
      say "this machine cannot run the lab's hosts, so $kind stops here; nothing was installed"
      say "these work without them: make test-unit, make lint, the playbooks against hosts of your own (README)"
      exit 1
    fi
    mapfile -t lab < <("$python" tests/lab/lab.py deps --print)
    missing+=("${lab[@]}")
  fi
fi

have() { cat .venv/.stamp 2>/dev/null || true; }
fresh=no
case $(have) in
  "$lock $(stamp)") ;;
  "requirements-dev.txt $(sha256sum requirements-dev.txt | cut -c1-16)") ;;   # holds requirements.txt as well
  *) fresh=yes ;;
esac

if [ ${#missing[@]} -gt 0 ] || [ $fresh = yes ]; then
  say "this machine gets:"
  [ ${#missing[@]} = 0 ] || say "  Debian packages   ${missing[*]} (about 15 MB)"
  [ $fresh = no ] || say "  .venv             $(grep -c '==' "$lock") Python packages of $lock (about 60 MB to download, 300 MB on disk)"
  if [ "$kind" != unit ]; then
    wheels=$(awk '/^# .*\.whl [0-9]+ /{n++; s+=$3} END{printf "%d wheels, %.0f MB to download, once", n, s/1e6}' catalog/stacks/cpu-demo.*.lock)
    say "  root file system  of the lab's hosts (about 220 MB) in ${SMOKESTACK_LAB_HOME:-/var/tmp/smokestack-lab}"
    say "  wheelhouse        $wheels, in ~/.cache/smokestack"
    say "  a lab host        about 3.5 GB while it exists"
    say "about 1 GB to download and 6 GB of disk in all; make clean takes everything off again"
  fi
fi

if [ ${#missing[@]} -gt 0 ]; then
  before=$(mktemp); dpkg-query -W -f '${Package}\n' | sort >"$before"
  say "installing ${missing[*]}"
  log=$(mktemp)
  if ! { tools/as_root.sh env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
         tools/as_root.sh env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -5 "$log" >&2; say "apt-get could not install ${missing[*]}; the whole log is $log"; exit 1
  fi
  mkdir -p "$state"
  dpkg-query -W -f '${Package}\n' | sort | comm -13 "$before" - >>"$state/apt-installed"   # for make clean
  rm -f "$before" "$log"
  python=$(pick_python)
fi

if [ $fresh = yes ]; then
  say "making .venv with $("$python" --version)"
  if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then rm -rf .venv; "$python" -m venv .venv; fi
  rm -f .venv/.stamp
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
  echo "$lock $(stamp)" >.venv/.stamp
fi

if [ "$kind" != unit ]; then tools/as_root.sh "$python" tests/lab/lab.py build >/dev/null; fi
