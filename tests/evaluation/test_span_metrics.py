"""Exact match, F1 and thresholds equal those of SQuAD's official script, written out here."""

from __future__ import annotations

import collections
import re
import string

import numpy as np
import pytest

from t5x_like.evaluation.span_metrics import span_scores
from t5x_like.inference.heads.n_best import NBest

GOLDS = [["the Eiffel Tower", "Eiffel Tower"], ["in 1,889"], ["a"], [], ["Gustave Eiffel"]]
SAID = ["eiffel tower!", "1889", "The", "Paris", "Mr. Gustave, Gustave Eiffel"]


def normalize_answer(text: str) -> str:
    text = "".join(ch for ch in text.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text).split())


def compute_f1(a_gold: str, a_pred: str) -> float:
    gold, pred = normalize_answer(a_gold).split(), normalize_answer(a_pred).split()
    same = sum((collections.Counter(gold) & collections.Counter(pred)).values())
    if not gold or not pred:
        return int(gold == pred)
    if same == 0:
        return 0
    precision, recall = same / len(pred), same / len(gold)
    return (2 * precision * recall) / (precision + recall)


def raw_scores(said: list[str], golds: list[list[str]]) -> tuple[list[float], list[float]]:
    exact, f1 = [], []
    for text, of in zip(said, golds, strict=True):
        answers = [gold for gold in of if normalize_answer(gold)] or [""]
        exact.append(max(int(normalize_answer(a) == normalize_answer(text)) for a in answers))
        f1.append(max(compute_f1(a, text) for a in answers))
    return exact, f1


def apply_no_ans_threshold(
    scores: list[float], na_probs: list[float], has_answer: list[bool], threshold: float
) -> list[float]:
    return [
        float(not has) if no > threshold else score
        for score, no, has in zip(scores, na_probs, has_answer, strict=True)
    ]


def find_best_thresh(
    preds: list[str], scores: list[float], na_probs: list[float], has_answer: list[bool]
) -> tuple[float, float]:
    best_score = cur_score = sum(not has for has in has_answer)
    best_thresh = 0.0
    for i in sorted(range(len(preds)), key=lambda k: na_probs[k]):
        cur_score += scores[i] if has_answer[i] else (-1 if preds[i] else 0)
        if cur_score > best_score:
            best_score, best_thresh = cur_score, na_probs[i]
    return best_score / len(preds), best_thresh


def best_of(texts: list[str], differences: list[float]) -> list[NBest]:
    return [NBest([text], [0.0], [0.5], no) for text, no in zip(texts, differences, strict=True)]


def test_questions_that_all_have_answers() -> None:
    golds = [of for of in GOLDS if of]
    said = [text for text, of in zip(SAID, GOLDS, strict=True) if of]
    values = span_scores(best_of(said, [9.0] * 4), golds)
    assert values == pytest.approx({"exact": 0.5, "f1": (1 + 2 / 3 + 1 + 2 * 2 / 6) / 4})


def test_values_with_impossible_questions_are_the_official_ones() -> None:
    rng = np.random.default_rng(1)
    words = ["the", "a", "Tower", "tower.", "red", "Red", "of"]

    def text() -> str:
        return " ".join(rng.choice(words, rng.integers(1, 4)))

    golds = GOLDS + [[text() for _ in range(rng.integers(0, 3))] for _ in range(200)]
    said = SAID + [text() for _ in range(200)]
    differences = rng.normal(size=205).round(2).tolist()
    values = span_scores(best_of(said, differences), golds)
    has = [bool(of) for of in golds]
    for name, all_said in zip(("exact", "f1"), raw_scores(said, golds), strict=True):
        shown = apply_no_ans_threshold(all_said, differences, has, 0.0)
        assert values[name] == pytest.approx(np.mean(shown))
        assert values[f"HasAns_{name}"] == pytest.approx(np.mean(np.array(shown)[has]))
        assert values[f"NoAns_{name}"] == pytest.approx(np.mean(np.delete(shown, np.where(has))))
        score, threshold = find_best_thresh(said, all_said, differences, has)
        assert values[f"best_{name}"] == pytest.approx(score)
        assert values[f"best_{name}_thresh"] == threshold
        assert values[f"best_{name}"] >= values[name]
