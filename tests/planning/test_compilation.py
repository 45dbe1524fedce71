"""What is read from the compiler: errors about memory, and programs of a tiny recipe."""

from __future__ import annotations

import json
import re

import pytest

from t5x_like.planning.compilation import PlanError, out_of_memory
from t5x_like.planning.plan import plan

GIB = 2**30


@pytest.mark.parametrize(
    ("message", "needed", "available"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (27.47G) exceeds available HBM (15.75G).",
            27.47 * GIB,
            15.75 * GIB,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 17.93G of 15.75G hbm. Exceeded hbm capacity by 2.18G.",
            17.93 * GIB,
            15.75 * GIB,
        ),
    ],
)
def test_errors_about_memory_say_how_much_was_needed(message, needed, available):
    assert out_of_memory(message) == (needed, available)


def test_another_error_of_the_compiler_is_passed_on():
    with pytest.raises(PlanError, match="the compiler fails: INTERNAL: broken"):
        out_of_memory("INTERNAL: broken")


@pytest.fixture
def compiler():
    return pytest.importorskip("libtpu", reason="no compiler for TPUs: pip install '.[plan]'")


@pytest.mark.slow
def test_the_plan_of_a_tiny_recipe_as_json(compiler, cli):
    told = cli(
        *"plan bert-mini --topology v5e:2x2 --json --mesh data=2,fsdp=2".split(),
        *"--price_per_chip_hour 1 --watts_per_chip 200 --kg_co2e_per_kwh 0.5".split(),
    )
    assert told.status == 0, told.err
    found = json.loads(told.out)
    assert (found["chips"], found["fits"], found["notes"]) == (4, True, [])
    assert [phase["lengths"] for phase in found["phases"]] == [{"inputs": 32}, {"inputs": 64}]
    first = found["phases"][0]
    assert (first["steps"], first["batch_size"]) == (2000, 128)
    assert first["mesh"] == {"data": 2, "fsdp": 2}
    assert first["parameter_count"] == 760_322
    assert first["tokens"] == 128 * 32
    assert {"all-reduce", "all-gather"} <= first["traffic"].keys()
    assert 0 < first["mfu"]["least"] <= first["mfu"]["most"] < 1
    parts = first["hbm_parts"]
    assert sum(parts.values()) == pytest.approx(first["hbm_needed"])
    assert found["cost"] == found["chip_hours"] == pytest.approx(24 * 4 * found["days"]["most"])
    assert found["kg_co2e"] == pytest.approx(found["cost"] * 0.1)


@pytest.mark.slow
def test_a_run_that_does_not_fit_says_what_it_needs(compiler):
    rows = ["BATCH_SIZE=1048576", "DTYPE='float32'", "MICROBATCHES=1"]
    found = plan(["recipes/t5_1_1-mini.gin"], "v5e:2x2", bindings=rows, memory_only=True)
    (phase,) = found.phases
    assert not found.fits
    assert phase.hbm_needed > phase.hbm_available > 15 * GIB
    assert phase.time is None
    assert re.fullmatch(
        r"To make it fit, set MICROBATCHES = \d+, or REMAT = 'nothing'\.", found.notes[0]
    )


@pytest.mark.slow
def test_errors_of_a_run_are_those_of_train(compiler, cli):
    told = cli(*"plan bert-mini --topology v5e:2x2 --batch_size 6".split())
    assert (told.status, told.out) == (1, "")
    assert "Batch size 6 does not split over mesh {'data': 4}" in told.err


def test_without_the_compiler_the_error_names_the_extra(monkeypatch, cli):
    monkeypatch.setitem(__import__("sys").modules, "libtpu", None)
    told = cli(*"plan bert-mini --topology v5e:2x2".split())
    assert "compiling for TPUs needs libtpu: pip install 't5x_like[plan]'" in told.err


def test_a_wrong_topology_is_refused_before_anything_starts(cli):
    told = cli(*"plan bert-mini --topology v5e:5x5".split())
    assert "slices of v5e are" in told.err
