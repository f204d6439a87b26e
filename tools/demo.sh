#!/usr/bin/env bash
# A fresh host gets the real SGLang server and is gated; a faulty upgrade with a green /health is caught and undone.
set -euo pipefail
cd "$(dirname "$0")/.."
export SMOKESTACK_LAB=demo
lab=(python3 tests/lab/lab.py --lab "$SMOKESTACK_LAB")
site=(ansible-playbook -i inventory/demo)
began=$SECONDS
heading() { printf '\n=== [%3d s] %s\n\n' $((SECONDS - began)) "$*"; }
reports() { find reports/node1 -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sort; }
read_report() { # FOLDER KEY.. : one value of its report.json
  python3 -c '
import functools, json, pathlib, sys
report = json.loads(pathlib.Path(sys.argv[1], "report.json").read_text())
print(functools.reduce(lambda part, key: part[int(key) if key.isdigit() else key], sys.argv[2:], report))' "$@"
}
verdict() { read_report "$1" summary; }
health() { read_report "$1" probes 0 measured answer health_status; }
trap '"${lab[@]}" down --keep >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

heading "A host with systemd and sshd, without a route out"
"${lab[@]}" up node1 >/dev/null

if ! compgen -G "catalog/stacks/cpu-demo.$(python -c 'import sys; print(f"cp{sys.version_info[0]}{sys.version_info[1]}")')-linux_*.lock" >/dev/null; then
  heading "No lock for this Python yet: resolving the stack (the wheels are downloaded now)"
  "${site[@]}" lock.yml -e stack=cpu-demo
fi

heading "site.yml: deploy the real SGLang server and gate its answers"
mapfile -t before < <(reports)
"${site[@]}" site.yml
mapfile -t good < <(reports)

heading "site.yml again, with a faulty upgrade: a checkpoint that holds one NaN. It must fail, and go back"
python3 tests/data/tiny_model/break_model.py tests/data/tiny-qwen3 build/models/tiny-qwen3-nan nan
if "${site[@]}" site.yml -e model_profile=tiny-qwen3-nan -e retry_failed=true; then
  echo "demo: the gate let a checkpoint with a NaN pass" >&2; exit 1
fi
mapfile -t all < <(reports)

faulty=${all[${#good[@]}]} again=${all[${#all[@]} - 1]}
heading "What happened"
echo "first deployment   $(verdict "${good[${#good[@]} - 1]}")"
echo "                   ${good[${#good[@]} - 1]}"
echo "faulty upgrade     /health said $(health "$faulty") after the first answer; the gate said"
echo "                   $(verdict "$faulty")"
echo "                   $faulty"
echo "serving again      $(verdict "$again")"
echo "                   $again"
echo
echo "Each folder holds report.html, report.md, report.json, junit.xml and gate.prom."
echo "The host is switched off and kept. To go on with it:"
echo "  python3 tests/lab/lab.py up node1 && .venv/bin/ansible-playbook -i inventory/demo validate.yml"
echo "make clean deletes everything."
