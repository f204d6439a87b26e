#!/usr/bin/env bash
# Run a command as root: at once, or through sudo. Says what works without when there is neither.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then exec "$@"; fi
if command -v sudo >/dev/null; then
  echo "The lab's hosts need root; running through sudo: $*" >&2
  exec sudo --set-home --preserve-env=PATH,ANSIBLE_CONFIG,SMOKESTACK_LAB_HOME "$@"
fi
cat >&2 <<'TEXT'
The lab's hosts (systemd as PID 1, network namespaces) need root, and there is no sudo.
Without root these work:  make test-unit   make lint   and the playbooks against hosts of your own (README, "A real fleet").
TEXT
exit 1
