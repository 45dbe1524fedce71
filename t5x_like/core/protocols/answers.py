"""The protocol between a model that is evaluated on a task and the metrics of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class Answers(NamedTuple):
    """The answers of a model for the examples of a task, one item for each; empty where not asked.

    Attributes:
      predictions: the decoded target ids, int32 [n]; an EOS and padding may end them.
      scores: the sum of log p(target tokens | inputs), in nats.
      prediction_scores: the same of the predictions.
      labels: of a head: the logits of classes, a number, the tags of the words that are asked, or
        the probability of each of several classes; of a window of a text the likeliest starts and
        ends of answers.
    """

    predictions: Sequence[np.ndarray] = ()
    scores: Sequence[float] = ()
    prediction_scores: Sequence[float] = ()
    labels: Sequence[Any] = ()


class Answerer(Protocol):
    """A model that answers the examples of a task.

    An example holds int32 [n] `inputs` and `targets`, or `targets` alone, after all steps of the
    task.
    """

    def predict(self, examples: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
        """`Answers.predictions` of the examples."""

    def score(self, examples: Sequence[Mapping[str, Any]]) -> list[float]:
        """`Answers.scores` of the examples: EOS counts, and so do loss weights."""

    def label(self, examples: Sequence[Mapping[str, Any]]) -> list[Any]:
        """`Answers.labels` of the examples, which hold the features of an objective of labels."""


class TaskMetric(Protocol):
    """A metric of a task, as its author wrote it.

    Attributes:
      name: the name of the function or class.
      reads: the fields of `Answers` that it reads.
    """

    @property
    def name(self) -> str: ...

    @property
    def reads(self) -> Sequence[str]: ...

    def __call__(
        self, examples: Sequence[Mapping[str, Any]], answers: Answers
    ) -> Mapping[str, Any]:
        """{name: value}; `examples` have all features of the task. May raise anything."""
