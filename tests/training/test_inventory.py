"""What hosts have, where they differ, and what JAX does not use."""

from __future__ import annotations

import dataclasses
import glob
import json
from collections.abc import Callable

import pytest

from t5x_like.training.hosts import inventory
from t5x_like.training.hosts.inventory import Host

HOST = Host(
    name="node0",
    process=0,
    device_kind="TPU v5 lite",
    devices=4,
    device_bytes=16_900_000_000,
    host_bytes=200_000_000_000,
    free_bytes=190_000_000_000,
    cores=112,
    versions={"jax": "0.10.2", "libtpu": "0.0.42"},
    unused=[],
    clock=1_800_000_000.0,
)


def test_equal_hosts_are_counted() -> None:
    hosts = [dataclasses.replace(HOST, name=f"node{n}", process=n) for n in range(4)]
    assert inventory.summary(hosts) == "4 hosts with 4 TPU v5 lite of 16.9 GB each"
    assert inventory.peak_line(hosts) == "3,152 TFLOP/s in bfloat16 at peak"
    assert inventory.differences(hosts) == []


def test_hosts_that_differ_are_named() -> None:
    fewer = dataclasses.replace(HOST, name="node1", devices=3)
    older = dataclasses.replace(HOST, name="node2", versions={"jax": "0.10.1"})
    assert inventory.differences([HOST, fewer, older]) == [
        "node1 has 3 TPU v5 lite, node0 has 4 TPU v5 lite",
        "jax is 0.10.1 on node2, 0.10.2 on node0",
        "libtpu is missing on node2, 0.0.42 on node0",
    ]
    assert "1 host with 3" in inventory.summary([HOST, fewer])


@pytest.mark.parametrize(
    ("platforms", "advice"), [("", "pip install 't5x_like[cuda]'"), ("cpu", "unset that")]
)
def test_an_accelerator_that_jax_does_not_use_is_said(
    platforms: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setattr(glob, "glob", lambda pattern: ["/dev/nvidia0"] * ("nvidia" in pattern))
    (line,) = inventory._unused("cpu")
    assert "NVIDIA" in line
    assert advice in line
    assert inventory._unused("gpu") == []


def test_the_command_says_what_this_host_has(cli: Callable) -> None:
    done = cli("devices")
    assert done.status == 0
    assert "8 x cpu" in done.out
    found = json.loads(cli("devices", "--json").out)
    assert [(one["process"], one["devices"]) for one in found["hosts"]] == [(0, 8)]
