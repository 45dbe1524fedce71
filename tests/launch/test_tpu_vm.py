"""launch/tpu_vm.py against a stand-in for gcloud that records its calls."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t5x_like.config import gin_files

ROOT = Path(__file__).parent.parent.parent
WHEEL = "dist/t5x_like-0.1.0-py3-none-any.whl"
PLACE = ["--config.project=mine", "--config.zone=us-west4-a"]
ALL = [*PLACE, f"--config.package={WHEEL}", "--", "--gin_file=runs/x.gin"]

GCLOUD = f"""#!{sys.executable}
import json, os, pathlib, sys
here = pathlib.Path(os.environ["FAKE"])
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if os.environ.get("FAIL_AT", "nothing") in " ".join(sys.argv):
    sys.exit(7)
if "describe" in sys.argv:
    states = (here / "states").read_text().split()
    print(states[0])
    (here / "states").write_text(" ".join(states[1:] or states))
"""


@pytest.fixture
def machine(tmp_path):
    """A working folder with a wheel, and gcloud in `bin`; queued requests are ACTIVE at once."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gcloud").write_text(GCLOUD)
    (tmp_path / "bin/gcloud").chmod(0o755)
    (tmp_path / "states").write_text("ACTIVE")
    (tmp_path / WHEEL).parent.mkdir()
    (tmp_path / WHEEL).touch()
    (tmp_path / "launch").symlink_to(ROOT / "launch")
    return tmp_path


def launch(machine, *arguments, path=None, **variables):
    """Runs the launcher as a user does; returns the completed process."""
    path = path or f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "launch/tpu_vm.py", *arguments],
        cwd=machine,
        env={**os.environ, "PATH": path, "FAKE": str(machine), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def calls(machine) -> list[list[str]]:
    """The calls of gcloud so far, in order."""
    file = machine / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def script_of(call: list[str]) -> str:
    """The script that a call of `ssh` runs on the hosts."""
    (found,) = (word for word in call if word.startswith("--command="))
    return found.removeprefix("--command=")


def test_prints_a_plan_and_runs_nothing(machine):
    done = launch(machine, *ALL)
    assert done.returncode == 0, done.stderr
    assert calls(machine) == []
    assert "nothing was run" in done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("# ")] == [
        "# create",
        "# create",
        "# install",
        "# install",
        "# start",
    ]


def test_the_printed_plan_is_a_shell_script_of_the_calls_that_run_makes(machine):
    plan = launch(machine, *ALL).stdout
    environment = {**os.environ, "PATH": f"{machine / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(
        ["bash", "-ec", plan], env={**environment, "FAKE": str(machine)}, cwd=machine, check=True
    )
    printed = calls(machine)
    (machine / "calls").unlink()
    assert launch(machine, "--run", *ALL).returncode == 0
    assert calls(machine) == printed


def test_run_creates_waits_installs_and_starts(machine):
    (machine / "states").write_text("WAITING_FOR_RESOURCES PROVISIONING ACTIVE")
    done = launch(machine, "--run", "--config.poll_seconds=0", "--config.spot", *ALL)
    assert done.returncode == 0, done.stderr
    place = ["--project=mine", "--zone=us-west4-a"]
    create, *waits, copy, install, start = calls(machine)
    assert create == [
        *"compute tpus queued-resources create t5x-like --accelerator-type=v5litepod-8".split(),
        *"--runtime-version=v2-alpha-tpuv5-lite --node-id=t5x-like --spot".split(),
        *place,
    ]
    asked = "compute tpus queued-resources describe t5x-like --format=value(state.state)".split()
    assert waits == [[*asked, *place]] * 3
    assert copy == [*f"compute tpus tpu-vm scp {WHEEL} t5x-like: --worker=all".split(), *place]
    for call in (install, start):
        assert call[:5] == ["compute", "tpus", "tpu-vm", "ssh", "t5x-like"]
        assert "--worker=all" in call
        subprocess.run(["bash", "-n", "-c", script_of(call)], check=True)
    assert "'../t5x_like-0.1.0-py3-none-any.whl[tpu]'" in script_of(install)
    assert "venv/bin/t5x_like train --distributed --gin_file=runs/x.gin >>log" in script_of(start)


