"""Processes whose environments differ are refused before they compute together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import emulators
import pytest

from t5x_like.core import exit_status
from t5x_like.training.hosts import environments

ROOT = Path(__file__).parent.parent.parent
MEMBER = """
import sys
from t5x_like.training.hosts import joining
from t5x_like.training.hosts.multihost import ProcessError, everywhere
port, process = map(int, sys.argv[1:])
members = joining.Members(f"127.0.0.1:{port}", 2, process)
try:
    joining.join(members, watch_port=0, start_seconds=60)
except ProcessError as error:
    sys.exit(str(error))
print(everywhere("joined", True).all(), flush=True)
"""
LOUD = {
    "XLA_FLAGS": os.environ["XLA_FLAGS"] + " --xla_dump_max_hlo_modules=3",
    "JAX_LOG_COMPILES": "1",
}


def run(changed: dict[str, str]) -> list[tuple[int, str]]:
    """The status and output of two processes, the second of which has a changed environment."""
    port = str(emulators.free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, port, str(n)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(changed if n else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for n in range(2)
    ]
    try:
        outputs = [one.communicate(timeout=120)[0] for one in processes]
    finally:
        for one in processes:
            with one:
                one.kill()
    return [(one.returncode, text) for one, text in zip(processes, outputs, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "here", "there"),
    [
        ({"JAX_ENABLE_X64": "1"}, "JAX_ENABLE_X64=False", "JAX_ENABLE_X64=True"),
        (
            {"XLA_FLAGS": os.environ["XLA_FLAGS"].replace("count=8", "count=4")},
            "8 devices",
            "4 devices",
        ),
    ],
    ids=["x64", "devices"],
)
def test_a_difference_is_named_by_both(changed: dict[str, str], here: str, there: str) -> None:
    for status, said in run(changed):
        assert status == exit_status.ERROR, said
        assert "the environment of process(es) 1 is not that of process 0" in said
        assert f"process 0 has {here!r}, process 1 {there!r}" in said


@pytest.mark.slow
def test_where_a_host_shows_things_is_its_own_business() -> None:
    for status, said in run(LOUD):
        assert status == exit_status.DONE, said
        assert "\nTrue\n" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
        ("LIBTPU_INIT_ARGS", "--xla_tpu_enable_async_collective_fusion=true"),
        ("NVIDIA_TF32_OVERRIDE", "0"),
        ("XLA_FLAGS", "--xla_gpu_load_autotune_results_from=/log/cache/tuned"),
    ],
)
def test_variables_that_change_programs_are_compared(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = environments.lines(2)
    monkeypatch.setenv(name, f"{os.environ.get(name, '')} {value}")
    assert [line for line in environments.lines(2) if line not in before] == [f"{name} {value}"]


def test_settings_of_jax_that_change_numbers_are_compared() -> None:
    names = {line.partition("=")[0] for line in environments.lines(2)}
    assert names >= {
        "JAX_DEFAULT_MATMUL_PRECISION",
        "JAX_DEFAULT_PRNG_IMPL",
        "JAX_ENABLE_X64",
        "JAX_NUMPY_DTYPE_PROMOTION",
        "JAX_THREEFRY_PARTITIONABLE",
    }
    assert not {name for name in names if "CACHE" in name or "LOG" in name}
