"""Batches that grow read the rows that batches of one size would read, with the same noise."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from documents import write_documents

from t5x_like.config import gin_config, gin_files
from t5x_like.core.partitioning import make_layout
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import Programs
from t5x_like.runs.settings import gin_run
from t5x_like.vocabularies import loading

GROWING = ("BATCH_WARMUP_TOKENS=768", "BATCH_WARMUP_ROWS=2")
"""2 batches each of 2, 4 and 6 rows of 32 tokens, then of 8."""


def read(folder: Path, batches: int, *bindings: str) -> list[tuple[int, dict[str, np.ndarray]]]:
    """The first batches of a run, each with the steps before its phase."""
    given = [
        f"CORPUS={str(folder / 'text.txt')!r}",
        f"CACHE_DIR={str(folder / 'cache')!r}",
        *("MODEL_DIR=None", "PHASES=()", "BATCH_SIZE=8", "EVAL_PERIOD=0"),
        *("TASK_FEATURE_LENGTHS={'inputs': 32}", "TRAIN_STEPS=40", "WARMUP_STEPS=1"),
    ]
    with gin_config.temporary_configuration():
        run, _ = gin_run.load([str(gin_files.find_recipe("bert-mini"))], [*given, *bindings])
    vocabulary = loading.load(str(Path(__file__).parent / "golden" / "vocabulary"))
    layout = make_layout({"data": 1}, devices=jax.devices()[:1])
    data = dataclasses.replace(run.data, vocabulary=KnownVocabulary(vocabulary))
    phases = run_phases(run.with_parts(data=data, layout=layout))
    found: list[Any] = []
    for phase, program in zip(phases, Programs().of([p.run for p in phases]), strict=True):
        tasks = phase.open_data(lambda facts: None, lambda vocabulary: None)
        of_phase = phase.batches(tasks, program)
        of_phase.check()
        later = [other.start for other in phases if other.start > phase.start]
        count = min([*later, batches]) - phase.start
        rows = itertools.islice(of_phase.batches(0), max(count, 0))
        found += [(phase.start, jax.tree.map(np.asarray, batch)) for batch in rows]
    return found


def test_the_rows_are_those_of_batches_of_one_size(tmp_path: Path) -> None:
    write_documents(tmp_path / "text.txt")
    grown = read(tmp_path, 9, *GROWING)
    sizes = [len(batch["encoder_input_tokens"]) for _, batch in grown]
    assert sizes == [2, 2, 4, 4, 6, 6, 8, 8, 8]
    assert [start for start, _ in grown] == [0, 0, 2, 2, 4, 4, 6, 6, 6]
    plain = read(tmp_path, 6)
    for name, values in plain[0][1].items():
        whole = np.concatenate([values, *(batch[name] for _, batch in plain[1:])])
        of_grown = np.concatenate([batch[name] for _, batch in grown])
        np.testing.assert_array_equal(of_grown, whole[: len(of_grown)], err_msg=name)


def test_rows_of_another_length_cannot_continue(tmp_path: Path) -> None:
    write_documents(tmp_path / "text.txt")
    with pytest.raises(ValueError, match="continue"):
        read(
            tmp_path,
            1,
            "PHASES=(@short/run.Phase(), @long/run.Phase())",
            "short/run.Phase.steps=3",
            "long/run.Phase.continues=True",
        )
