"""Random draws: uniform numbers, indexes by weights, and tokens of a corpus."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.derived import once_per_vocabulary

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def uniforms(rng: np.random.Generator, block: int = 128) -> Iterator[float]:
    """Uniform numbers in [0, 1) without end; `block` are drawn together, for speed."""
    while True:
        yield from rng.random(block).tolist()


def thresholds(weights: Sequence[float]) -> tuple[float, ...]:
    """Where the shares of the weights end in [0, 1), except for the last.

    For a uniform u, `bisect.bisect(thresholds(weights), u)` is index i with probability
    proportional to `weights[i]`. For single draws this is faster than NumPy's `choice`.
    """
    total = sum(weights)
    return tuple(end / total for end in itertools.accumulate(weights[:-1]))


@once_per_vocabulary
def _ends(ids: TokenIds) -> np.ndarray:
    """The number of tokens in the corpus with each id or a smaller one: int64 [vocab_size]."""
    if ids.counts is None or not ids.counts.any():
        raise ValueError(
            "random tokens are drawn as often as the training text has them, but this vocabulary "
            "comes without such counts: use a task with a cache, which has counted them"
        )
    return np.cumsum(ids.counts, dtype=np.int64)


def corpus_tokens(rng: np.random.Generator, ids: TokenIds, size: int) -> np.ndarray:
    """Tokens drawn independently from all tokens of the training text: int64 [size].

    Raises:
      ValueError: the vocabulary has no counts of a corpus.
    """
    ends = _ends(ids)
    return ends.searchsorted(rng.integers(ends[-1], size=size), side="right")
