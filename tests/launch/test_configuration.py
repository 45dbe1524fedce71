"""Fields, problems and secrets of all launchers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from t5x_like.launching import engine, shipping
from t5x_like.training.hosts import code_version

TRAIN = ["--", "train", "--model_dir=gs://bucket/run"]
IMAGE = "us-docker.pkg.dev/mine/images/t5x_like@sha256:" + "a" * 64


def complete(bench) -> dict[str, list[str]]:
    """Words that start a run with each launcher."""
    host = [f"--config.package={bench.wheel}", f"--config.environment={bench.environment}"]
    return {
        "tpu_vm": ["--config=tpu_vm", "--config.project=p", "--config.zone=z", *host],
        "gke": ["--config=gke", f"--config.image={IMAGE}", "--config.topology=v5e-8"],
        "slurm": ["--config=slurm", *host],
        "ssh": ["--config=ssh", "--config.hosts=n", *host],
    }


@pytest.mark.parametrize("name", engine.names())
def test_secrets_are_shown_nowhere(bench, name, secret):
    words = [*complete(bench)[name], "--config.secrets=HF_TOKEN", "--yes"]
    written = json.dumps(secret).strip('"')
    shown = []
    for more in (["--dry_run"], []):
        assert bench.launch("run", *words, *more, *TRAIN) == 0, bench.err
        shown += [bench.out, bench.err]
        assert not more or not list(bench.launches.rglob("*"))
    assert "***" in shown[0]
    shown += [json.dumps(bench.calls()), (bench.launches / "run/launch.json").read_text()]
    for path in (bench.launches / "run").rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o777 != 0o600:
            shown.append(path.read_text(errors="replace"))
    for text in shown:
        assert "hunter2" not in text
    arrived = bench.given().decode(errors="replace") + "".join(
        path.read_text() for path in bench.launches.rglob("secrets.sh")
    )
    assert "hunter2" in arrived
    assert name != "gke" or written in arrived


@pytest.mark.parametrize("name", engine.names())
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "what to run is missing"),
        (["--", "eval", "x"], "the launchers start  train  or  finetune  alone"),
        (["--", "train"], "--model_dir is missing"),
        (["--", "finetune", "gs://b/run"], "--model_dir is missing after -- finetune"),
        (["--", "train", "--model_dir=runs/x"], "the same on all hosts"),
        ([*TRAIN, "--distributed"], "leave it out"),
        ([*TRAIN, "--gin_file=nowhere.gin"], "no gin file 'nowhere.gin'"),
        ([*TRAIN, "--gin_file=/etc/hosts"], "relative to the working folder"),
        (["--config.secrets=NO_SUCH", *TRAIN], "there is no such variable here; export it first"),
        (["--config.env=A", *TRAIN], "write it as A=1 B='two words'"),
        (["--config.env=A='x", *TRAIN], "write it as A=1 B='two words'"),
        (["--config.env=WANDB_API_KEY=hunter2", *TRAIN], "--config.secrets=WANDB_API_KEY"),
        *(
            ([f"--config.env={name}=hunter2", *TRAIN], f"--config.secrets={name}")
            for name in ("GITHUB_PAT", "DB_PWD", "MY_PASS", "PASSPHRASE", "PAT_2", "http_auth")
        ),
        (["--config.env=PROXY=http://me:hunter2@h", *TRAIN], "PROXY looks like a secret"),
        ([*TRAIN, "--corpus=https://me:hunter2@h/a.txt"], "https://...@h/a.txt: it has a password"),
        (["--config.hours=-1", *TRAIN], "it must not be negative"),
        (["--config.zoen=1", *TRAIN], "--config"),
        (["--config.hours=many", *TRAIN], "--config"),
        (["--config=nowhere.py", *TRAIN], "shipped are gke, slurm, ssh, tpu_vm"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(bench, name, words, told):
    assert bench.launch("run", *complete(bench)[name], *words) == 1
    assert told in bench.err
    assert "hunter2" not in bench.err
    assert not bench.calls()
    assert not bench.launches.exists()


@pytest.mark.parametrize(
    ("name", "word", "told"),
    [
        ("tpu_vm", "--config.project=", "gcloud projects list"),
        ("tpu_vm", "--config.zone=", "gcloud compute tpus locations list"),
        ("tpu_vm", "--config.zone=z;touch x", "no such name is possible"),
        ("tpu_vm", "--config.topology=v9-8", "no TPU 'v9'"),
        ("tpu_vm", "--config.slices=0", "at least 1"),
        ("tpu_vm", "--config.wait_hours=0", "positive"),
        ("tpu_vm", "--config.package=no.whl", "no such wheel"),
        ("tpu_vm", "--config.package=git+https://u:hunter2@example.org/x@v1", "credential helper"),
        ("tpu_vm", "--config.package=git+https://example.org/x@v1", "a commit of 40 digits"),
        ("tpu_vm", "--config.environment=env", "a path from the root"),
        ("ssh", "--config.hosts=", "--config.hosts is missing"),
        ("ssh", "--config.hosts=-oProxyCommand=x", "is not a name of a host"),
        ("ssh", "--config.hosts=a,a", "twice"),
        ("ssh", "--config.port=0", "between 1 and 65534"),
        ("slurm", "--config.nodes=0", "at least 1"),
        ("slurm", "--config.time=soon", "1-00:00:00"),
        ("slurm", "--config.image=x.sif", "choose one"),
        ("slurm", "--config.container=docker", "apptainer or pyxis"),
        ("gke", "--config.image=name:tag", "NAME@sha256:"),
        ("gke", "--config.topology=", "give one of them"),
        ("gke", "--config.gpu=nvidia-l4", "give one of them"),
        ("gke", "--config.topology=v3-8", "Kubernetes Engine has no v3"),
        ("gke", "--config.node_selector=a", "label=value"),
        ("gke", "--config.namespace=A b", "is not a name of Kubernetes"),
    ],
)
def test_wrong_fields_are_told(bench, name, word, told):
    assert bench.launch("run", *complete(bench)[name], word, *TRAIN) == 1
    assert told in bench.err
    assert "hunter2" not in bench.err
    assert not bench.calls()


def test_all_problems_are_told_together(bench):
    words = ["--config=tpu_vm", "--config.topology=v9-8", "--config.env=A", "--", "train"]
    assert bench.launch("My run", *words) == 1
    for told in ("'My run'", "project", "zone", "v9", "A=1", "--model_dir", "nothing was run"):
        assert told in bench.err


def test_a_copy_of_a_configuration_and_flags_over_it(bench):
    shipped = Path(shipping.__file__).parents[2] / "launch/ssh.py"
    mine = shipped.read_text().replace('"hosts": ""', '"hosts": "a,b"')
    bench.write("mine.py", mine.replace('"port": 8476', '"port": 1234'))
    words = ["--config=mine.py", f"--config.package={bench.wheel}", "--config.port=99"]
    assert bench.launch("run", *words, "--dry_run", *TRAIN) == 0, bench.err
    assert "--coordinator_address=a:99 --num_processes=2 --process_id=1" in bench.out


def test_a_name_that_was_not_launched(bench):
    assert bench.launch("run", *complete(bench)["ssh"], *TRAIN) == 0
    assert bench.launch("rum", "status") == 1
    assert "nothing was launched as 'rum'" in bench.err
    assert "nearest: run" in bench.err
    assert bench.launch("rum") == 1
    assert "--config is missing: one of gke, slurm, ssh, tpu_vm" in bench.err
    assert bench.launch("run", "stop", "--config=ssh") == 2


def test_help_lists_every_action_and_field(bench):
    assert bench.launch("--help") == 0
    for name in engine.names():
        assert f"\n{name}:\n" in bench.out
    for word in ("start", "watch", "logs", '"wait_hours": 24.0,', '"gpus_per_node": 8,'):
        assert word in bench.out


@pytest.mark.slow
def test_the_checkout_is_packed_and_named_by_its_commit(bench, monkeypatch):
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    words = [word for word in complete(bench)["ssh"] if "package" not in word]
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    (wheel,) = (bench.launches / "run/bundle").glob("*.whl")
    code = json.loads((bench.launches / "run/launch.json").read_text())["code"]
    head = subprocess.run(
        ["git", "-C", str(code_version.checkout()), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    assert code["commit"] == (head or None)
    assert f"-0g{head[:10] or '0'}" in wheel.name
    assert not (bench.launches / "run/build").exists()
