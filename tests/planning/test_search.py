"""The search over settings, with plans that are made up."""

from __future__ import annotations

import pytest

from t5x_like.planning.compilation import PlanError
from t5x_like.planning.plan import PhasePlan, Plan, StepTime
from t5x_like.planning.search import MESH, search
from t5x_like.planning.topologies import topology

CHIPS = topology("v5e:2x2")
GB = {"all": 40, "products": 20, "attention": 18, "nothing": 8}


def made_up(settings, memory_only):
    """A run of 8 rows that needs less memory with more microbatches, and more time with remat."""
    parts = int(settings["MICROBATCHES"])
    if 8 % parts:
        raise PlanError("rows do not split")
    if "tensor': 4" in settings[MESH]:
        raise PlanError("heads do not split")
    needed = GB[settings["REMAT"].strip("'")] / parts
    if "fsdp" in settings[MESH]:
        needed -= 3
    seconds = 1 + parts / 10 + (40 - GB[settings["REMAT"].strip("'")]) / 100
    seconds += "tensor" in settings[MESH]
    seconds += "SCAN_UNROLL" in settings
    time = StepTime(compute=seconds, cycles={}, uncosted=0, kernels=(), ici=0, dcn=0, blocking=0)
    phase = PhasePlan(
        steps=10,
        batch_size=8,
        microbatches=1,
        lengths={},
        mesh={},
        parameter_count=1,
        tokens=1,
        flops=1e12,
        fits=needed <= 16,
        hbm_needed=needed,
        hbm_available=None,
        hbm_parts={},
        hbm_estimated=needed,
        traffic={},
        time=None if memory_only else time,
        peak_flops=1e14,
    )
    return Plan(topology=CHIPS, phases=[phase])


def test_the_least_remat_that_fits_is_found_for_each_mesh():
    found, notes = search(made_up, CHIPS)
    best = [
        (one.settings[MESH], one.settings["MICROBATCHES"], one.settings["REMAT"]) for one in found
    ]
    # 8 GB with "nothing" on data; fsdp's 18 - 3 fits with "attention".
    assert best == [
        ("{'fsdp': -1}", "1", "'attention'"),
        ("{'data': -1}", "1", "'nothing'"),
        ("{'fsdp': -1, 'tensor': 2}", "1", "'attention'"),
        ("{'fsdp': -1}", "1", "'attention'"),
    ]
    assert found[-1].settings["SCAN_UNROLL"] == "1"
    assert notes == []


def test_settings_of_the_user_are_kept():
    seen = []

    def attempt(settings, memory_only):
        seen.append(settings)
        return made_up({MESH: "", "REMAT": "'nothing'", "MICROBATCHES": "1"} | settings, True)

    search(attempt, CHIPS, fixed=[MESH, "REMAT", "SCAN_UNROLL"])
    assert all(settings.keys() == {"MICROBATCHES"} for settings in seen)


def test_findings_are_lines_at_once(capsys):
    search(made_up, CHIPS, compiled=1)
    lines = capsys.readouterr().err.splitlines()
    assert "fits: mesh={'fsdp': -1} MICROBATCHES=1 REMAT='attention'" in lines
    assert "compiled: mesh={'fsdp': -1} MICROBATCHES=1 REMAT='attention'" in lines


def test_a_mesh_that_cannot_be_used_is_reported():
    def attempt(settings, memory_only):
        if "tensor" in settings[MESH]:
            raise PlanError("heads do not split")
        return made_up(settings, memory_only)

    found, notes = search(attempt, CHIPS)
    assert notes == ["mesh {'fsdp': -1, 'tensor': 2}: heads do not split"]
    assert len(found) == 3


def test_microbatches_are_tried_where_nothing_else_helps():
    def attempt(settings, memory_only):
        return made_up(settings | {"REMAT": "'products'"}, memory_only)

    found, _ = search(attempt, CHIPS, fixed=["REMAT", "SCAN_UNROLL"])
    assert {one.settings["MICROBATCHES"] for one in found} == {"2"}


@pytest.mark.parametrize("slices", [1, 2])
def test_replica_runs_between_slices(slices):
    seen = []

    def attempt(settings, memory_only):
        seen.append(settings[MESH])
        return made_up(settings, memory_only)

    search(attempt, topology("v5e:2x2", slices))
    assert all(("'replica': 2" in mesh) == (slices == 2) for mesh in seen)
