"""Gradual unfreezing (ULMFiT): phases that train the head, then the last layer, then all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from small_bert import OPTIONS, made

from t5x_like.config import gin_config
from t5x_like.runs import pretraining, saved_model
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Phase, Run
from t5x_like.runs.run_text import run_text
from t5x_like.runs.trained import trained_run
from t5x_like.training.optimization import optimizers, schedules
from t5x_like.training.optimization.parameter_paths import by_path

RATE = schedules.linear(0.02, total_steps=8)
HEAD = Phase(steps=2, frozen=(r"^encoder\.",))
LAST = Phase(steps=2, frozen=(r"^encoder\.embedding", r"^encoder\.trunk@0"))
ALL = Phase(
    optimizer=optimizers.adamw(RATE, b1=0.8),
    frozen=(),
    layer_decay=0.5,
    model={"dropout_rate": 0.0},
)


@pytest.fixture
def run(tmp_path: Path, text: Path) -> Run:
    return made(
        tmp_path,
        text,
        "run",
        optimizer=optimizers.adamw(RATE),
        options=dataclasses.replace(OPTIONS, train_steps=6),
        phases=(HEAD, LAST, ALL),
    )


def trained(run: Run, *, until: int = 6) -> list[Any]:
    """The state after each step of a run that is killed, in effect, after some."""
    found = []
    for taken in pretraining.steps(run):
        found.append(jax.device_get(taken.state))
        if taken.step == until:
            break
    return found


def counts(opt_state: Any) -> dict[str, list[int]]:
    """The averaged gradients by Adam's count, of each group."""
    return {
        name: sorted({int(n) for n in np.ravel(group.inner_state[0].count)})
        for name, group in opt_state.inner_states.items()
    }


@pytest.mark.slow
def test_gradual_unfreezing_resumes_bit_for_bit(run: Run, tmp_path: Path) -> None:
    states = trained(run)
    first = jax.device_get(build_program(run).init(jax.random.key(run.options.seed)).params)
    for n, state in enumerate(states, 1):
        moved = jax.tree.map(lambda a, b: a != b, state.params, first)
        encoder = by_path(moved["encoder"])
        assert any(leaf.any() for leaf in jax.tree.leaves(moved["mlm"])), n
        if n <= 2:
            assert not any(leaf.any() for leaf in encoder.values()), n
        elif n <= 4:
            layers = {
                path: leaf for path, leaf in encoder.items() if path.startswith("trunk.stack")
            }
            assert not any(leaf[0].any() for leaf in layers.values()), n
            assert all(leaf[1:].any() for leaf in layers.values()), n
            rest = encoder.keys() - layers.keys()
            assert not any(encoder[path].any() for path in rest), n
    # Averages of what begins to train begin too; the schedule counts the steps of the run.
    assert counts(states[3].opt_state) == {"stacked": [4], "stackedx3_none_layers1-2": [2]}
    assert counts(states[5].opt_state) == {
        "stacked": [6],
        "stacked_none_all": [2],
        "stackedx3_none_layers1-2_all": [2, 4],
    }
    for group in states[5].opt_state.inner_states.values():
        assert set(np.ravel(group.inner_state[2].count)) == {6}
    # Killed within a phase, and where one ends.
    other = dataclasses.replace(run, model_dir=str(tmp_path / "other"))
    for until in (3, 4, 6):
        again = trained(other, until=until)
    jax.tree.map(np.testing.assert_array_equal, again[-1], states[-1])
    # Opened, the model has the settings of the phase of its step.
    for step, rate in ((4, 0.1), (6, 0.0)):
        assert saved_model.read(other.model_dir, step=step).model.config.dropout_rate == rate
        assert trained_run.load(other.model_dir, step=step).model.config.dropout_rate == rate
    log = (tmp_path / "other" / "log.txt").read_text()
    assert "keeps its state of 5 parameters, begins anew with encoder.trunk." in log


def test_a_phase_cannot_have_other_parameters(run: Run) -> None:
    wide = dataclasses.replace(ALL, model={"d_ff": 64})
    with pytest.raises(ValueError, match=r"phase 3 has other parameters .* is \(3, 64\), not \(3,"):
        run_phases(dataclasses.replace(run, phases=(HEAD, LAST, wide)))
    unknown = dataclasses.replace(ALL, model={"dropout": 0.0})
    with pytest.raises(ValueError, match=r"fields of bert.Config.*nearest: dropout_rate"):
        run_phases(dataclasses.replace(run, phases=(HEAD, LAST, unknown)))


def test_the_text_of_a_run_has_its_phases(run: Run) -> None:
    gin_config.load_text(run_text(run))
    again = gin_config.build(Run).phases
    assert [dataclasses.replace(one, optimizer=None) for one in again] == [
        HEAD,
        LAST,
        dataclasses.replace(ALL, optimizer=None),
    ]
    assert again[2].optimizer.made_by.keywords["b1"] == 0.8
