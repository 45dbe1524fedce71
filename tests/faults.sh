#!/usr/bin/env bash
# Injects faults into real runs of several processes, and prints a table of what came of them.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/faults.sh [--folder DIR] [PART...]

  --folder DIR  where runs and results are kept (default: .faults); a part that is called again goes on
  PART          kills-t5 kills-xlnet kills-bert leaving hosts damage disk turns fuzz healthy soak
                (default: all but soak)

Each part ends within 20 minutes. One that says that cases are left is to be called again: those that are done are
in DIR/results.jsonl. The soak lasts an hour, in pieces. PYTHON names another interpreter than .venv-tests has.
TEXT
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=.faults parts=()
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder="${2:?--folder needs a directory}"; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "tests/faults.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
    *) parts+=("$1") ;;
  esac
  shift
done
python=${PYTHON:-$(ls -d .venv-tests/*/bin/python 2>/dev/null | grep -v beam | head -n 1)}
if [ -z "$python" ]; then
  echo "tests/faults.sh: no environment: run tests/run.sh --fast once, or set PYTHON" >&2
  exit 1
fi
unset PYTHONDONTWRITEBYTECODE
exec "$python" tests/faults --folder "$folder" ${parts[@]+"${parts[@]}"}
