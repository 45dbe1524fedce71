"""Names and sizes of TPU slices."""

from __future__ import annotations

import pytest

from t5x_like.launching import slices
from t5x_like.launching.commands import LaunchError


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "accelerator_type", "gke"),
    [
        ("v5e-1", 1, 1, "v5litepod-1", "tpu-v5-lite-podslice 1x1"),
        ("v5e-8", 8, 1, "v5litepod-8", "tpu-v5-lite-podslice 2x4"),
        ("v5litepod-16", 16, 4, "v5litepod-16", "tpu-v5-lite-podslice 4x4"),
        ("v5e-256", 256, 64, "v5litepod-256", "tpu-v5-lite-podslice 16x16"),
        ("v6e:4x8", 32, 8, "v6e-32", "tpu-v6e-slice 4x8"),
        ("v4-8", 4, 1, "v4-8", "tpu-v4-podslice 2x2x1"),
        ("v5p-64", 32, 8, "v5p-64", "tpu-v5p-slice 2x4x4"),
        ("v5p:4x4x12", 192, 48, "v5p-384", "tpu-v5p-slice 4x4x12"),
        ("v3-32", 16, 4, "v3-32", " "),
    ],
)
def test_a_slice(name, chips, hosts, accelerator_type, gke):
    one = slices.parse(name)
    assert (one.chips, one.hosts, one.accelerator_type) == (chips, hosts, accelerator_type)
    assert f"{one.gke_accelerator} {one.gke_topology}" == gke
    assert one.runtime


@pytest.mark.parametrize("name", ["", "v5e", "v5e-7", "v5p:3x3x3", "v3-4", "v9-8", "v5e:axb", "\n"])
def test_what_is_no_slice(name):
    with pytest.raises(LaunchError, match=r"no (slice|TPU)"):
        slices.parse(name)
