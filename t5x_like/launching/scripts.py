"""Shell scripts that run on hosts; every value in them is quoted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from t5x_like.core.exit_status import FINAL
from t5x_like.launching.job import Job


def exports(variables: Mapping[str, str]) -> str:
    """Lines that export variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def run_script(job: Job, *, python: str) -> str:
    """`run.sh PROCESS [ARGUMENT...]`: one process of the run; its exit status is that of train.

    Args:
      job: the run.
      python: the interpreter, as a word of the shell in which `$here` is the script's folder.
    """
    folders = "$here/code:$here/files" if job.config.get("environment") else "$here/files"
    attempt = (
        f"{shlex.quote(job.model_dir)} --launch={shlex.quote(job.launch)}"
        f" --limit={job.config.restarts_without_progress}"
    )
    return f"""\
#!/usr/bin/env bash
# One process of the run {job.name}: run.sh PROCESS [ARGUMENT OF TRAIN...]
set -u
process=$1
shift
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
if [ -d "$here/files" ]; then cd "$here/files"; else cd "$here"; fi || exit 1
if [ -f "$here/secrets.sh" ]; then . "$here/secrets.sh"; fi
export PYTHONPATH="{folders}${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONUNBUFFERED=1
{exports(job.env)}{prepared(job.config.prepare)}python={python}
"$python" -m t5x_like.launching.attempts --process="$process" {attempt} || exit
exec "$python" -m t5x_like {shlex.join(job.arguments[:1])} --distributed "$@" \\
  {shlex.join(job.arguments[1:])}
"""


def prepared(command: str) -> str:
    """The user's own shell command, which must succeed; "" if there is none."""
    return f"(\n{command}\n) || exit\n" if command else ""


def host_script(job: Job, *, wheel: str) -> str:
    """`host.sh VERB`: what a launcher asks of a host; it keeps the state of its process."""
    config = job.config
    return f"""\
#!/usr/bin/env bash
# Part of the run {job.name} on one host.
#   host.sh install                        Python's packages
#   host.sh start PROCESS [ARGUMENT...]    the run, which starts again by itself
#   host.sh status | log LINES [follow] | stop
set -u
cd "$(dirname "${{BASH_SOURCE[0]}}")" || exit 1
environment={shlex.quote(config.environment)}
extras={shlex.quote(f"[{config.extras}]")}
python={shlex.quote(config.python)}
wheel={shlex.quote(wheel)}
grace={int(config.stop_seconds)}
final=" {" ".join(map(str, FINAL))} "
{_HOST}"""


_HOST = r"""
running() { ! flock --nonblock lock true; }

install() {
  if running; then echo "a run is under way: stop it first" >&2; exit 1; fi
  set -e
  if [ -n "$environment" ]; then
    rm -rf code
    "$environment/bin/python" -m zipfile -e "$wheel" code
    PYTHONPATH=$PWD/code "$environment/bin/python" -m t5x_like --version
    return
  fi
  export PATH="$HOME/.local/bin:$PATH"
  # In the user's home, which distributions that manage Python's packages allow only when told.
  command -v uv >/dev/null || PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --user --quiet uv
  uv venv --quiet --allow-existing --python "$python" venv
  uv pip install --quiet --python venv/bin/python --constraint constraints.txt \
    --reinstall-package t5x_like "./$wheel$extras"
  venv/bin/python -m t5x_like --version
}

start() {
  if running; then echo "a run is under way: stop it first" >&2; exit 1; fi
  rm -f state stop pid
  setsid nohup flock --no-fork lock bash host.sh supervise "$@" >>log 2>&1 </dev/null &
  for _ in $(seq 100); do
    if [ -s pid ]; then echo started; return; fi
    sleep 0.1
  done
  echo "it did not start: see the log" >&2
  exit 1
}

# Leads its own process group, and holds the lock as long as any process of the run lives.
supervise() {
  echo $$ >pid
  pause=5
  while [ -f run.sh ] && ! [ -e stop ]; do
    began=$SECONDS
    bash run.sh "$@" &
    echo $! >child
    wait $!
    status=$?
    echo "$(date -u +%FT%TZ) the process ended with exit status $status"
    if [[ $final == *" $status "* ]]; then echo "$status" >state; exit; fi
    if [ -e stop ]; then break; fi
    # A run that fails at once waits longer each time, up to a minute.
    if [ $((SECONDS - began)) -gt 300 ]; then pause=5; fi
    sleep $pause
    pause=$((pause < 30 ? 2 * pause : 60))
  done
  echo stopped >state
}

status() {
  if running; then echo running; return; fi
  case $(cat state 2>/dev/null) in
    0) echo done ;;
    stopped) echo stopped ;;
    "") if [ -e pid ]; then echo lost; else echo "not started"; fi ;;
    *) echo "failed $(cat state)" ;;
  esac
}

log() {
  if [ "${2:-}" = follow ]; then exec tail -n "$1" -F log; fi
  tail -n "$1" log
}

stop() {
  if ! running; then echo "nothing is running"; return; fi
  touch stop
  kill -TERM "$(cat child)" 2>/dev/null
  if ! flock --timeout "$grace" lock true; then
    echo "it did not end within $grace seconds: killed" >&2
    kill -KILL -- "-$(cat pid)"
  fi
  echo stopped
}

verb=$1
shift
case $verb in
  install | start | supervise | status | log | stop) "$verb" "$@" ;;
  *) echo "host.sh: no such verb: $verb" >&2; exit 2 ;;
esac
"""
