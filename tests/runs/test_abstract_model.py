"""The shapes of a run's model are found once, however the run is copied on its way."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import small_bert
from flax import nnx

from t5x_like.models.bert import Bert
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import Programs


def test_checks_and_programs_share_the_abstract_model(tmp_path: Path, text: Path) -> None:
    built = []

    def model(*, rngs: nnx.Rngs) -> Bert:
        built.append(rngs)
        return Bert(small_bert.CONFIG, rngs=rngs)

    run = small_bert.made(tmp_path, text, "run", model=model)
    (phase,) = run_phases(run)
    Programs().of([phase.run])
    assert phase.run is not run
    assert len(built) == 2  # without values, and the values themselves


def test_another_model_has_other_shapes(tmp_path: Path) -> None:
    run = small_bert.made(tmp_path, tmp_path / "text.txt", "run")

    def narrow(*, rngs: nnx.Rngs) -> Bert:
        return Bert(dataclasses.replace(small_bert.CONFIG, d_model=8), rngs=rngs)

    def adapt(model: Any, *, rngs: nnx.Rngs) -> Bert:
        return narrow(rngs=rngs)

    assert run.abstract_model.config.d_model == 16
    for parts in ({"model": narrow}, {"adapt": adapt}):
        assert run.with_parts(**parts).abstract_model.config.d_model == 8
