"""The likeliest spans of a text that was read in windows, as BERT's code for SQuAD finds them.

Suffixes: L length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5x_like.objectives.supervised.windows import most_context

N_BEST = 20
"""Starts and ends of a window, and answers of a text, that are looked at."""
LONGEST = 30
"""The most tokens of an answer."""


class Ends(NamedTuple):
    """The likeliest starts and ends of a window: places in its row, best first, and their logits.

    `null` is the sum of the two logits at [CLS], and `total` that of the logarithms of the sums of
    the exponentials of all: a span has the chance e^(its logits - total). All are JSON.
    """

    starts: list[int]
    start_logits: list[float]
    ends: list[int]
    end_logits: list[float]
    null: float
    total: float


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
      null: the least score of no answer among the windows.
    """

    texts: list[str]
    scores: list[float]
    chances: list[float]
    null: float

    @property
    def best(self) -> str:
        """The likeliest text; empty where there is none."""
        return self.texts[0] if self.texts else ""

    @property
    def no_answer(self) -> float:
        """How much more likely no answer is than the likeliest: the difference of the scores."""
        return self.null - self.scores[0] if self.texts else float("inf")


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


def n_best(passage: Passage, windows: Sequence[Ends], text_position: int) -> NBest:
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
        first, last = (
            np.array(places) - text_position + begin
            for places in (of_window.starts, of_window.ends)
        )
        inside = (begin <= first) & (first < end)
        inside[inside] = most[first[inside]] == number
        allowed = inside[:, None] & (first[:, None] <= last) & (last < end)
        allowed &= last - first[:, None] < LONGEST
        start, stop = np.nonzero(allowed)
        scores = np.array(of_window.start_logits)[start] + np.array(of_window.end_logits)[stop]
        spans.append(np.stack([scores, scores - of_window.total, first[start], last[stop]]))
    texts: dict[str, tuple[float, float]] = {}
    score, log_chance, firsts, lasts = np.concatenate(spans, axis=1)
    for at in np.argsort(-score, kind="stable"):
        begin, end = passage.places[int(firsts[at]), 0], passage.places[int(lasts[at]), 1]
        if text := passage.text[begin:end]:
            texts.setdefault(text, (float(score[at]), float(np.exp(log_chance[at]))))
        if len(texts) == N_BEST:
            break
    scored, chances = zip(*texts.values(), strict=True) if texts else ((), ())
    null = min(of_window.null for of_window in windows)
    return NBest([*texts], [*scored], [*chances], null)
