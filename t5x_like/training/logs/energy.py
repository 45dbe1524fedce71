"""The energy of a run and its emissions, after Strubell et al. (2019), section 2.

kWh = PUE * t (p_c + p_r + g p_g) / 1000 for t hours, with the power of processors, memory and g
devices in watts; times the emissions of the site's electricity.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t5x_like.core.devices.published import figures
from t5x_like.training.logs.starts import Start

PUE = 1.58
"""Power usage effectiveness: what a data centre takes for each watt of its machines."""
KG_PER_KWH = 0.4327
"""The average of the U.S., 0.954 pounds (EPA)."""

_CORE = 12.0
"""Watts of a busy core, and, below, of a gigabyte of memory (Lannelongue et al. 2021)."""
_GIGABYTE = 0.3725
_JOULES_OF_KWH = 3.6e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The assumptions about the site: its power and its emissions.

    Attributes:
      pue: power usage effectiveness, at least 1.
      kg_per_kwh: kilograms of CO2 equivalents for a kilowatt-hour.
      watts_per_device: the power of a device with its share of the host, in place of all others.
    """

    pue: float = PUE
    kg_per_kwh: float = KG_PER_KWH
    watts_per_device: float | None = None


def energy(starts: Sequence[Start], given: Assumptions) -> dict[str, Any]:
    """The energy of a run over all its starts, until the last line of each.

    Returns:
      `kwh` and `kg_co2e` (None where the power of the devices is not known), `pue`, `kg_per_kwh`,
      `kwh_of`: {part: kWh before PUE}, `device_hours`, and `basis`: sentences that say what was
      measured and what is assumed.
    """
    parts: dict[str, float] = {"processors": 0.0, "memory": 0.0, "devices": 0.0}
    basis: dict[str, None] = {}
    hours, known = 0.0, True
    for start in starts:
        seconds = sum(start.seconds.values())
        hosts = start.about.get("hosts", [])
        hours += sum(host["devices"] for host in hosts) * seconds / 3600
        joules, lines = _joules(start, seconds, hosts, given.watts_per_device)
        known = known and bool(hosts) and joules["devices"] is not None
        for part, value in joules.items():
            parts[part] += value or 0.0
        basis |= dict.fromkeys(lines)
    kwh = sum(parts.values()) / _JOULES_OF_KWH * given.pue if starts and known else None
    return {
        "kwh": kwh,
        "kg_co2e": None if kwh is None else kwh * given.kg_per_kwh,
        "pue": given.pue,
        "kg_per_kwh": given.kg_per_kwh,
        "kwh_of": {part: value / _JOULES_OF_KWH for part, value in parts.items()},
        "device_hours": hours,
        "basis": list(basis),
    }


def _joules(
    start: Start, seconds: float, hosts: Sequence[Mapping[str, Any]], watts: float | None
) -> tuple[dict[str, float | None], list[str]]:
    """The energy of a start by part, None where it is not known, and what it is based on."""
    devices = sum(host["devices"] for host in hosts)
    if watts is not None:
        of_all = f"Each device with its share of the host takes {watts:g} W (given)."
        return {"devices": devices * watts * seconds}, [of_all]
    machines = {host["name"]: host for host in hosts}
    memory = sum(host["host_bytes"] for host in machines.values()) / 1e9 * _GIGABYTE
    joules: dict[str, float | None] = {
        # All processes do the same work: those of the others are not measured.
        "processors": start.cpu_seconds * len(hosts) * _CORE,
        "memory": memory * seconds,
    }
    lines = [
        f"Processors: {_CORE:g} W for each busy core (assumed); the time that cores of process 0 "
        "were busy is measured, and counted for each process.",
        f"Memory: {_GIGABYTE:g} W for each gigabyte of each machine (assumed).",
    ]
    joules["devices"], of_devices = _device_joules(start, seconds, hosts)
    return joules, [*lines, *of_devices]


def _device_joules(
    start: Start, seconds: float, hosts: Sequence[Mapping[str, Any]]
) -> tuple[float | None, list[str]]:
    devices = sum(host["devices"] for host in hosts)
    devices_here = hosts[0]["devices"] if hosts else 0
    if start.joules is not None and devices_here:
        others = "" if devices_here == devices else f"; the {devices} of all processes count alike"
        line = f"GPUs: measured by NVML on the {devices_here} of process 0{others}."
        return start.joules / devices_here * devices, [line]
    total = 0.0
    assumed: list[str] = []
    for kind, count in _counted(hosts).items():
        if kind.lower() == "cpu":
            continue  # the processors have been counted
        if (watts := figures(kind).watts) is None:
            return None, [f"The power of {kind} is not published: give --watts_per_device."]
        total += watts * count * seconds
        assumed.append(f"{kind}: {watts:g} W each, by its data sheet (assumed).")
    return total, assumed


def _counted(hosts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for host in hosts:
        counts[host["device_kind"]] = counts.get(host["device_kind"], 0) + host["devices"]
    return counts
