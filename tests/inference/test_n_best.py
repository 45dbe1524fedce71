"""Answers over windows equal those of BERT's code for SQuAD, which is written out here."""

from __future__ import annotations

import collections

import numpy as np

from t5x_like.inference.heads.n_best import Passage, ends, n_best
from t5x_like.objectives.supervised.windows import Windows

QUESTION = 5
ROOM = 40
STRIDE = 12


def reference_windows(tokens: int) -> list[tuple[int, int]]:
    """`convert_examples_to_features`: starts and lengths of windows."""
    spans, start, most = [], 0, ROOM - QUESTION
    while start < tokens:
        length = min(tokens - start, most)
        spans.append((start, length))
        if start + length == tokens:
            break
        start += min(length, STRIDE)
    return spans


def is_max_context(spans: list[tuple[int, int]], place: int, position: int) -> bool:
    best_score, best_index = None, None
    for index, (start, length) in enumerate(spans):
        end = start + length - 1
        if not start <= position <= end:
            continue
        score = min(position - start, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best_index = score, index
    return place == best_index


def reference_answers(
    spans: list[tuple[int, int]], logits: list[np.ndarray], words: list[str]
) -> tuple[list[str], list[float], float]:
    """`write_predictions` with 20 best, at most 30 tokens and no answer at [CLS]."""
    found, null = [], 1e6
    for place, (of_window, (start, length)) in enumerate(zip(logits, spans, strict=True)):
        sides = [of_window[:, side].tolist() for side in (0, 1)]
        best = [sorted(enumerate(side), key=lambda x: x[1], reverse=True)[:20] for side in sides]
        null = min(null, sides[0][0] + sides[1][0])
        for i, _ in best[0]:
            for j, _ in best[1]:
                of_text = range(QUESTION + 2, QUESTION + 2 + length)
                if i not in of_text or j not in of_text or j < i or j - i + 1 > 30:
                    continue
                first = i - QUESTION - 2 + start
                if not is_max_context(spans, place, first):
                    continue
                last = j - QUESTION - 2 + start
                found.append((sides[0][i] + sides[1][j], first, last))
    found.sort(key=lambda x: x[0], reverse=True)
    texts: dict[str, float] = collections.OrderedDict()
    for score, first, last in found:
        text = " ".join(words[first : last + 1])
        if len(texts) < 20:
            texts.setdefault(text, score)
    return [*texts], [*texts.values()], null


def test_answers_of_200_questions_equal_the_reference() -> None:
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(200):
        tokens = int(rng.integers(1, 120))
        words = [f"w{n}" for n in rng.integers(0, 9, tokens)]  # texts occur again and again
        text = " ".join(words)
        begins = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        places = np.stack([begins, begins + [len(word) for word in words]], axis=1)
        spans = reference_windows(tokens)
        bounds = Windows(ROOM, stride=STRIDE).bounds(QUESTION, tokens)
        assert bounds == [(start, start + length) for start, length in spans]
        logits = [
            rng.normal(size=(QUESTION + 3 + length, 2)).astype(np.float32).round(1)
            for _, length in spans
        ]
        best = n_best(
            Passage(text, places, bounds), [ends(x, 0) for x in logits], text_position=QUESTION + 2
        )
        texts, scores, null = reference_answers(spans, logits, words)
        assert (best.texts, best.null) == (texts, null)
        assert best.scores == scores
        several += len(spans) > 1
    assert several > 100


def test_a_text_without_an_allowed_span_has_no_answer() -> None:
    logits = np.zeros((30, 2), np.float32)
    logits[:25] = 1  # of the question
    passage = Passage("x", np.array([[0, 1]]), [(0, 1)])
    best = n_best(passage, [ends(logits, 0)], text_position=28)
    assert (best.best, best.no_answer) == ("", float("inf"))
