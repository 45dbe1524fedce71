"""Runs of a BERT that compiles in seconds, made in Python."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from t5x_like.core import partitioning
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.models import bert
from t5x_like.objectives import preset
from t5x_like.runs.run import Options, Run
from t5x_like.training.optimization import optimizers

CONFIG = bert.Config(
    vocab_size=256,
    d_model=16,
    d_ff=32,
    num_heads=2,
    max_positions=32,
    num_layers=3,
    dropout_rate=0.1,
    sentence_head=False,
)
OPTIONS = Options(train_steps=1, batch_size=8, eval_period=0, log_period=1)


def made(root: Path, text: Path, name: str, **parts: Any) -> Run:
    """A run in folder `name` of `root`, on a text, with other parts in place of the usual ones."""
    data = Data(
        corpus=str(text),
        read_corpus=functools.partial(user_corpus, separator="line", validation=0.1),
        objective=preset("mlm"),
        vocabulary=VocabularyChoice(kind="wordpiece", size=100),
        lengths={"inputs": 32},
        cache_dir=str(root / "cache"),
    )
    usual = {
        "model_dir": str(root / name),
        "model": functools.partial(bert.Bert, config=CONFIG),
        "data": data,
        "feature_converter": Encoder(),
        "optimizer": optimizers.adamw(0.01),
        "layout": partitioning.make_layout({"data": 2, "fsdp": 4}),
        "options": OPTIONS,
    }
    return Run(**{**usual, **parts})
