"""An evaluation of language: what it asks of a model, its settings, and its table of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from t5x_like.core import progress
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.inference import predictions
from t5x_like.inference.likelihoods.likelihood import Likelihood, Span, SpanScorer

_SPANS = 512


class Model(Protocol):
    """A loaded model: its module, its vocabulary, and what it can be asked."""

    @property
    def model(self) -> Any: ...

    @property
    def vocabulary(self) -> Vocabulary | None: ...

    def predictor(self, ask: Any, **options: Any) -> Any:
        """What answers `ask`, a `predictions.Predictor`; ValueError where the model cannot."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of evaluations; one that an evaluation does not read is refused.

    Attributes:
      train: files that it learns or counts from.
      examples: the most examples, drawn with `seed`; None for all.
      seed: of the draw.
      layer: the layer whose states are read; None for the usual one, or for each.
      within_word: whether pseudo-log-likelihoods mask the later pieces of a word, too.
      batch_size: the rows that are computed at once.
      counts: occurrences of each id in the training text of the run, int [vocab_size]; None where
        they are not known.
      untrained: the same model with newly drawn parameters; None where nothing says how.
    """

    train: Sequence[str] = ()
    examples: int | None = None
    seed: int = 0
    layer: int | None = None
    within_word: bool = False
    batch_size: int = 32
    counts: np.ndarray | None = None
    untrained: Model | None = None

    def options(self) -> dict[str, Any]:
        """Those of a predictor of likelihoods."""
        within = {"within_word": True} if self.within_word else {}
        return {"batch_size": self.batch_size, **within}

    def drawn(self, things: Sequence[Any]) -> list[Any]:
        """At most `examples` of them, in their order."""
        if self.examples is None or self.examples >= len(things):
            return [*things]
        chosen = np.random.default_rng(self.seed).choice(len(things), self.examples, replace=False)
        return [things[number] for number in np.sort(chosen)]


class Row(NamedTuple):
    """The number of examples of a group, and values by the names of columns."""

    name: str
    size: int
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of an evaluation.

    Attributes:
      unit: what is counted, such as "pairs".
      rows: a row for each group of examples; the last one is about all.
      notes: sentences about what was done.
    """

    unit: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()


def ask_all(
    predictor: predictions.Predictor, records: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The prediction of each record, with a bar on standard error."""
    predictions.check_all(predictor, records)
    some = predictions.predict(predictor, records, shown=True)
    by_number = dict(pair for pairs in some for pair in pairs)
    return [by_number[number] for number in range(len(records))]


def likelihoods(scorer: SpanScorer, spans: Sequence[Span]) -> list[Likelihood]:
    """How likely each span is, with a bar on standard error; texts of like length together."""
    order = sorted(range(len(spans)), key=lambda n: -len(spans[n].tokens))
    by_number: dict[int, Likelihood] = {}
    with progress.bar(total=len(spans), desc="predicting", unit=" words") as bar:
        for start in range(0, len(order), _SPANS):
            numbers = order[start : start + _SPANS]
            scored = scorer.spans([spans[n] for n in numbers])
            by_number |= dict(zip(numbers, scored, strict=True))
            bar.update(len(numbers))
    return [by_number[n] for n in range(len(spans))]


def grouped(
    groups: Sequence[str],
    columns: Mapping[str, Sequence[float] | np.ndarray],
    *,
    of_all: str = "all",
) -> list[Row]:
    """The mean of each column in each group, in the order of their names, and over all examples."""
    rows = [
        _mean(name, [n for n, group in enumerate(groups) if group == name], columns)
        for name in sorted({*groups})
    ]
    whole = _mean(of_all, range(len(groups)), columns)
    return [*rows, whole] if len(rows) > 1 else [whole]


def _mean(
    name: str, members: Sequence[int], columns: Mapping[str, Sequence[float] | np.ndarray]
) -> Row:
    means = {
        column: float(np.asarray(values, np.float64)[np.asarray(members)].mean())
        for column, values in columns.items()
    }
    return Row(name, len(members), means)


def cut_note(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence about texts that were too long, if some were."""
    cut = sum("truncated" in answer for answer in answers)
    return [f"{cut:,} of {len(answers):,} texts were too long for the model and cut"] * (cut > 0)


def sample_note(count: int, of_all: int, settings: Settings, unit: str) -> list[str]:
    """A sentence about the sample, if not all examples were read."""
    drawn = f"{count:,} of {of_all:,} {unit}, drawn with seed {settings.seed}"
    return [drawn] * (count < of_all)
