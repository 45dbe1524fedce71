import fnmatch
import glob
import os
import platform
import subprocess
import sys

import pytest

from t5x_like.cli.common import host_memory

FREES = """
import resource, sys, threading
from t5x_like.cli.common import host_memory

if sys.argv[1] == "keep":
    host_memory.keep_freed()

def work():
    for _ in range(10):
        b"x" * (1 << 26)

before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how, **variables):
    """Pages that the system had to make, for strings of which one at a time is there."""
    command = [sys.executable, "-c", FREES, how]
    ended = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the C library of GNU")
def test_freed_memory_is_used_again_by_every_thread():
    returned = pages("return", JAX_PLATFORMS="cpu")
    assert pages("keep", JAX_PLATFORMS="cpu") < 0.2 * returned
    assert pages("keep", JAX_PLATFORMS="cuda,cpu") > 0.8 * returned


@pytest.mark.parametrize(
    ("chosen", "installed", "files", "is_cpu"),
    [
        ("cpu", ["libtpu"], ["/dev/accel0"], True),
        ("tpu,cpu", [], [], False),
        (None, [], ["/dev/accel0"], True),
        (None, ["libtpu"], [], True),
        (None, ["libtpu"], ["/dev/accel0"], False),
        (None, ["libtpu"], ["/dev/vfio/0"], False),
        (None, ["jax_plugins"], [], False),
    ],
)
def test_the_cpu_is_told_without_jax(chosen, installed, files, is_cpu, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    if chosen:
        monkeypatch.setenv("JAX_PLATFORMS", chosen)
    found = {name: name for name in installed}
    monkeypatch.setattr(host_memory.importlib.util, "find_spec", found.get)
    monkeypatch.setattr(glob, "glob", lambda pattern: fnmatch.filter(files, pattern))
    assert host_memory._on_cpu() == is_cpu
