"""Names of slices, and the table of chips."""

from __future__ import annotations

import math

import pytest

from t5x_like.core.devices.published import peak_flops
from t5x_like.core.devices.tpus import CHIPS
from t5x_like.planning.topologies import topology


@pytest.mark.parametrize(
    ("name", "shape", "accelerator"),
    [
        ("v5e:4x4", "v5e:4x4", "v5litepod-16"),
        ("v5e-16", "v5e:4x4", "v5litepod-16"),
        ("v5litepod-16", "v5e:4x4", "v5litepod-16"),
        ("v5p-64", "v5p:2x4x4", "v5p-64"),  # cores
        ("v5p:4x4x12", "v5p:4x4x12", "v5p-384"),
        ("v6e-256", "v6e:16x16", "v6e-256"),
        ("v6e-1", "v6e:1x1", "v6e-1"),
    ],
)
def test_names_of_slices(name, shape, accelerator):
    found = topology(name)
    assert (found.name, found.environment()["TPU_ACCELERATOR_TYPE"]) == (shape, accelerator)


def test_several_slices():
    found = topology("v5e-256", 4)
    assert (found.chips_of_slice, found.chips) == (256, 1024)
    assert str(found) == "4 slices of v5e:16x16"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v5e:3x3", "slices of v5e are v5e-1, v5e-4, .*v5e:AxB with the shapes 1x1, 2x2"),
        ("v5e-7", "slices of v5e"),
        ("v5p-16x", "slices of v5p are v5p-8, .*multiples of 4"),
        ("v5p:4x4", "slices of v5p"),
        ("v6", "no TPU 'v6' .*v6e"),
        ("v4-32", "two devices"),
        ("", "no TPU ''"),
    ],
)
def test_wrong_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        topology(name)


def test_no_slices_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        topology("v5e-16", 0)


def test_the_table_agrees_with_itself():
    for chip in CHIPS.values():
        assert {math.prod(shape) for shape in chip.slices.values()} == set(chip.slices)
        assert all(peak_flops(kind) == chip.peak_flops for kind in chip.kinds)
        # What the matrix units of a core multiply in a cycle: four times 128 x 128 or 256 x 256.
        products = chip.peak_flops / 2 / chip.clock / chip.cores
        assert products == pytest.approx(4 * (256 if chip.name == "v6e" else 128) ** 2, rel=0.01)


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("v5e:1x1", 0),
        ("v5e:2x2", 2),
        ("v5e:4x4", 2),  # the chip at a corner
        ("v5e:8x16", 3),  # the ends of the long axis are joined
        ("v5e:16x16", 4),
        ("v5p:2x2x1", 2),
        ("v5p:2x4x4", 3),
        ("v5p:4x4x4", 6),
    ],
)
def test_a_small_slice_sends_over_fewer_links(name, links):
    where = topology(name)
    whole = where.chip.ici_bandwidth
    assert where.chip.sent_within(where.shape) == whole * links / (2 * len(where.shape))
    assert where.seconds_of(0, 0) == (0, 0)