def test_a_slice_without_the_queue(machine):
    done = launch(machine, "create", "delete", "--run", "--config.queued=false", *PLACE)
    assert done.returncode == 0, done.stderr
    create, delete = calls(machine)
    assert create[2:4] == ["tpu-vm", "create"]
    assert "--version=v2-alpha-tpuv5-lite" in create
    assert not any(word.startswith("--node-id") for word in create)
    assert delete[2:6] == ["tpu-vm", "delete", "t5x-like", "--quiet"]


def test_log_stop_and_delete(machine):
    done = launch(machine, "log", "stop", "delete", "--run", *PLACE)
    assert done.returncode == 0, done.stderr
    log, stop, delete = calls(machine)
    assert "--worker=0" in log
    assert "kill -TERM" in script_of(stop)
    assert delete[2:7] == ["queued-resources", "delete", "t5x-like", "--force", "--quiet"]


def test_a_package_from_git(machine):
    url = "git+https://example.org/me/it.git@v1"
    done = launch(
        machine, "install", "--run", *PLACE, f"--config.package={url}", "--config.extras=tpu,data"
    )
    assert done.returncode == 0, done.stderr
    (install,) = calls(machine)
    assert f"'t5x_like[tpu,data] @ {url}'" in script_of(install)


@pytest.mark.parametrize(
    ("fail_at", "made", "step"),
    [
        ("create", 1, "create"),
        ("describe", 2, "create"),
        ("scp", 3, "install"),
        ("uv venv", 4, "install"),
        ("train", 5, "start"),
    ],
)
def test_a_failure_stops_the_rest(machine, fail_at, made, step):
    done = launch(machine, "--run", *ALL, FAIL_AT=fail_at)
    assert done.returncode == 1
    assert len(calls(machine)) == made
    assert f"step '{step}' failed (exit status 7); nothing after it was run" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_a_request_that_cannot_be_filled_ends_the_wait(machine, state):
    (machine / "states").write_text(f"WAITING_FOR_RESOURCES {state}")
    done = launch(machine, "--run", "--config.poll_seconds=0", *ALL)
    assert done.returncode == 1
    assert f"step 'create' failed ({state})" in done.stderr
    assert [call[3] for call in calls(machine)] == ["create", "describe", "describe"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--config.project is missing"),
        ([], "--config.zone is missing"),
        ([], "--config.package=''"),
        ([], "what to train is missing"),
        (["instal", *ALL], "no such step: instal; the steps are create, install"),
        (["--config.name=My_TPU", *ALL], "--config.name='My_TPU'"),
        (["--config.accelerator=v9-8", *ALL], "one of v2, v3, v4, v5litepod, v5p, v6e"),
        (["--config.accelerator=v6e", *ALL], "--config.accelerator='v6e'"),
        (["--config.env=A='x", *ALL], "--config.env"),
        (["--config.env=1A=2", *ALL], "--config.env"),
        ([*PLACE, "--config.package=no.whl", "--", "-x"], "--config.package='no.whl'"),
        (["--config.zoen=a", *ALL], 'Did you mean "zone"'),
        (["--config=nowhere.py", *ALL], "nowhere.py"),
        (["--config.spot=perhaps", *ALL], "--config.spot=perhaps"),
    ],
)
def test_wrong_configuration_is_told_before_anything_runs(machine, arguments, told):
    done = launch(machine, "--run", *arguments)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert calls(machine) == []


def test_without_gcloud(machine):
    done = launch(machine, "--run", *ALL, path=str(machine))
    assert done.returncode == 1
    assert "gcloud is not on PATH" in done.stderr


