"""Metrics of labels on fixed predictions, against values that were counted by hand."""

from __future__ import annotations

import math

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
    scores = class_scores([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0], ["no", "yes"])
    assert scores == pytest.approx({"f1": 2 / 3, "matthews_correlation": 1 / 3})
    assert class_scores([0, 1], [0, 0], ["no", "yes"]) == {"f1": 0.0, "matthews_correlation": 0.0}


def test_more_classes_have_the_mean_of_all_that_are_named() -> None:
    # F1 of a: 1; of b: 2/3; of c: 0, and d never occurs.
    scores = class_scores([0, 1, 2, 1], [0, 1, 1, 1], ["a", "b", "c", "d"])
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
    predictions = [[1, 3, 3, 0], [1, 2, -1]]
    scores = LabelMetric("entity_scores", names)(
        [{"target": target} for target in targets], Answers(labels=predictions)
    )
    assert scores == pytest.approx(
        {"entity_f1": 1 / 3, "entity_precision": 1 / 3, "entity_recall": 1 / 3}
    )
    # Parts of speech are no entities.
    assert entity_scores([[0, 1]], [[0, 1]], ["NOUN", "VERB"]) == {}
