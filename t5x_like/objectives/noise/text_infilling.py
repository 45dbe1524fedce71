"""Text infilling: each span of words becomes one mask; spans have random length, 0 included."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.noise.token_noise import mask_or_random, random_ids
from t5x_like.objectives.parts.drawing import uniforms
from t5x_like.objectives.parts.probabilities import check_share
from t5x_like.objectives.parts.words import word_bounds, word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

RARE = 1e-7


@functools.lru_cache(maxsize=16)
def poisson_table(mean: float) -> tuple[float, ...]:
    """P(X <= k), k = 0, 1, ..., for a Poisson X cut after its first value rarer than `RARE`.

    A mean of 3 has 18 values. The last value is always 1.
    """
    weights = [math.exp(-mean)]
    while len(weights) <= mean + 1 or weights[-1] >= RARE:
        weights.append(weights[-1] * mean / len(weights))
    cumulative = np.cumsum(weights)
    return tuple((cumulative / cumulative[-1]).tolist())


def span_lengths(budget: int, mean: float, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """The lengths of spans with `budget` >= 1 words in all: int64 [k > 0], positive; and the zeros.

    Lengths are drawn until they reach the budget, and the last is cut to it. Lengths of 0 are only
    counted.
    """
    table, draws = poisson_table(mean), uniforms(rng, budget)
    lengths, zeros = [], 0
    while budget:
        length = min(bisect.bisect(table, next(draws)), budget)
        if length:
            lengths.append(length)
            budget -= length
        else:
            zeros += 1
    return np.array(lengths), zeros


def outside_spans(starts: np.ndarray, ends: np.ndarray, length: int) -> np.ndarray:
    """Which tokens stay: all but those of spans, except the first token of each run of overlaps.

    Args:
      starts: int64 [k], the first token of each span, all different.
      ends: int64 [k], one past the last token of each span.
      length: tokens of the text.

    Returns:
      bool [length].
    """
    reached = np.zeros(length + 1, np.int64)
    reached[starts + 1] = ends
    return np.maximum.accumulate(reached[:-1]) <= np.arange(length)


def insert_masks(
    tokens: np.ndarray, count: int, rng: np.random.Generator, *, ids: TokenIds, mask_random: float
) -> np.ndarray:
    """`tokens` (int32 [n]) with `count` masks inserted at random places: int32 [n + count].

    The share `mask_random` of the masks, rounded up, are random ids instead.
    """
    masks = np.full(count, ids.mask, np.int32)
    if random := math.ceil(count * mask_random):
        masks[:random] = random_ids(random, rng, ids)
    longer = np.empty(len(tokens) + count, np.int32)
    where = rng.choice(len(longer), count, replace=False)
    longer[where] = masks
    is_text = np.ones(len(longer), np.bool_)
    is_text[where] = False
    longer[is_text] = tokens
    return longer


@dataclasses.dataclass(frozen=True)
class TextInfilling:
    """Replaces each span of words, empty spans included, by one mask (BART, section 2.2).

    Span lengths are Poisson in words and add up to the share `rate` of the words, rounded up. Spans
    begin at random words and may overlap. Spans that overlap become one, so at the published rate
    about a ninth fewer words are masked than drawn, and about a fifth of the masks vanish. BART was
    trained on this noise; disjoint spans would be another.

    A span of length 0 inserts a mask at a random place. `mask_random` is the probability that a
    span becomes a random token instead of a mask, and the share of inserted masks that do, rounded
    up.

    The text never grows: only as many masks are inserted as the spans have made room for. This
    limits only texts of a few words. BART's code has no such limit and no declared lengths.
    """

    needs = ("mask", "word_starts")

    rate: float = 0.3
    mean_span_length: float = 3.0
    mask_random: float = 0.0

    def __post_init__(self) -> None:
        check_share(self, "rate")
        check_share(self, "mask_random")
        object.__setattr__(self, "mean_span_length", float(self.mean_span_length))
        if not 1 <= self.mean_span_length <= 100:
            raise ValueError(
                "TextInfilling: mean_span_length is between 1 and 100 words, got "
                f"{self.mean_span_length}"
            )

    def __call__(self, tokens: np.ndarray, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
        """int32 [at most n] for int32 [n], any n."""
        bounds = word_bounds(word_starts(tokens, ids))
        words = len(bounds) - 1
        budget = math.ceil(words * self.rate)
        if not budget:
            return tokens
        lengths, insertions = span_lengths(budget, self.mean_span_length, rng)
        firsts = rng.choice(words, len(lengths), replace=False)
        starts, ends = bounds[firsts], bounds[np.minimum(firsts + lengths, words)]
        noisy = tokens.copy()
        noisy[starts] = mask_or_random(len(starts), rng, ids, self.mask_random)
        noisy = noisy[outside_spans(starts, ends, len(tokens))]
        insertions = min(insertions, len(tokens) - len(noisy))
        if not insertions:
            return noisy
        return insert_masks(noisy, insertions, rng, ids=ids, mask_random=self.mask_random)