def test_fields_from_a_file_and_flags_over_them(machine):
    mine = (ROOT / "launch/tpu_vm_config.py").read_text()
    (machine / "mine.py").write_text(
        mine.replace('"project": ""', '"project": "from-file"')
        .replace('"zone": ""', '"zone": "zone-of-file"')
        .replace('"train": ()', '"train": ("--gin_file=from/file.gin",)')
    )
    done = launch(machine, "--config=mine.py", "--config.zone=of-flag", f"--config.package={WHEEL}")
    assert done.returncode == 0, done.stderr
    assert "--project=from-file --zone=of-flag" in done.stdout
    assert "train --distributed --gin_file=from/file.gin" in done.stdout


def test_help_lists_every_step_and_field(machine):
    done = launch(machine, "--help")
    sys.path.insert(0, str(ROOT / "launch"))
    try:
        import tpu_vm_config
    finally:
        sys.path.pop(0)
    for field in tpu_vm_config.get_config():
        assert f'"{field}":' in done.stdout
    for step in ("create", "install", "start", "log", "stop", "delete"):
        assert f"\n  {step} " in done.stdout


@pytest.fixture
def host(tmp_path):
    """A host: a home whose `t5x_like` writes down how it was called and lives until SIGTERM."""
    program = tmp_path / "t5x_like_run/venv/bin/t5x_like"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/bash\ntrap 'echo saved; exit 0' TERM\n"
        'printf "%s\\n" "$@" "$GREETING" | tee called\nwhile true; do sleep 0.05; done\n'
    )
    program.chmod(0o755)
    return tmp_path


def on_host(host, script):
    """Runs a script in the home of a host, as ssh would."""
    return subprocess.run(
        ["bash", "-c", script],
        cwd=host,
        env={**os.environ, "HOME": str(host)},
        capture_output=True,
        text=True,
        check=False,
    )


def wait_for(file: Path, text: str) -> None:
    """Returns once a file holds the text."""
    for _ in range(200):
        if file.exists() and text in file.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"{file} never held {text!r}")


def test_the_hosts_scripts_run_once_keep_their_words_and_stop(machine, host):
    words = ["--gin.MODEL_DIR='/mnt/a b'", "--gin.X=$HOME", 'say "it"']
    environment = "--config.env=GREETING='good \"day\" $USER' B="
    prepare = "--config.prepare=cd / && touch ~/prepared"
    steps = ["start", "install", "stop", "--run", environment, prepare, *ALL[:-1], *words]
    assert launch(machine, *steps).returncode == 0
    start, _, install, stop = map(
        script_of, [c if "ssh" in c else ["--command="] for c in calls(machine)]
    )

    done = on_host(host, start)
    assert done.returncode == 0, done.stderr
    assert "started" in done.stdout
    run = host / "t5x_like_run"
    wait_for(run / "called", "day")
    assert (run / "called").read_text().splitlines() == [
        "train",
        "--distributed",
        *words,
        'good "day" $USER',
    ]
    assert (host / "prepared").exists()
    for script in (start, install):
        again = on_host(host, script)
        assert again.returncode == 1
        assert "a run is under way" in again.stderr

    for _ in range(2):
        assert on_host(host, stop).returncode == 0
        assert (run / "log").read_text().endswith("saved\n")


def documented_commands() -> list[list[str]]:
    """The launcher's command lines in docs/tpu_pod.md."""
    text = (ROOT / "docs/tpu_pod.md").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("python launch/tpu_vm.py ")]


def test_the_guide_has_commands():
    assert len(documented_commands()) >= 8


@pytest.mark.parametrize("words", documented_commands(), ids=lambda words: " ".join(words[2:4]))
def test_every_command_of_the_guide_works(machine, words):
    done = launch(machine, *words[2:])
    assert done.returncode == 0, done.stderr
    assert bool(calls(machine)) == ("--run" in words)
    for file in (word.partition("=")[2] for word in words if word.startswith("--gin_file=")):
        assert gin_files.find(file), file
