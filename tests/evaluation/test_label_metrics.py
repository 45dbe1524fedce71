"""Metrics of labels on fixed predictions, against values that were counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from t5x_like.core.protocols.answers import Answers
from t5x_like.evaluation.label_metrics import (
    LabelMetric,
    class_scores,
    entity_scores,
    number_scores,
    ordered_scores,
)


def test_two_classes_have_the_f1_of_the_second() -> None:
    logits = np.eye(2)[[0, 0, 1, 1, 1, 0]]
    scores = class_scores([0, 0, 0, 1, 1, 1], logits, ["no", "yes"])
    assert scores == pytest.approx({"f1": 2 / 3, "matthews_correlation": 1 / 3})
    scores = class_scores([0, 1], [[2, 1], [-1, -2]], ["no", "yes"])
    assert scores == {"f1": 0.0, "matthews_correlation": 0.0}
    scores = class_scores([1, 1], [[0, 1], [0, 1]], ["no", "yes"])  # all of one class
    assert scores == {"f1": 1.0, "matthews_correlation": 0.0}


def test_more_classes_have_the_mean_of_all_that_are_named() -> None:
    # F1 of a: 1; of b: 2/3; of c: 0, and d never occurs.
    scores = class_scores([0, 1, 2, 1], np.eye(4)[[0, 1, 1, 1]], ["a", "b", "c", "d"])
    assert scores["macro_f1"] == pytest.approx((1 + 4 / 5) / 4)


def test_correlations() -> None:
    scores = number_scores([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 16.0], ())
    assert scores["spearman"] == pytest.approx(1)
    assert scores["pearson"] == pytest.approx(0.9843740387, abs=1e-9)
    assert all(map(math.isnan, number_scores([1.0, 2.0], [3.0, 3.0], ()).values()))


def test_kappa_counts_the_square_of_the_distance_between_classes() -> None:
    targets, predictions = [0, 1, 2, 2, 0], [0, 2, 2, 0, 1]
    scores = ordered_scores(targets, predictions, ["a", "b", "c", "d"])
    error = sum((t - p) ** 2 for t, p in zip(targets, predictions, strict=True)) / 5
    by_chance = sum((t - p) ** 2 for t in targets for p in predictions) / 25
    assert scores["quadratic_kappa"] == pytest.approx(1 - error / by_chance)
    assert scores["mean_absolute_error"] == pytest.approx(4 / 5)
    assert math.isnan(ordered_scores([1, 1], [1, 1], ["a", "b"])["quadratic_kappa"])
    assert ordered_scores([1, 1], [0, 0], ["a", "b"])["quadratic_kappa"] == 0


def test_entities_are_right_as_a_whole_and_cut_words_are_outside() -> None:
    names = ["B-LOC", "B-PER", "I-PER", "O"]
    targets = [[1, 2, 3, 0], [1, 2, 2]]
    # The place is found; the first person has a wrong end; the last word of the second was cut.
    examples = [{"text": 0, "words": [0, 1, 2, 3]}, {"text": 1, "words": [0, 1]}]
    answers = Answers(labels=[[1, 3, 3, 0], [1, 2]])
    scores = LabelMetric("entity_scores", names, targets, "tags")(examples, answers)
    assert scores == pytest.approx(
        {"entity_f1": 1 / 3, "entity_precision": 1 / 3, "entity_recall": 1 / 3}
    )
    accuracy = LabelMetric("word_accuracy", names, targets, "tags")(examples, answers)
    assert accuracy == {"accuracy": 5 / 7}
    # Parts of speech are no entities.
    assert entity_scores([[0, 1]], [[0, 1]], ["NOUN", "VERB"]) == {}


def test_windows_of_a_text_count_once_and_are_joined() -> None:
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    windows = rng.integers(1, 4, 20)
    logits = [rng.normal(0, 3, (count, 3)) for count in windows]
    examples = [{"text": text} for text, count in enumerate(windows) for _ in range(count)]
    targets = rng.integers(0, 3, 20).tolist()
    right = 0
    for of_text, target in zip(logits, targets, strict=True):
        means = [0.0] * 3
        for row in of_text:
            total = sum(math.exp(x) for x in row)
            for number, x in enumerate(row):
                means[number] += math.exp(x) / total / len(of_text)
        right += means.index(max(means)) == target
    answers = Answers(labels=[row.tolist() for of_text in logits for row in of_text])
    scores = LabelMetric("class_accuracy", names, targets, "classes")(examples, answers)
    assert scores == {"accuracy": right / 20}
    # Others are plain means: 2.0 for the text, of 1.0 and 3.0.
    metric = LabelMetric("number_scores", (), [1.0, 2.0, 3.0], "numbers")
    numbers = Answers(labels=[1.0, 1.0, 3.0, 3.0])
    assert metric([{"text": n} for n in (0, 1, 1, 2)], numbers)["pearson"] == pytest.approx(1)
