"""A task of answers in texts with the windows of its cache and the metrics of SQuAD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from t5x_like.data.corpora import passages
from t5x_like.data.samples.order import spread
from t5x_like.data.samples.samples import WindowSamples
from t5x_like.evaluation.span_metrics import Question, SpanMetric
from t5x_like.inference.heads.n_best import Passage

if TYPE_CHECKING:
    from t5x_like.data.streams.stream import Examples


def examples(rows: Examples, *, at_most: int | None) -> tuple[list[dict[str, Any]], SpanMetric]:
    """All windows of the questions of a split, and the metric that joins them.

    Args:
      rows: the rows of the split, one window each.
      at_most: the most questions, spread evenly; None for all.
    """
    samples, vocabulary = rows.samples, rows.task.vocabulary
    assert isinstance(samples, WindowSamples)
    windows: list[dict[str, Any]] = []
    questions: list[Question] = []
    for number in spread(len(samples.split), at_most):
        record = samples.split.record(number)
        text = passages.text(record["characters"])
        places = passages.located(vocabulary, text)[1]
        bounds = samples.bounds(number)
        first = int(samples.firsts[number])
        for n in range(first, first + len(bounds)):
            (example,) = rows.features(n)
            windows.append({**example, "question": len(questions)})
        golds = [text[begin:end] for begin, end in record["answers"][:, 2:].tolist()]
        at = int(windows[-1]["text_position"])
        questions.append(Question(Passage(text, places, bounds), golds, at))
    assert rows.task.objective.answers is not None
    return windows, SpanMetric(questions, rows.task.objective.answers)
