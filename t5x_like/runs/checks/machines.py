"""The hosts of a run, and whether they are enough: devices, clocks, disks, memory.

All processes call these functions; each has the findings of all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from etils import epath

from t5x_like.core.buckets import storage
from t5x_like.core.partitioning import device_bytes
from t5x_like.runs.checks.findings import Finding, of_all_hosts
from t5x_like.training.hosts import inventory

CLOCK_SECONDS = 30.0
"""The most by which the clocks of two hosts may differ."""


def devices(hosts: Sequence[inventory.Host]) -> Iterator[Finding]:
    """The devices and versions of all hosts, and where they differ."""
    yield Finding("devices", "good", inventory.summary(hosts))
    different = inventory.differences(hosts)
    for line in different:
        yield Finding(
            "devices", "bad", line, "All hosts need the same devices, packages and drivers"
        )
    for line in dict.fromkeys(line for host in hosts for line in host.unused):
        yield Finding("devices", "note", line)
    if not different:
        versions = ", ".join(f"{name} {version}" for name, version in hosts[0].versions.items())
        yield Finding("versions", "good", versions)


def clocks(hosts: Sequence[inventory.Host]) -> Iterator[Finding]:
    """Whether the hosts have the same time."""
    if len(hosts) == 1:
        return
    early, late = (choose(hosts, key=lambda host: host.clock) for choose in (min, max))
    apart = late.clock - early.clock
    if apart <= CLOCK_SECONDS:
        yield Finding("clocks", "good", f"at most {apart:.1f} s apart")
        return
    yield Finding(
        "clocks",
        "note",
        f"{late.name} is {apart:.0f} s ahead of {early.name}",
        "Stores refuse requests of wrong clocks, and logs mislead: set them by NTP (chronyc "
        "makestep)",
    )


def room(model_dir: epath.Path, state: Any, hosts: Sequence[inventory.Host]) -> list[Finding]:
    """Whether disk and memory have room for checkpoints of a state, whose leaves are shapes."""
    return of_all_hosts([*_disk(model_dir, state), *_memory(state)], [host.name for host in hosts])


def _disk(model_dir: epath.Path, state: Any) -> Iterator[Finding]:
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    if storage.is_url(model_dir):
        yield Finding("room", "good", f"a checkpoint takes {size / 1e9:.3g} GB of the bucket")
        return
    free = shutil.disk_usage(model_dir).free
    text = f"a checkpoint takes {size / 1e9:.3g} GB, {free / 1e9:.3g} GB are free in {model_dir}"
    if free >= 2 * size:
        yield Finding("room", "good", text)
        return
    advice = "One is written before another is removed: make room, or name another directory"
    yield Finding("room", "note" if free >= size else "bad", text, advice)


def _memory(state: Any) -> Iterator[Finding]:
    """A checkpoint is copied to the memory of its hosts and written while training goes on."""
    here = device_bytes(state) * jax.local_device_count()
    free = inventory.this_host().free_bytes
    if not free:
        return
    text = f"a checkpoint takes at most {here / 1e9:.3g} GB of a host's memory"
    if free >= here:
        yield Finding("memory", "good", text)
        return
    yield Finding(
        "memory",
        "note",
        f"{text}, and {free / 1e9:.3g} GB are free",
        "Shard the state over more hosts (--mesh fsdp=-1), or take hosts with more memory",
    )
