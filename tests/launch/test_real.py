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
from emulators import free_port

pytestmark = pytest.mark.slow

TRAIN = ["--", "train", "--model_dir=/shared/run"]
PROGRAMS = f"{os.environ['PATH']}:/usr/sbin"
SSHD = shutil.which("sshd", path=PROGRAMS)
SLURM = ("munged", "sbatch", "slurmctld", "slurmd")
SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SchedulerParameters=sched_interval=1
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=500
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=500
PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=YES
"""


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
    port = free_port()
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


@pytest.fixture
def slurm(bench, monkeypatch):
    """A Slurm of two nodes, which are both this machine, in a folder of its own."""
    programs = {name: shutil.which(name, path=PROGRAMS) for name in SLURM}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.skip(f"this machine has no {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("only root starts nodes of Slurm")
    folder = bench.root / "slurm"
    (folder / "state").mkdir(parents=True)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    ports = [free_port() for _ in range(3)]
    (folder / "slurm.conf").write_text(
        SETTINGS.format(folder=folder, host=socket.gethostname().partition(".")[0], ports=ports)
    )
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    munge = [f"--key-file={folder}/key", f"--socket={folder}/munge", "--force", *files]
    servers = [
        subprocess.Popen([programs["munged"], "--foreground", *munge]),
        subprocess.Popen([programs["slurmctld"], "-D", "-c"]),
        *(subprocess.Popen([programs["slurmd"], "-D", "-N", name]) for name in ("one", "two")),
    ]
    for name in ("sbatch", "squeue", "scancel"):
        (bench.root / "bin" / name).unlink()
    bench.wait(lambda: idle_nodes() == 2, seconds=60)
    yield
    for server in reversed(servers):
        server.terminate()
        server.wait(20)


def idle_nodes() -> int:
    words = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return sum(map(int, found.stdout.split()))


@pytest.mark.usefixtures("slurm")
def test_a_job_of_two_nodes_of_slurm(bench):
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
