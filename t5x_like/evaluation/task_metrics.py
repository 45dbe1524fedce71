"""The metrics of a task: functions of targets and predictions or scores, as SeqIO calls them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core.protocols.answers import Answerer, Answers, TaskMetric
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.evaluation import text_metrics
from t5x_like.vocabularies.byte import ByteVocabulary

Example = Mapping[str, Any]
Decode = Callable[[Sequence[int]], Any]

_SIGNATURES = {
    ("targets", "predictions"): ("predictions",),
    ("targets", "scores"): ("scores",),
    ("targets", "predictions", "aux_values"): ("predictions", "prediction_scores"),
}


@dataclasses.dataclass(frozen=True)
class FunctionMetric:
    """A `TaskMetric` around a metric function of a SeqIO task, which its arguments describe.

    A function of `targets` and `predictions` gets lists of what `postprocess_fn` makes of texts.
    `scores` is float64 [examples]. `aux_values` is {"scores": float64 [examples]}, of predictions.

    Attributes:
      function: gives {name: value}.
      postprocess_fn: called with a text, `example=` and `is_target=`; None leaves the text.
      decode: turns ids of targets into text, through the first EOS.
    """

    function: Callable[..., Mapping[str, Any]]
    postprocess_fn: Callable[..., Any] | None
    decode: Decode

    @property
    def name(self) -> str:
        function: Any = self.function
        while isinstance(function, functools.partial):
            function = function.func
        return getattr(function, "__name__", type(function).__name__)

    @property
    def reads(self) -> Sequence[str]:
        """The fields of `Answers` that it reads.

        Raises:
          ValueError: its arguments are not those of a metric function.
        """
        names = tuple(
            name
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        )
        if names not in _SIGNATURES:
            known = " or ".join(f"({', '.join(signature)})" for signature in _SIGNATURES)
            raise ValueError(
                f"metric function {self.name} has the arguments ({', '.join(names)}); it must have "
                f"{known}, and defaults for all others"
            )
        return _SIGNATURES[names]

    def __call__(self, examples: Sequence[Example], answers: Answers) -> Mapping[str, Any]:
        """The function's result."""
        arguments: dict[str, Any] = {
            "targets": [
                self._postprocessed(target_text(example, self.decode), example, is_target=True)
                for example in examples
            ]
        }
        reads = self.reads
        if "scores" in reads:
            arguments["scores"] = np.array(answers.scores)
        if "predictions" in reads:
            arguments["predictions"] = [
                self._postprocessed(self.decode(list(tokens)), example, is_target=False)
                for example, tokens in zip(examples, answers.predictions, strict=True)
            ]
        if "prediction_scores" in reads:
            arguments["aux_values"] = {"scores": np.array(answers.prediction_scores)}
        return self.function(**arguments)

    def _postprocessed(self, text: Any, example: Example, *, is_target: bool) -> Any:
        if self.postprocess_fn is None:
            return text
        return self.postprocess_fn(text, example=example, is_target=is_target)


def exact_match(
    targets: Sequence[text_metrics.Target], predictions: Sequence[str]
) -> dict[str, float]:
    """The share of predictions that equal their targets, or one of several."""
    pairs = zip(map(text_metrics.right_texts, targets), predictions, strict=True)
    return {"exact_match": float(np.mean([prediction in texts for texts, prediction in pairs]))}


METRICS = (exact_match, *text_metrics.METRICS)
"""Metrics that objectives and records of tasks (`data.cache.records.metric_names`) may name."""


def measured(names: Collection[str], decode: Decode) -> list[FunctionMetric]:
    """The metrics of these names in `METRICS`, for targets and predictions as `decode` gives them.

    "name:value" gives the function's argument `positive` a value.

    Raises:
      ValueError: there is none of a name.
    """
    known: dict[str, Callable[..., Any]] = {function.__name__: function for function in METRICS}
    metrics = []
    for text in names:
        name, _, positive = text.partition(":")
        if name not in known:
            raise ValueError(f"no metric {name}: known are {', '.join(known)}")
        bound = {"positive": positive} if positive else {}
        metrics.append(FunctionMetric(functools.partial(known[name], **bound), None, decode))
    return metrics


def target_text(example: Example, decode: Decode) -> Any:
    """The target of an example before it was tokenised, or else its decoded ids."""
    if "targets_pretokenized" not in example:
        return decode(list(example["targets"]))
    text = example["targets_pretokenized"]
    return text.decode() if isinstance(text, bytes) else text


def decoder(vocabulary: Vocabulary) -> Decode:
    """The function from ids to their text as SeqIO's vocabularies write it."""
    if isinstance(vocabulary, ByteVocabulary):
        return _utf8
    return vocabulary.decode


def _utf8(ids: Sequence[int]) -> str:
    """The bytes before the first EOS as text; bytes that are not UTF-8 are dropped.

    Our own vocabulary writes sentinels in their place, which share their ids in ByT5.
    """
    ids = list(ids)
    special = 3
    ended = ids[: ids.index(1)] if 1 in ids else ids
    return bytes(i - special for i in ended if special <= i < special + 256).decode(errors="ignore")


def fields_read(metrics: Iterable[TaskMetric]) -> set[str]:
    """The fields of `Answers` that metrics read."""
    return {field for metric in metrics for field in metric.reads}


def ask(fields: Collection[str], examples: Sequence[Example], answerer: Answerer) -> Answers:
    """The answers of some fields; `prediction_scores` needs `predictions`."""
    answers = Answers()
    if "predictions" in fields:
        answers = answers._replace(predictions=answerer.predict(examples))
    if "labels" in fields:
        answers = answers._replace(labels=answerer.label(examples))
    if "scores" in fields:
        answers = answers._replace(scores=answerer.score(examples))
    if "prediction_scores" in fields:
        scored = [
            {"targets": tokens, **{k: v for k, v in example.items() if not k.startswith("targets")}}
            for example, tokens in zip(examples, answers.predictions, strict=True)
        ]
        answers = answers._replace(prediction_scores=answerer.score(scored))
    return answers


class Failure(NamedTuple):
    """A metric that has no value, and the reason."""

    metric: str
    reason: str


def measure(
    metrics: Iterable[TaskMetric],
    examples: Sequence[Example],
    answers: Answers,
    *,
    taken: Collection[str] = (),
) -> tuple[dict[str, float], list[Failure]]:
    """The metrics' values that are numbers, and the metrics that failed.

    Args:
      metrics: the metrics. One that raises does not hinder the others.
      examples: the examples.
      answers: what the metrics read.
      taken: names that other values have already.
    """
    values: dict[str, float] = {}
    failures = []
    for metric in metrics:
        try:
            named = {name: _number(value) for name, value in metric(examples, answers).items()}
        except Exception as error:
            failures.append(Failure(metric.name, f"{type(error).__name__}: {error}"))
            continue
        for name, value in named.items():
            if name in values or name in taken:
                reason = f"its value {name!r} has the name of another one, which is kept"
                failures.append(Failure(metric.name, reason))
            elif value is not None:
                values[name] = value
    return values, failures


def _number(value: Any) -> float | None:
    """A number, also inside SeqIO's `Scalar`; None for a text, an image or another kind."""
    value = getattr(value, "value", value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
