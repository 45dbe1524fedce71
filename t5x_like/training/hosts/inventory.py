"""The inventory of a run's hosts: devices, memory, cores, and accelerators that JAX leaves out."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from t5x_like.core.devices.attached import attached
from t5x_like.core.devices.published import peak_flops
from t5x_like.training.hosts import multihost

_PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")
_NAMES = {"cuda": "an NVIDIA GPU", "tpu": "a TPU"}


@dataclasses.dataclass(frozen=True)
class Host:
    """One process of a run and the machine that it runs on.

    Attributes:
      name: the machine's name.
      process: the number of the process.
      device_kind: JAX's name of its devices.
      devices: the number of its devices.
      device_bytes: the memory of one; 0 where it is not known.
      host_bytes: the memory of the machine; 0 where it is not known.
      free_bytes: what is free of it; 0 where it is not known.
      cores: the cores that the process may use.
      versions: the versions of packages that differ between working and broken hosts.
      unused: accelerators of the machine that JAX does not use, each with what to do.
      clock: its time, in seconds since 1970.
    """

    name: str
    process: int
    device_kind: str
    devices: int
    device_bytes: int
    host_bytes: int
    free_bytes: int
    cores: int
    versions: dict[str, str]
    unused: list[str]
    clock: float


def this_host() -> Host:
    """The `Host` of this process."""
    devices = jax.local_devices()
    memory = (devices[0].memory_stats() or {}).get("bytes_limit", 0) if devices else 0
    return Host(
        name=socket.gethostname(),
        process=jax.process_index(),
        device_kind=devices[0].device_kind if devices else "none",
        devices=len(devices),
        device_bytes=int(memory),
        host_bytes=_host_bytes(),
        free_bytes=_free_bytes(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        versions=_versions(),
        unused=_unused(jax.default_backend()),
        clock=time.time(),
    )


def all_hosts() -> list[Host]:
    """The hosts of all processes, in their order. Every process must call this."""
    multihost.barrier("all hosts")  # so that their clocks are read at the same time
    text = json.dumps(dataclasses.asdict(this_host()))
    texts = multihost.every_text("what all hosts are", text)
    return [Host(**json.loads(text)) for text in texts]


def summary(hosts: Sequence[Host]) -> str:
    """A sentence about all hosts: how many, and what they have."""
    kinds = {
        (host.devices, host.device_kind, host.device_bytes): [
            other.name for other in hosts if _kind(other) == _kind(host)
        ]
        for host in hosts
    }
    parts = []
    for (devices, kind, memory), names in kinds.items():
        of = f" of {memory / 1e9:.1f} GB" if memory else ""
        each = " each" if len(names) > 1 else ""
        counted = "1 host" if len(names) == 1 else f"{len(names)} hosts"
        parts.append(f"{counted} with {devices} {kind}{of}{each}")
    return " and ".join(parts)


def peak_line(hosts: Sequence[Host]) -> str:
    """The peak rate of all devices together; "" where it is not known."""
    peaks = [(peak_flops(host.device_kind) or 0) * host.devices for host in hosts]
    return f"{sum(peaks) / 1e12:,.0f} TFLOP/s in bfloat16 at peak" if all(peaks) else ""


def differences(hosts: Sequence[Host]) -> list[str]:
    """Lines about hosts whose devices or packages are not those of the first."""
    first = hosts[0]
    lines = []
    for other in hosts[1:]:
        if _kind(other) != _kind(first):
            lines.append(
                f"{other.name} has {other.devices} {other.device_kind}, {first.name} has "
                f"{first.devices} {first.device_kind}"
            )
        for package in sorted(other.versions.keys() | first.versions.keys()):
            version, first_version = (
                host.versions.get(package, "missing") for host in (other, first)
            )
            if version != first_version:
                lines.append(
                    f"{package} is {version} on {other.name}, {first_version} on {first.name}"
                )
    return lines


def _kind(host: Host) -> tuple[int, str, int]:
    return host.devices, host.device_kind, host.device_bytes


def _host_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _free_bytes() -> int:
    """Memory that can be had without swapping, as Linux estimates it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    (available,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(available.split()[1]) * 1024


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    driver = Path("/proc/driver/nvidia/version")
    if driver.exists():
        versions["NVIDIA driver"] = driver.read_text().split("Kernel Module")[-1].split()[0]
    return versions


def _unused(backend: str) -> list[str]:
    """Accelerators that are here while JAX computes on the CPU, each with what to do."""
    if backend != "cpu":
        return []
    chosen = os.environ.get("JAX_PLATFORMS")
    return [
        f"{_NAMES[extra]} is here, but JAX_PLATFORMS={chosen} keeps JAX from it: unset that"
        if chosen
        else f"{_NAMES[extra]} is here, but this JAX cannot use it: pip install 't5x_like[{extra}]'"
        for extra in attached()
    ]
