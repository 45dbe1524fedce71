"""Text infilling: spans of words, of random length and possibly empty, each become one mask."""

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
    from t5x_like.core.protocols import TokenIds

RARE = 1e-7


@functools.lru_cache(maxsize=16)
def poisson_table(mean: float) -> tuple[float, ...]:
    """P(X <= k), k = 0, 1, ..., for a Poisson X cut above the first value as rare as `RARE`.

    18 values for a mean of 3, the last of them 1.
    """
    weights = [math.exp(-mean)]
    while len(weights) <= mean + 1 or weights[-1] >= RARE:
        weights.append(weights[-1] * mean / len(weights))
    cumulative = np.cumsum(weights)
    return tuple((cumulative / cumulative[-1]).tolist())


def span_lengths(budget: int, mean: float, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Lengths of spans that are `budget` >= 1 words together: int64 [k], positive; and the zeros.

    Lengths are drawn until they reach the budget, and the last is cut to it. Those of 0 among them
    are only counted. k is at least 1, as only a positive length can be the last.
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
    """False for the tokens of spans after their first, and for a first one within another span.

    Args:
      starts: int64 [k], the first token of each span, each another one.
      ends: int64 [k], one past the last.
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
    """`tokens` (int32 [n]) with masks at random places among them: int32 [n + count].

    The share `mask_random` of them, rounded up, are random ids instead.
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
    """Puts one mask in the place of each span of words; empty spans, too (BART, section 2.2).

    Span lengths are Poisson in words, and the share `rate` of the words, rounded up, is the sum of
    them all. Spans begin at random words, whatever the others cover: where one runs over the start
    of another they are one, so that fewer words are masked than the budget says (about a ninth of
    it at the published rate) and about a fifth of the masks vanish. That is what BART was trained
    on; drawing disjoint spans is another noise.

    A span of length 0 is a mask put in at a random place. `mask_random` is the probability with
    which a span becomes a random token instead, and the share of those put in, rounded up.

    Text never grows: no more masks are put in than the spans have made room for. That binds texts
    of a few words alone; BART's code has no such limit, and no declared length to keep either.
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
