"""Held-out text that cannot be cut as a run's batches ask for."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import WORDS

from t5x_like import partitioning
from t5x_like.cli.pretraining import _Batches
from t5x_like.data.opened import Opened
from t5x_like.data.opening import Data
from t5x_like.data.user_corpus import user_corpus
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.objectives.xlnet import XLNet


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Text for 16 carried rows of 64 tokens to train on, and a document held out."""
    draw = random.Random(0)
    documents = [" ".join(draw.choices(WORDS, k=12)) for _ in range(100)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    return Data(
        corpus=str(tmp_path / "text.txt"),
        read_corpus=lambda named: user_corpus(named, validation=0.01),
        lengths={"inputs": 64},
        objective=XLNet(),
        vocabulary=VocabularyChoice(kind="characters", size=40),
        cache_dir=str(tmp_path / "cache"),
        workers=1,
    ).open()


def batches(opened: Opened, *, eval_period: int) -> _Batches:
    options = SimpleNamespace(batch_size=16, eval_period=eval_period)
    layout = partitioning.make_layout(mesh={"data": -1})
    converter = SimpleNamespace(task_features=("inputs",))
    run: Any = SimpleNamespace(options=options, layout=layout, feature_converter=converter)
    return _Batches.of(run, opened)


def test_held_out_text_too_short_to_carry_rows_is_named(opened: Opened) -> None:
    with pytest.raises(ValueError, match=r"validation split.*16 rows.*too short.*EVAL_PERIOD=0"):
        batches(opened, eval_period=10)


def test_without_evaluation_nothing_held_out_is_planned(opened: Opened) -> None:
    found = batches(opened, eval_period=0)
    assert [component.rows for component in found.train] == [16]
    assert not found.validation
