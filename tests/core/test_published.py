"""Peak FLOP/s by device kind."""

from __future__ import annotations

import pytest

from t5x_like.core.devices.published import peak_flops


@pytest.mark.parametrize(
    ("kind", "teraflops"),
    [
        ("TPU v4", 275),
        ("TPU v5 lite", 197),
        ("TPU v5", 459),
        ("TPU v6 lite", 918),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("Tesla V100-PCIE-16GB", 112),
        ("Tesla V100-SXM2-16GB", 125),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
    ],
)
def test_known_devices(kind: str, teraflops: float) -> None:
    assert peak_flops(kind) == teraflops * 1e12


@pytest.mark.parametrize("kind", ["cpu", "TPU v5 turbo", "NVIDIA L400", "NVIDIA GeForce RTX 4090"])
def test_unknown_devices(kind: str) -> None:
    assert peak_flops(kind) is None
