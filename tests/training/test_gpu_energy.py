"""The energy of GPUs by the counters of a driver that is played here."""

from __future__ import annotations

import sys
import types

import pytest

from t5x_like.training.hosts import gpu_energy


class Gpu:
    platform = "gpu"

    def __init__(self, number: int) -> None:
        self.local_hardware_id = number


class NVMLError(Exception):
    pass


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Millijoules of GPUs by their number in the machine; "late" makes the driver fail."""
    found = {"0": 10, "1": 20, "2": 30, "GPU-2": 30}

    def count(handle: str) -> int:
        if "late" in found:
            raise NVMLError
        return found[handle]

    nvml = types.ModuleType("pynvml")
    for name, value in {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": str,
        "nvmlDeviceGetHandleByUUID": str,
        "nvmlDeviceGetTotalEnergyConsumption": count,
    }.items():
        setattr(nvml, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(gpu_energy.jax, "local_devices", lambda: [Gpu(0), Gpu(1)])
    return found


@pytest.mark.parametrize(
    ("visible", "used"), [("", ("0", "1")), ("1,2", ("1", "2")), ("1,GPU-2", ("1", "GPU-2"))]
)
def test_joules_since_the_start_of_the_gpus_that_are_used(
    counters: dict[str, int], monkeypatch: pytest.MonkeyPatch, visible: str, used: tuple[str, str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    joules = gpu_energy.gpu_joules()
    assert joules is not None
    for name, more in zip(used, (1000, 2000), strict=True):
        counters[name] += more
    assert joules() == 3.0
    counters["late"] = 1
    assert joules() == 3.0, "a failure ends no run"


def test_nothing_is_measured_without_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_energy.gpu_joules() is None  # on CPUs
    monkeypatch.setattr(gpu_energy.jax, "local_devices", lambda: [Gpu(0)])
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_energy.gpu_joules() is None
