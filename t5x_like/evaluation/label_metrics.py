"""Metrics of labels, which scikit-learn, SciPy and seqeval compute."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from t5x_like.core.protocols.answers import Answers
from t5x_like.core.tag_schemes import OUTSIDE, mark_entities
from t5x_like.evaluation import calibration
from t5x_like.inference.heads.joined_windows import mean_of_classes

_PACKAGES = {
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "seqeval": "seqeval",
    "sacrebleu": "sacrebleu",
    "rouge_score": "rouge-score",
}


def check_installed() -> None:
    """Raises ValueError where a package that computes a metric of a task is not installed."""
    for module, package in _PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            raise ValueError(f"metrics of tasks need {package}: pip install 't5x_like[finetune]'")


def class_scores(
    targets: Sequence[int], predictions: Sequence[Sequence[float]], names: Sequence[str]
) -> dict[str, float]:
    """Matthews' correlation, and F1 of the second of two classes, or the mean F1 of more.

    A prediction has the logit, or the log of the probability, of each class.
    """
    from sklearn import metrics

    numbers, guessed = range(len(names)), np.argmax(predictions, axis=-1)
    if len(names) == 2:
        f1 = {"f1": metrics.f1_score(targets, guessed, zero_division=0)}
    else:
        mean = metrics.f1_score(targets, guessed, labels=numbers, average="macro", zero_division=0)
        f1 = {"macro_f1": mean}
    return {**f1, "matthews_correlation": matthews(targets, guessed)}


def matthews(targets: Iterable[Any], guesses: Iterable[Any]) -> float:
    """Matthews' correlation of labels; 0 where one side is constant."""
    from sklearn import metrics

    both = [*targets], [*guesses]
    if len({*both[0], *both[1]}) < 2:  # scikit-learn warns of it
        return 0.0
    return float(metrics.matthews_corrcoef(*both))


def class_accuracy(
    targets: Sequence[int], predictions: Sequence[Sequence[float]], names: Sequence[str]
) -> dict[str, float]:
    """The share of texts whose likeliest class is right."""
    del names
    return {"accuracy": float(np.mean(np.argmax(predictions, axis=-1) == np.array(targets)))}


def class_calibration(
    targets: Sequence[int], predictions: Sequence[Sequence[float]], names: Sequence[str]
) -> dict[str, float]:
    """How far probabilities are from frequencies (`calibration.scores`)."""
    del names
    return calibration.scores(np.asarray(predictions), targets)


def number_scores(
    targets: Sequence[float], predictions: Sequence[float], names: Sequence[str]
) -> dict[str, float]:
    """The correlations of Pearson and of Spearman; nan where one side is constant."""
    from scipy import stats

    del names
    pair = np.asarray(targets, np.float64), np.asarray(predictions, np.float64)
    if any(np.ptp(side) == 0 for side in pair):
        return {"pearson": float("nan"), "spearman": float("nan")}
    return {
        "pearson": float(stats.pearsonr(*pair).statistic),
        "spearman": float(stats.spearmanr(*pair).statistic),
    }


def ordered_scores(
    targets: Sequence[int], predictions: Sequence[int], names: Sequence[str]
) -> dict[str, float]:
    """Quadratic-weighted kappa, and the mean absolute error in ranks, from one class to the next.

    Kappa is nan where all targets and all predictions are one class.
    """
    from sklearn import metrics

    constant = len({*targets, *predictions}) == 1
    kappa = (
        math.nan
        if constant
        else metrics.cohen_kappa_score(
            targets, predictions, labels=range(len(names)), weights="quadratic"
        )
    )
    error = metrics.mean_absolute_error(targets, predictions)
    return {"quadratic_kappa": float(kappa), "mean_absolute_error": float(error)}


def entity_scores(
    targets: Sequence[Sequence[int]], predictions: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, float]:
    """Precision, recall and F1 of whole entities, as conlleval counts them, over all of a split.

    A word has -1 for `OUTSIDE`, where the names may lack it.
    """
    from seqeval import metrics

    sides = [
        [[names[tag] if tag >= 0 else OUTSIDE for tag in tags] for tags in side]
        for side in (targets, predictions)
    ]
    if not mark_entities(names):
        return {}
    return {
        "entity_f1": float(metrics.f1_score(*sides, zero_division=0)),
        "entity_precision": float(metrics.precision_score(*sides, zero_division=0)),
        "entity_recall": float(metrics.recall_score(*sides, zero_division=0)),
    }


