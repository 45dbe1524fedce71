"""The likeliest spans of a text that was read in windows, as BERT's code for SQuAD finds them.

Suffixes: L length, S starts, E ends of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.objectives.supervised.windows import most_context

_LEAST = 1e-37
N_BEST = 20
"""Starts and ends of a window, and answers of a text, that are looked at."""
LONGEST = 30
"""The most tokens of an answer."""


class Ends(NamedTuple):
    """The likeliest starts and ends of a window: places in its row, best first, and their logits.

    `null` is the sum of the two logits at [CLS], and `total` that of the logarithms of the sums of
    the exponentials of all: a span has the chance e^(its logits - total). All are JSON.

    `null` counts in comparison with the score of a span.
    """

    starts: list[int]
    start_logits: list[float]
    ends: list[int]
    end_logits: list[float]
    null: float
    total: float

    def spans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts and ends, int64 [n], and their scores, float64 [n]."""
        logits = np.add.outer(self.start_logits, self.end_logits)
        ends = np.broadcast_to(self.ends, logits.shape)
        return _allowed(np.array(self.starts), ends, logits)

    def no_answer(self, best: float) -> float:
        """How much more likely no answer is than a span of the score `best`."""
        return self.null - best


class SearchedEnds(NamedTuple):
    """The likeliest starts of a window, and the ends that were searched from each (XLNet).

    They are places in its row, best first, with the logarithms of their probabilities. `null` is
    the logit that there is no answer, whatever the spans are, and `total` is 0, as in `Ends`.
    """

    starts: list[int]
    start_scores: list[float]
    ends: list[list[int]]
    end_scores: list[list[float]]
    null: float
    total: float = 0.0

    def spans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Those of `Ends`."""
        scores = np.array(self.start_scores)[:, None] + np.array(self.end_scores)
        return _allowed(np.array(self.starts), np.array(self.ends), scores)

    def no_answer(self, best: float) -> float:
        """The logit that there is no answer."""
        del best
        return self.null


WINDOWS: Mapping[str, type[Ends | SearchedEnds]] = {"spans": Ends, "searched spans": SearchedEnds}
"""The spans of a window by the form of a model's answers."""


class Passage(NamedTuple):
    """A text that was read in windows.

    Attributes:
      text: the text.
      places: int32 [tokens, 2]: where its tokens begin and end, in characters.
      bounds: where its windows begin and end, in tokens.
    """

    text: str
    places: np.ndarray
    bounds: list[tuple[int, int]]


class NBest(NamedTuple):
    """Answers with distinct texts, best first; none where no span was allowed.

    Attributes:
      texts: the texts.
      scores: for each the sum of the logits of its start and its end.
      chances: for each the product of the probabilities of its start and its end in its window.
      no_answer: how much more likely no answer is than the likeliest, in the window that says so
        least: the difference of the scores, or of a search the logit; infinite without texts.
    """

    texts: list[str]
    scores: list[float]
    chances: list[float]
    no_answer: float

    @property
    def best(self) -> str:
        """The likeliest text; empty where there is none."""
        return self.texts[0] if self.texts else ""


def ends(logits_L2: np.ndarray, null_position: int) -> Ends:
    """The likeliest starts and ends of a row; of equal logits the first.

    Args:
      logits_L2: float32, without padding.
      null_position: the place of [CLS].
    """
    places, logits = [], []
    for side_L in logits_L2.T.astype(np.float64):
        best = np.argsort(-side_L, kind="stable")[:N_BEST]
        places.append(best.tolist())
        logits.append(side_L[best].tolist())
    null = float(logits_L2[null_position].astype(np.float64).sum())
    total = float(np.logaddexp.reduce(logits_L2.astype(np.float64), axis=0).sum())
    return Ends(places[0], logits[0], places[1], logits[1], null, total)


def searched_ends(answers: Sequence[np.ndarray]) -> SearchedEnds:
    """The spans of a row.

    Args:
      answers: what the model has searched: starts [S] and their probabilities, ends [S, E] and
        theirs, given the start, and the logit that there is no answer.
    """
    starts, p_S, ends, p_SE, null = map(np.asarray, answers)
    scores = [np.log(np.maximum(p.astype(np.float64), _LEAST)).tolist() for p in (p_S, p_SE)]
    return SearchedEnds(starts.tolist(), scores[0], ends.tolist(), scores[1], float(null))


def _allowed(
    starts_S: np.ndarray, ends_SE: np.ndarray, scores_SE: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The spans that do not end before they start and are not too long, and their scores."""
    sizes_SE = ends_SE - starts_S[:, None]
    start, end = np.nonzero((sizes_SE >= 0) & (sizes_SE < LONGEST))
    return starts_S[start], ends_SE[start, end], scores_SE[start, end]


def n_best(passage: Passage, windows: Sequence[Ends | SearchedEnds], text_position: int) -> NBest:
    """The likeliest answers over all windows of a passage.

    An answer lies in one window, in which its start has most context, and has at most `LONGEST`
    tokens.

    Args:
      passage: the text.
      windows: the ends in each window, in order.
      text_position: the place of a window's first token in its row.
    """
    most = most_context(passage.bounds, len(passage.places))
    spans: list[np.ndarray] = []
    for number, (of_window, (begin, end)) in enumerate(zip(windows, passage.bounds, strict=True)):
        starts, ends, scores = of_window.spans()
        first, last = (places - text_position + begin for places in (starts, ends))
        allowed = (begin <= first) & (last < end)
        allowed[allowed] = most[first[allowed]] == number
        of_spans = np.stack([scores, scores - of_window.total, first, last])
        spans.append(of_spans[:, allowed])
    texts: dict[str, tuple[float, float]] = {}
    score, log_chance, firsts, lasts = np.concatenate(spans, axis=1)
    for at in np.argsort(-score, kind="stable"):
        begin, end = passage.places[int(firsts[at]), 0], passage.places[int(lasts[at]), 1]
        # A piece of white space alone may end an answer.
        if text := passage.text[begin:end].strip():
            texts.setdefault(text, (float(score[at]), float(np.exp(log_chance[at]))))
        if len(texts) == N_BEST:
            break
    scored, chances = zip(*texts.values(), strict=True) if texts else ((), ())
    no_answer = float("inf")
    if texts:
        no_answer = min(of_window.no_answer(scored[0]) for of_window in windows)
    return NBest([*texts], [*scored], [*chances], no_answer)
