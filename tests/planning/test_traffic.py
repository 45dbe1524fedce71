"""Bytes of collectives within slices and between them."""

from __future__ import annotations

import pytest

from t5x_like.planning import hlo
from t5x_like.planning.traffic import traffic


def cost(attributes, opcode="all-reduce"):
    """Of a collective of 800 bytes on two slices of 4 devices."""
    one = hlo.parse(f"  %c = f32[200]{{0}} {opcode}(%x), {attributes}")
    return traffic(one, 800, devices_of_slice=4, slices=2)


WITHIN = [
    "replica_groups={{0,1,2,3},{4,5,6,7}}",
    "replica_groups=[2,4]<=[8]",
    "replica_groups=mesh['slice'=2,'data'=4] {'data'}",
    "replica_groups=mesh['data'=4,'slice'=2], device_ids=([2,4]T(1,0)) {'data'}",
    "replica_groups=mesh['data'=4,'slice'=2] device_ids=([4,2]<=[2,4]T(1,0)) {'data'}",
]
ACROSS = [
    "replica_groups={{0,4},{1,5},{2,6},{3,7}}",
    "replica_groups=[4,2]<=[2,4]T(1,0)",
    "replica_groups=mesh['slice'=2,'data'=4] {'slice'}, use_global_device_ids=true",
    "replica_groups=mesh['x'=1,'data'=4,'slice'=2], device_ids=([2,4]T(1,0)) {'slice'}, dims={0}",
]
ALL = [
    "replica_groups={{0,1,2,3,4,5,6,7}}",
    "replica_groups={}",
    "replica_groups=[1,8]<=[8]",
    "replica_groups=mesh['slice'=2,'data'=4] {'slice','data'}",
]


@pytest.mark.parametrize("groups", WITHIN)
def test_groups_within_a_slice(groups):
    found = cost(groups)
    assert (found.ici_bytes, found.dcn_bytes) == (2 * 800 * 3 / 4, 0)


@pytest.mark.parametrize("groups", ACROSS)
def test_groups_across_slices(groups):
    found = cost(groups)
    assert (found.ici_bytes, found.dcn_bytes) == (0, 800)


@pytest.mark.parametrize("groups", ALL)
def test_a_group_of_all_reduces_within_slices_first(groups):
    found = cost(groups)
    assert (found.ici_bytes, found.dcn_bytes) == (2 * 800 * 3 / 4, 800 / 4)


def test_groups_that_are_written_in_another_way_are_not_taken_for_all():
    with pytest.raises(ValueError, match="not known here: <0,1>"):
        cost("replica_groups=<0,1>")


def test_half_of_a_mesh_axis():
    found = cost("replica_groups=mesh['a'=8] {'a':(1)2}")  # devices 0 and 4
    assert (found.ici_bytes, found.dcn_bytes) == (0, 800)


@pytest.mark.parametrize(
    ("opcode", "array", "ici", "dcn"),
    [
        ("all-reduce", 800, 1200, 200),
        ("reduce-scatter", 800, 600, 100),
        ("all-gather", 6400, 4800, 800),
        ("all-to-all", 800, 300, 400),
    ],
)
def test_each_kind_over_all_devices(opcode, array, ici, dcn):
    found = cost(ALL[0], opcode)
    assert (found.bytes, found.ici_bytes, found.dcn_bytes) == (array, ici, dcn)


def test_a_permutation_between_slices():
    found = cost("source_target_pairs={{0,1},{1,2},{2,3},{3,4}}", "collective-permute")
    assert (found.ici_bytes, found.dcn_bytes) == (600, 200)


def test_sending_through_the_host_is_traffic_between_slices():
    found = cost('frontend_attributes={_xla_megascale_transfer_type="ALL_REDUCE"}', "send")
    assert (found.ici_bytes, found.dcn_bytes) == (0, 800)