def word_accuracy(
    targets: Sequence[Sequence[int]], predictions: Sequence[Sequence[int]], names: Sequence[str]
) -> dict[str, float]:
    """The share of words whose tag is right; those that were cut have none that is."""
    del names
    right = np.concatenate([*map(np.array, targets)]) == np.concatenate(
        [*map(np.array, predictions)]
    )
    return {"accuracy": float(right.mean())}


def several_scores(
    targets: Sequence[Sequence[int]], predictions: Sequence[Sequence[float]], names: Sequence[str]
) -> dict[str, float]:
    """F1 over all classes together and their mean, of those whose probability is at least 1/2.

    `best_micro_f1` is that of the threshold which would have been best, `best_threshold`: halfway
    between the least probability of a class that it says and the next lower one.
    """
    from sklearn import metrics

    true = _holds(targets, names)
    probabilities = np.asarray(predictions, np.float64)
    precision, recall, thresholds = metrics.precision_recall_curve(
        true.ravel(), probabilities.ravel()
    )
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1[:-1].argmax())
    guessed = probabilities >= 0.5
    return {
        "micro_f1": float(metrics.f1_score(true, guessed, average="micro", zero_division=0)),
        "macro_f1": float(metrics.f1_score(true, guessed, average="macro", zero_division=0)),
        "best_micro_f1": float(f1[best]),
        "best_threshold": float((thresholds[best] + (thresholds[best - 1] if best else 0)) / 2),
    }


def several_accuracy(
    targets: Sequence[Sequence[int]], predictions: Sequence[Sequence[float]], names: Sequence[str]
) -> dict[str, float]:
    """The share of texts whose classes are all right."""
    right = (np.asarray(predictions) >= 0.5) == _holds(targets, names)
    return {"accuracy": float(right.all(axis=-1).mean())}


def _holds(targets: Sequence[Sequence[int]], names: Sequence[str]) -> np.ndarray:
    """bool [texts, classes]: which classes hold for each text."""
    holds = np.zeros((len(targets), len(names)), bool)
    for row, of_row in zip(holds, targets, strict=True):
        row[[*of_row]] = True
    return holds


METRICS: Mapping[str, Callable[..., dict[str, float]]] = {
    function.__name__: function
    for function in (
        *(class_scores, class_accuracy, class_calibration, several_scores, several_accuracy),
        *(number_scores, ordered_scores, entity_scores, word_accuracy),
    )
}
"""Metrics that objectives of labels may name as their `measures`."""


@dataclasses.dataclass(frozen=True)
class LabelMetric:
    """A `TaskMetric` of labels: an example is a row, or a window, of the `text` of this number.

    Attributes:
      name: a name in `METRICS`.
      names: the names of the labels, in their order; none for numbers.
      targets: the label of each text, or the tags of its words.
      answers: what is answered, as the objective says it: "classes", "tags" and so on.
    """

    name: str
    names: Sequence[str]
    targets: Sequence[Any]
    answers: str | None
    reads: ClassVar = ("labels",)

    def __call__(
        self, examples: Sequence[Mapping[str, Any]], answers: Answers
    ) -> Mapping[str, float]:
        """The values of the metric, which counts each text, and each word, once."""
        windows: list[list[tuple[Mapping[str, Any], Any]]] = [[] for _ in self.targets]
        for example, label in zip(examples, answers.labels, strict=True):
            windows[example["text"]].append((example, label))
        joined = [
            _tags(of_text, len(target)) if self.answers == "tags" else self._joined(of_text)
            for of_text, target in zip(windows, self.targets, strict=True)
        ]
        return METRICS[self.name](self.targets, joined, self.names)

    def _joined(self, windows: Sequence[tuple[Mapping[str, Any], Any]]) -> Any:
        """The answer to a text: of several windows the mean, of classes that of probabilities.

        Of classes it is the logarithm, so that predictions are logits in any case.
        """
        labels = [label for _, label in windows]
        if len(labels) == 1:
            return labels[0]
        rows = [np.array(label) for label in labels]
        if self.answers == "classes":
            return np.log(np.maximum(mean_of_classes(rows), 1e-300))
        return np.mean(rows, axis=0)


def _tags(windows: Sequence[tuple[Mapping[str, Any], Any]], count: int) -> list[int]:
    """The tags of a text's words, each from the window that gives it; -1 for words in none."""
    tags = [-1] * count
    for example, labels in windows:
        for word, tag in zip(example["words"], labels, strict=True):
            tags[word] = tag
    return tags
