"""Metrics of written texts on fixed predictions, of one target and of several."""

from __future__ import annotations

import pytest
import sacrebleu

from t5x_like.evaluation import text_metrics
from t5x_like.evaluation.task_metrics import exact_match
from t5x_like.evaluation.tasks import several_targets
from t5x_like.objectives.supervised.text_to_text import TextToText

PREDICTIONS = ["the cat sat on the mat", "a dog barks at night"]
TARGETS = [["a cat sat on a mat", "the cat sat on the rug"], "the dog barks at night"]


def test_several_targets_count_as_the_libraries_count_references() -> None:
    references = [["a cat sat on a mat", "the dog barks at night"], ["the cat sat on the rug", ""]]
    expected = sacrebleu.corpus_bleu(PREDICTIONS, references).score
    assert text_metrics.bleu(TARGETS, PREDICTIONS) == pytest.approx({"bleu": expected})
    ones = ["a cat sat on a mat", "the dog barks at night"]
    alone = sacrebleu.corpus_bleu(PREDICTIONS, [ones]).score
    assert text_metrics.bleu(ones, PREDICTIONS) == pytest.approx({"bleu": alone})
    # Unigrams: 5 of 6 with the rug, 4 of 6 with a mat; 4 of 5 in the second text.
    scores = text_metrics.rouge(TARGETS, PREDICTIONS)
    assert scores["rouge1"] == pytest.approx(100 * (5 / 6 + 4 / 5) / 2)
    assert exact_match([["no", "yes"], "no"], ["yes", "yes"]) == {"exact_match": 0.5}


def test_written_answers_are_those_of_squad_for_the_nearest_target() -> None:
    scores = text_metrics.written_spans(
        [["Bern", "the city of Bern"], "Turin"], ["City of Bern!", "in Turin"]
    )
    assert scores == pytest.approx({"exact": 1 / 2, "f1": (1 + 2 / 3) / 2})


@pytest.mark.parametrize(
    ("target", "prediction", "right"),
    [
        ("Mark", "mark", True),
        ("the city councilmen", "councilmen", True),
        ("Mark", "Mark Smith", True),
        ("Mark", "Ada", False),
        ("Mark's", "Mark", False),
        ("not: Mark", "Mark", False),
        ("not: Mark", "Ada", True),
        ("not: Mark", "", False),
    ],
)
def test_a_candidate_of_a_pronoun_is_accepted_where_words_nest(
    target: str, prediction: str, right: bool
) -> None:
    assert text_metrics.written_referent([target], [prediction]) == {"accuracy": float(right)}


def test_rows_of_one_text_are_joined_where_the_objective_says_so() -> None:
    assert several_targets.texts("abac", TextToText()) == [[0], [1], [2], [3]]
    joined = TextToText(several_targets=True)
    assert several_targets.texts("abac", joined) == [[0, 2], [1], [3]]
    assert several_targets.target(["x", "y", "x"]) == ["x", "y"]
    assert several_targets.target(["x", "x"]) == "x"
