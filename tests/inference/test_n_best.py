"""Answers over windows equal those of BERT's code for SQuAD, which is written out here."""

from __future__ import annotations

import collections
import json

import numpy as np

from t5x_like.inference.heads.n_best import Passage, SearchedEnds, ends, n_best, searched_ends
from t5x_like.layers.heads.span_heads import Answers
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
        assert best.texts == texts
        assert best.no_answer == (null - scores[0] if texts else float("inf"))
        assert best.scores == scores
        several += len(spans) > 1
    assert several > 100


def test_a_text_without_an_allowed_span_has_no_answer() -> None:
    logits = np.zeros((30, 2), np.float32)
    logits[:25] = 1  # of the question
    passage = Passage("x", np.array([[0, 1]]), [(0, 1)])
    best = n_best(passage, [ends(logits, 0)], text_position=28)
    assert (best.best, best.no_answer) == ("", float("inf"))


def test_searched_ends_are_those_of_their_starts() -> None:
    """Two windows of a text of 12 words, from place 3 of the row; the first has the best span."""
    words = [f"w{n}" for n in range(12)]
    places = np.array([[4 * n, 4 * n + len(word)] for n, word in enumerate(words)])
    passage = Passage(" ".join(f"{word:3}" for word in words), places, [(0, 8), (4, 12)])
    of_windows = [
        # Place 1 is of the question, 4 to 3 ends before it starts, 12 is beyond the window.
        (([4, 1, 5], [0.5, 0.3, 0.1]), [[6, 3], [2, 4], [12, 5]], [[0.6, 0.4], [1, 0], [0.9, 0.1]]),
        # Word 5 has more context in the first window, word 8 here.
        (
            ([4, 7, 9], [0.4, 0.3, 0.1]),
            [[4, 5], [8, 7], [9, 10]],
            [[1, 0], [0.8, 0.2], [0.95, 0.05]],
        ),
    ]
    windows = []
    for ((starts, p), at, p_at), null in zip(of_windows, (0.7, -2.0), strict=True):
        arrays = (np.array(starts), np.array(p), np.array(at), np.array(p_at), np.float32(null))
        window = searched_ends(Answers(*arrays))
        windows.append(SearchedEnds(*json.loads(json.dumps(window))))
    best = n_best(passage, windows, text_position=3)
    assert best.texts == ["w1  w2  w3", "w8  w9", "w10", "w8", "w2", "w10 w11"]
    np.testing.assert_allclose(best.chances, [0.3, 0.24, 0.095, 0.06, 0.01, 0.005])
    assert best.no_answer == -2.0
