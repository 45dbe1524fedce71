#!/usr/bin/env bash
# Sets up an environment and pretrains a small BERT on the documentation inside this Python.
#   launch/local.sh [--steps N]    N extends a finished run; PYTHON=python3.12 chooses the interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extend=()
case "${1:-}" in
  "") ;;
  --steps) extend=("--train_steps=${2:?--steps needs a number}") ;;
  *) sed -n '2,3s/^# *//p' "$0"; exit 2 ;;
esac

environment=.venv
if [ ! -x "$environment/bin/t5x_like" ]; then
  python=${PYTHON:-}
  for candidate in python3.11 python3.12 python3 python; do
    [ -n "$python" ] && break
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
      python=$candidate
    fi
  done
  [ -n "$python" ] || { echo "no Python 3.11 or 3.12 on PATH: install one, or set PYTHON" >&2; exit 1; }
  echo "installing into $environment (TensorFlow comes with SeqIO: about 3.4 GB, some minutes)"
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --editable '.[all]'
fi
command=$environment/bin/t5x_like
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 # fewer page faults: a step on CPUs touches much memory

run=runs/first
"$command" train --recipe bert-mini --task stdlib_docs --model_dir "$run" ${extend[@]+"${extend[@]}"}
echo
"$command" eval "$run"
cat <<TEXT

Blanks, filled by the model. It has learned phrases of the documentation, such as the first three; their
authors wrote of, true and not. Of the world it knows nothing: the last one should be wrong.
TEXT
"$command" predict "$run" "a list [MASK] strings" "Return [MASK] if the object is a class." \
  "does [MASK] exist" "Python [MASK] a programming language." --k 3
"$command" plot "$run" >/dev/null
cat <<DONE
checkpoints    $run/checkpoints
curve          $run/loss.png
logs           $run/metrics.jsonl (and TensorBoard's files beside it)
configuration  $run/config.gin
DONE
