"""Held-out examples of one target are named, whatever the kind of label; others are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t5x_like.core.protocols.data import Objective
from t5x_like.data.cache.reader import Cache
from t5x_like.data.corpora.corpus import Corpus, Document, ReadReport
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.streams import mixtures
from t5x_like.data.task import of_corpus
from t5x_like.evaluation.tasks import one_target
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask
from t5x_like.objectives.supervised.choices import Choices
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.numbers import Numbers
from t5x_like.objectives.supervised.several import Several
from t5x_like.objectives.supervised.spans import Spans
from t5x_like.objectives.supervised.tags import Tags
from t5x_like.objectives.supervised.text_to_text import TextToText
from t5x_like.vocabularies.byte import ByteVocabulary

LENGTHS = {"inputs": 32, "targets": 32}


@dataclasses.dataclass(frozen=True)
class InMemory(Corpus):
    """Rows, which training and held-out text share."""

    rows: Sequence[Document] = ()
    columns: Any = ()

    name = "rows"
    held_out = None

    def read(self, split: str, report: ReadReport) -> Iterator[Document]:
        yield from self.rows[: 2 if split == "validation" else None]

    def fingerprint(self) -> str:
        return "0"

    def description(self) -> str:
        return "rows in memory"


CASES: list[tuple[Objective, str, Any, Any, str]] = [
    (Classes(), "label", "good", "bad", "'good'"),
    (Choices(names=("A", "B")), "label", "A", "B", "'A'"),
    (Numbers(), "label", np.float32(0.5), np.float32(1.5), "0.5"),
    (Several(), "label", "good\nfine", "good", "'good', 'fine'"),
    (Several(), "label", "", "good\nfine", "no class"),
    (Tags(), "tags", "O\nO", "O\nB-PER", "'O'"),
    (Spans(), "answers", "[]", '[[4, "Rome"]]', "no answer"),
    (Spans(), "answers", '[[4, "Rome"]]', '[[14, "Oslo"]]', "'Rome'"),
    (TextToText(), "targets", "yes", "no", "'yes'"),
]


@pytest.mark.parametrize(("objective", "column", "one", "other", "shown"), CASES)
def test_one_target_is_named(
    objective: Objective, column: str, one: Any, other: Any, shown: str, tmp_path: Path
) -> None:
    text = {"inputs": "a b", "words": "a\nb", "choice_0": "c", "choice_1": "d"}
    text |= dict.fromkeys(("context", "characters"), "old Rome, old Oslo")

    def row(value: Any) -> Document:
        return {c.name: value if c.name == column else text[c.name] for c in objective.reads}

    for name, second in (("same", one), ("others", other)):
        corpus = InMemory([row(one), row(second), row(other)], objective.reads)
        task = of_corpus(corpus, objective)
        task.write_cache(tmp_path / name, ByteVocabulary(), workers=1, progress=False)
        cache = Cache.open(tmp_path / name)  # no row is made, which would need special tokens
        task = dataclasses.replace(task, cache=cache, lengths=LENGTHS)
        converter = default_converter(objective)
        (rows,) = mixtures.examples([task], "validation", converter=converter, seed=0, alone=True)
        warning = one_target.of_rows(rows, "validation")
        if name == "others":
            assert warning is None
        else:
            assert warning is not None
            assert (
                f"all 2 held-out examples (split 'validation') have one target, {shown}:" in warning
            )


def test_one_text_to_write_is_named() -> None:
    def warning(*texts: str | bytes) -> str | None:
        examples = [{"targets_pretokenized": text} for text in texts]
        task = EvaluatedTask(
            name="t", split="test", examples=examples, total=2, lengths={}, metrics=[], decode=str
        )
        return one_target.of_texts(task)

    assert "(split 'test') have one target, 'yes':" in str(warning(b"yes", b"yes"))
    assert warning("yes", "no") is None
