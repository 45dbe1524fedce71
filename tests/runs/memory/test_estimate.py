"""The estimate of memory without a compiler, and what `train` makes of it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.core.devices.tpus import CHIPS
from t5x_like.planning.compilation import Request, compile_step
from t5x_like.planning.plan import plan
from t5x_like.planning.topologies import topology
from t5x_like.runs.memory import advice, rows
from t5x_like.runs.memory.advice import memory_warnings, remedy, warning
from t5x_like.runs.memory.estimate import estimate
from t5x_like.runs.program import build_program
from t5x_like.runs.settings import gin_run

T5 = ["recipes/t5_1_1-mini.gin"]
BF16 = "DTYPE='bfloat16'"


def mini(*bindings):
    with gin_config.temporary_configuration():
        return gin_run.load(T5, bindings)[0]


def estimated(*bindings):
    run = mini(*bindings)
    return estimate(run, build_program(run), rows.full_row(run))


@pytest.fixture(scope="module")
def whole():
    return estimated(BF16)


def test_the_parts_of_an_estimate(whole):
    count = 1_345_152
    # Eight devices store a part each of the large arrays; a step has most in 16 bits.
    assert 4 * count / 8 < whole.parameters < 4 * count / 2
    assert 2 * count < whole.computed < 4 * count
    logits = 128 // 8 * 8 * 2176 * 4
    assert logits <= whole.activations <= whole.read - logits


def test_activations_follow_the_rows_of_a_microbatch(whole):
    parts = estimated(BF16, "MICROBATCHES=2")
    assert parts.read == pytest.approx(whole.read / 2, rel=0.02)
    assert whole.activations / 2 < parts.activations < 0.6 * whole.activations
    assert parts.parameters == whole.parameters


def test_rematerialisation_stores_less(whole):
    assert estimated(BF16, "REMAT='nothing'").activations < 0.7 * whole.activations


def test_a_mesh_splits_parameters(whole):
    split = "partitioning.make_layout.mesh={'fsdp': -1}"
    assert estimated(BF16, split).computed < whole.computed / 4


def test_a_run_on_cpus_is_never_warned_about():
    assert memory_warnings(mini("BATCH_SIZE=1048576")) == []


def test_a_step_that_will_not_fit_is_warned_about(monkeypatch):
    run = mini()
    need = estimated()
    monkeypatch.setattr(advice, "usable_bytes", lambda device: need.total - need.activations / 3)
    (line,) = memory_warnings(run)
    assert "128 rows probably does not fit" in line
    assert "MICROBATCHES = 2" in line
    monkeypatch.setattr(advice, "usable_bytes", lambda device: need.total)
    assert memory_warnings(run) == []


def test_parameters_alone_that_do_not_fit_need_a_mesh(whole):
    line = warning(mini(), dataclasses.replace(whole, parameters=1e12), 16e9)
    assert re.search(r"--mesh fsdp=-1, or more devices", line)


def test_parameters_that_are_split_already_need_more_devices(whole):
    split = mini("partitioning.make_layout.mesh={'fsdp': -1}")
    found = dataclasses.replace(whole, parameters=1e12)
    assert remedy(split, found, 16e9) == "set REMAT = 'nothing', or take more devices"


def test_an_axis_that_divides_no_parameter_is_named(whole, monkeypatch):
    monkeypatch.setattr(advice, "_LARGE", 2**10)
    split = "partitioning.make_layout.mesh={'fsdp': 8}"
    narrow = mini(split, "t5.Config.d_model=36")
    assert "fsdp" not in remedy(mini(split), whole, 16e9)
    assert "set --mesh data=-1,fsdp=4:" in remedy(narrow, whole, 16e9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bindings",
    [
        ["BATCH_SIZE=16384"],
        # Hardly any rows, and the largest arrays are the biases of attention.
        [
            "BATCH_SIZE=8",
            "t5.Config.num_encoder_layers=16",
            "t5.Config.num_heads=16",
            "TASK_FEATURE_LENGTHS={'inputs': 1024, 'targets': 229}",
        ],
    ],
    ids=["rows", "biases"],
)
def test_the_estimate_is_near_what_the_compiler_says(bindings):
    """Under a policy that says what is stored; without one, XLA computes some of it again."""
    pytest.importorskip("libtpu", reason="no compiler for TPUs: pip install '.[plan]'")
    found = plan(T5, "v5e:2x4", bindings=[*bindings, BF16, "REMAT='products'"], memory_only=True)
    (phase,) = found.phases
    assert phase.hbm_estimated == pytest.approx(phase.hbm_needed, rel=0.2)
    assert phase.hbm_needed < CHIPS["v5e"].hbm_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "bindings", "needed"),
    [
        ("t5_1_1_small", ["BATCH_SIZE=128"], 0.729),
        ("t5_1_1_base", [], 10.23),
        ("bert_base", [], 0.859),
        (
            "bert_large",
            ["BATCH_SIZE=512", "PHASES=()", "TASK_FEATURE_LENGTHS={'inputs': 128}"],
            3.93,
        ),
        ("gpt2", [], 7.39),
        ("mt5_small", [], 5.89),
    ],
)
def test_the_estimate_of_a_published_recipe_on_16_chips(recipe, bindings, needed):
    """`needed` is what `t5x_like plan --memory_only` says, in GB."""
    pytest.importorskip("libtpu", reason="no compiler for TPUs: pip install '.[plan]'")
    asked = Request(
        files=[str(gin_files.find_recipe(recipe))],
        bindings=bindings,
        topology=topology("v5e-16"),
        largest_estimate=0.0,
    )
    assert compile_step(asked).known["estimate"] == pytest.approx(1e9 * needed, rel=0.15)
