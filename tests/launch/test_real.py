"""The launchers against a real sshd and a real Slurm, where this machine has them."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TRAIN = ["--", "train", "--model_dir=/shared/run"]
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


@pytest.fixture
def sshd(bench):
    """An sshd on the loopback, which gives each host a folder, and an `ssh` that finds it."""
    if SSHD is None or not shutil.which("ssh-keygen"):
        pytest.skip("there is no sshd on this machine")
    folder = bench.root / "sshd"
    folder.mkdir(mode=0o700)
    for key in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nUsePAM no\n"
        "KbdInteractiveAuthentication no\nStrictModes no\nPermitRootLogin prohibit-password\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "config").write_text(
        f"Host *\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n"
        f" IdentityFile {folder}/user\n IdentitiesOnly yes\n StrictHostKeyChecking no\n"
        f" UserKnownHostsFile {folder}/known\n LogLevel ERROR\n"
    )
    real = shutil.which("ssh", path="/usr/bin:/bin:/usr/local/bin")
    (bench.root / "bin/ssh").write_text(
        '#!/bin/bash\nhost=${@: -2:1}; script=${@: -1}; home="'
        + str(bench.root)
        + '/homes/$host"\n'
        f'mkdir -p "$home"\nexec {real} -F {folder}/config "${{@:1:$#-1}}" "cd $home && $script"\n'
    )
    server = subprocess.Popen([SSHD, "-D", "-f", f"{folder}/sshd_config", "-E", f"{folder}/log"])
    bench.wait((folder / "pid").exists)
    yield
    server.terminate()
    server.wait(20)


@pytest.mark.usefixtures("sshd")
def test_a_run_over_ssh_survives_a_kill_and_stops(bench, secret):
    bench.write("statuses", "run run run")
    words = [
        "--config=ssh",
        "--config.hosts=node1,node2",
        f"--config.package={bench.wheel}",
        f"--config.environment={bench.environment}",
        "--config.secrets=HF_TOKEN",
    ]
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.wait(lambda: len(bench.trained()) == 2)
    assert [one[1]["HF_TOKEN"] for one in bench.trained()] == [secret] * 2
    child = bench.root / "homes/node2/t5x_like_launches/run/1/child"
    os.kill(int(child.read_text()), signal.SIGKILL)
    bench.wait(lambda: len(bench.trained()) == 3)
    assert bench.launch("run", "stop") == 0, bench.err
    assert bench.launch("run", "status") == 0
    assert bench.out == "node1: stopped\nnode2: stopped\n"


def test_a_job_of_two_nodes_of_slurm(bench):
    path = os.pathsep.join(os.environ["PATH"].split(os.pathsep)[1:])
    if not shutil.which("sbatch", path=path):
        pytest.skip("there is no Slurm on this machine")
    for name in ("sbatch", "squeue", "scancel"):
        (bench.root / "bin" / name).unlink()
    idle = subprocess.run(
        ["sinfo", "--noheader", "--states=idle", "--format=%D"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if sum(map(int, idle)) < 2:
        pytest.skip("Slurm has no two idle nodes")
    words = [
        "--config=slurm",
        "--config.nodes=2",
        "--config.gpus_per_node=0",
        f"--config.package={bench.wheel}",
        f"--config.environment={bench.environment}",
    ]
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.wait((bench.launches / "run/bundle/end").exists, seconds=60)
    assert bench.launch("run", "status") == 0
    assert bench.out.endswith("done\n")
    numbers = sorted(one[0][4] for one in bench.trained())
    assert numbers == ["--process_id=0", "--process_id=1"]
