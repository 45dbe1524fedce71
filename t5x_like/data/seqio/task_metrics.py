"""The metrics of a SeqIO task: their functions, their names, and its metric objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.core.protocols.answers import Answers
from t5x_like.data.cache.records.metric_names import MetricNames, function_name
from t5x_like.data.extras import require
from t5x_like.data.seqio.vocabularies import SeqioVocabulary, from_seqio
from t5x_like.vocabularies.passthrough import PassThroughVocabulary

if TYPE_CHECKING:
    import seqio
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")

_TARGETS = "targets"
_READS = {
    seqio.metrics.ModelOutputType.PREDICTION: ("predictions",),
    seqio.metrics.ModelOutputType.SCORE: ("scores",),
    seqio.metrics.ModelOutputType.PREDICTION_WITH_AUX: ("predictions", "prediction_scores"),
}


@dataclasses.dataclass(frozen=True)
class ObjectMetric:
    """A `TaskMetric` around a metric object of a SeqIO task."""

    metric: Any
    task: seqio.Task

    @property
    def name(self) -> str:
        kind = self.metric if isinstance(self.metric, type) else type(self.metric)
        return kind.__name__

    @property
    def reads(self) -> Sequence[str]:
        """The fields of `Answers` that it reads.

        Raises:
          ValueError: it reads intermediate values of the model.
        """
        kind = self.metric.model_output_type
        if kind not in _READS:
            raise ValueError(
                f"task {self.task.name!r}: its metric {self.name} reads {kind!s}, which is not "
                "computed here: remove it from the task's metric_objs"
            )
        return _READS[kind]

    def __call__(self, examples: Sequence[Mapping[str, Any]], answers: Answers) -> dict[str, Any]:
        """Its values, computed as `seqio.Evaluator` computes them."""
        features = self.task.output_features
        result = self.metric.from_model_output(examples, self._output(answers), features, _TARGETS)
        if isinstance(result, seqio.metrics.CollectingMetric):
            values, _ = result.actual_compute(examples, features, _TARGETS, None)
        else:
            values = result.compute()
        return dict(values)

    def _output(self, answers: Answers) -> Any:
        if self.reads == ("scores",):
            return np.array(answers.scores)
        longest = max(map(len, answers.predictions), default=0)
        tokens = np.zeros((len(answers.predictions), longest), np.int32)
        for row, ids in zip(tokens, answers.predictions, strict=True):
            row[: len(ids)] = ids
        if self.reads == ("predictions",):
            return tokens
        return tokens, {"scores": np.array(answers.prediction_scores)}


def functions(task: seqio.Task) -> Sequence[Callable[..., Any]]:
    """The metric functions of a task.

    Raises:
      ValueError: one of them has arguments that SeqIO does not know.
    """
    try:
        return task.metric_fns
    except ValueError as error:
        raise ValueError(f"task {task.name!r}: {error}") from error


def objects(task: seqio.Task) -> list[ObjectMetric]:
    """The metric objects of a task."""
    # SeqIO adds an object for each function behind those that the task was given.
    objects_given = task.metric_objs[: len(task.metric_objs) - len(functions(task))]
    return [ObjectMetric(metric_object, task) for metric_object in objects_given]


def decode(task: seqio.Task) -> Callable[[Sequence[int]], Any]:
    """The function from target ids to what `postprocess_fn` reads, through the first EOS."""
    return task.output_features[_TARGETS].vocabulary.decode


def names(task: seqio.Task) -> MetricNames | None:
    """The names of a task's metrics, for its record; None if it has none, or no targets.

    Raises:
      ValueError: a metric function has arguments that SeqIO does not know.
    """
    metric_fns = functions(task)
    if _TARGETS not in task.output_features or not (metric_fns or task.metric_objs):
        return None
    metric_names = MetricNames.of(metric_fns, task.postprocessor)
    unnamed = [f"{metric.name} (a metric object)" for metric in objects(task)]
    vocabulary = task.output_features[_TARGETS].vocabulary
    ours = from_seqio(vocabulary)
    if isinstance(ours, PassThroughVocabulary) and not isinstance(vocabulary, SeqioVocabulary):
        reason = f"only SeqIO decodes its {type(vocabulary).__name__}"
        undecoded = [f"{function_name(function)} ({reason})" for function in metric_fns]
        return MetricNames(unnamed=(*undecoded, *unnamed))
    return dataclasses.replace(metric_names, unnamed=(*metric_names.unnamed, *unnamed))
