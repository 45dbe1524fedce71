#!/usr/bin/env bash
# Makes an environment of its own and runs every check in it: ruff, mypy, pytest.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/run.sh [--fast] [--beam] [--python VERSION] [--oldest] [--install] [-- PYTEST_ARGUMENTS]

  --fast            leave out the tests marked slow (under 4 minutes on 2 cores)
  --beam            the tests of Apache Beam alone, which asks for other releases than the rest
  --python VERSION  3.11 (default), 3.12, 3.13, or the path of an interpreter
  --oldest          install the lower bounds of setup.py in place of the newest releases
  --install         make the environment, and stop
  --                what follows goes to pytest, e.g.: -- tests/data -k cache

The environment lies in .venv-tests/ and is made again only when setup.py changes.
TEXT
}

version=3.11 fast= oldest= beam= install_only= pytest_arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --fast) fast=1 ;;
    --oldest) oldest=1 ;;
    --beam) beam=1 ;;
    --install) install_only=1 ;;
    --python) version="${2:?--python needs a version or a path}"; shift ;;
    --) shift; pytest_arguments=("$@"); break ;;
    -h | --help) usage; exit 0 ;;
    *) echo "tests/run.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Without compiled sources on disk, each of the many processes of the tests would compile all that it imports.
unset PYTHONPATH PYTHONDONTWRITEBYTECODE

# A pyenv shim on PATH answers only where its version is active, so each candidate is asked.
find_interpreter() {
  local candidate
  case "$1" in */*) echo "$1"; return ;; esac
  for candidate in "python$1" python3 python \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1"*/bin/python "$HOME"/.pyenv/versions/"$1"*/bin/python; do
    if "$candidate" -c 'import ensurepip, sys, venv
sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$1" >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  echo "tests/run.sh: no Python $1 with venv found on PATH or in ${PYENV_ROOT:-$HOME/.pyenv}/versions;" \
    "install one (pyenv install $1), or name it: --python /path/to/python" >&2
  return 1
}

lower_bounds() {
  grep -oE '"[A-Za-z0-9_-]+(\[[a-z0-9]+\])?>=[0-9.]+' setup.py | sed -E 's/"//; s/\[.*\]//; s/>=/==/' | sort -u
}

interpreter=$(find_interpreter "$version")
environment=.venv-tests/$("$interpreter" -c 'import sys; print("%d.%d" % sys.version_info[:2])')${oldest:+-oldest}${beam:+-beam}
stamp=$({ echo "$interpreter"; cat setup.py; } | sha256sum)
if [ "$(cat "$environment/stamp" 2>/dev/null)" != "$stamp" ]; then
  echo "== $environment: installing (several minutes the first time)"
  rm -rf "$environment"
  "$interpreter" -m venv "$environment"
  constraints=$environment/constraints.txt
  if [ -n "$oldest" ]; then lower_bounds >"$constraints"; else : >"$constraints"; fi
  install() { "$environment/bin/python" -m pip install --quiet --no-compile --constraint "$constraints" "$@"; }
  if [ -n "$beam" ]; then
    install --editable '.[beam]' 'apache-beam[dask]' hypothesis pytest pytest-timeout
    echo "$stamp" >"$environment/stamp"
  fi
fi
if [ -n "$beam" ] && [ -z "$install_only" ]; then
  exec "$environment/bin/python" -m pytest tests/data/cache/test_beam.py ${pytest_arguments[@]+"${pytest_arguments[@]}"}
fi
if [ -z "$beam" ] && [ ! -e "$environment/stamp" ]; then
  install --editable '.[all,docs,t5,test]'
  # Its requirements would bring a second SeqIO; the extra t5 has those that are needed.
  install --no-deps t5==0.9.4
  # A compiler for TPUs, for one platform only: without it the tests of plans are skipped.
  install --editable '.[plan]' ||
    echo "== no libtpu here: tests that compile for TPUs are skipped"
  echo "$stamp" >"$environment/stamp"
fi

if [ -n "$install_only" ]; then exit; fi

bin=$environment/bin
echo "== $("$bin/python" --version), $("$bin/python" -m pip list 2>/dev/null | grep -E '^(jax|flax) ' | tr -s ' ' | paste -sd, -)"
echo "== ruff format" && "$bin/ruff" format --check .
echo "== ruff check" && "$bin/ruff" check .
types=$(mktemp)
"$bin/mypy" >"$types" 2>&1 & # one core's work, beside the tests
checking=$!
if [ -z "$fast" ]; then
  echo "== mkdocs"
  site=$(mktemp -d)
  NO_MKDOCS_2_WARNING=1 "$bin/mkdocs" build --strict --site-dir "$site" 2>&1 | { grep -v '^INFO' || true; }
  rm -rf "$site"
fi
echo "== pytest"
status=0
"$bin/pytest" -n "${TEST_PROCESSES:-2}" --dist loadfile --no-loadscope-reorder \
  ${fast:+-m "not slow"} ${pytest_arguments[@]+"${pytest_arguments[@]}"} || status=$?
echo "== mypy"
wait "$checking" || status=1
cat "$types"
rm -f "$types"
exit $status
