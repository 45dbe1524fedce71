"""Maps from one space of word vectors to another, from pairs of words that mean the same.

Suffixes: N pairs, Q asked words, S words of the source, T words of the target, D and E dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from t5x_like.core import progress

_AT_ONCE = 1024
_GROWTH = 1e-6
"""Self-learning ends when the mean similarity grows by less."""
_MOST_ROUNDS = 500

Fit = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Makes the matrix [D, E] that maps the vectors [N, D] of pairs to the others, [N, E]."""


def normalised(x_SD: np.ndarray) -> np.ndarray:
    """Vectors of length 1, around a mean of 0, and of length 1 again: float32 [S, D].

    So the dot product of two is their cosine, and a map of rotations keeps it (Artetxe et al.,
    2016, section 2.2).
    """
    x_SD = _of_length_1(np.asarray(x_SD, np.float32))
    return _of_length_1(x_SD - x_SD.mean(axis=0))


def orthogonal(x_ND: np.ndarray, y_NE: np.ndarray) -> np.ndarray:
    """The rotation or reflection with the least squared distance (orthogonal Procrustes).

    It is U V' of the singular value decomposition of X' Y (Xing et al., 2015). Where D is above E
    or below it, its columns or rows are orthogonal.
    """
    u, _, v = np.linalg.svd(x_ND.T.astype(np.float64) @ y_NE, full_matrices=False)
    return (u @ v).astype(np.float32)


def least_squares(x_ND: np.ndarray, y_NE: np.ndarray) -> np.ndarray:
    """The matrix with the least squared distance (Mikolov et al., 2013)."""
    found, *_ = np.linalg.lstsq(x_ND.astype(np.float64), y_NE.astype(np.float64), rcond=None)
    return found.astype(np.float32)


FITS: Mapping[str, Fit] = {"orthogonal": orthogonal, "least_squares": least_squares}


class Learned(NamedTuple):
    """A map [D, E], and the mean similarity of words and their nearest in each round."""

    matrix: np.ndarray
    similarities: list[float]


def self_learned(
    x_SD: np.ndarray, y_TE: np.ndarray, pairs: np.ndarray, *, fit: Fit = orthogonal
) -> Learned:
    """A map from few pairs: a map finds new pairs, and these a better map (Artetxe et al., 2017).

    In each round the target of each source word is that with the highest dot product. It ends when
    their mean grows by less than 1e-6.

    Args:
      x_SD: the source's vectors, normalised: all words that shall be paired.
      y_TE: the target's.
      pairs: int [N, 2], rows of the source and of the target to begin with.
      fit: makes a map of pairs.
    """
    similarities: list[float] = []
    while True:
        matrix = fit(x_SD[pairs[:, 0]], y_TE[pairs[:, 1]])
        mapped = x_SD @ matrix
        best, targets = _best(mapped, y_TE)
        similarities.append(float(best.mean()))
        grows = len(similarities) < 2 or similarities[-1] - similarities[-2] >= _GROWTH
        if not grows or len(similarities) == _MOST_ROUNDS:
            return Learned(matrix, similarities)
        pairs = np.stack([np.arange(len(x_SD)), targets], axis=1)


def hubness(x_SD: np.ndarray, y_TD: np.ndarray, *, neighbours: int) -> np.ndarray:
    """The mean cosine of each x and the nearest `neighbours` of y, float32 [S]; both normalised."""
    neighbours = min(neighbours, len(y_TD))
    means = [
        np.partition(cosines, -neighbours, axis=1)[:, -neighbours:].mean(axis=1)
        for cosines in _blocks(x_SD, y_TD)
    ]
    return np.concatenate(means)


def nearest(
    x_QD: np.ndarray, y_TD: np.ndarray, *, count: int, hubs_T: np.ndarray | None = None
) -> np.ndarray:
    """The rows of y that are nearest to each x, the nearest first: int64 [Q, count].

    Args:
      x_QD: mapped vectors of length 1.
      y_TD: the target's.
      count: how many.
      hubs_T: the `hubness` of the target's words among the mapped ones, for CSLS: cosines that
        are corrected for words that are near to many (Conneau et al., 2018, section 2.3). That of
        the asked words changes no order.
    """
    count = min(count, len(y_TD))
    found = []
    for cosines in _blocks(x_QD, y_TD):
        scores = cosines if hubs_T is None else 2 * cosines - hubs_T
        some = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(some, order, axis=1))
    return np.concatenate(found)


def mapped(x_SD: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Mapped vectors of length 1."""
    return _of_length_1(x_SD @ matrix)


def _best(x_SD: np.ndarray, y_TD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best, places = [], []
    for scores in _blocks(x_SD, y_TD):
        places.append(scores.argmax(axis=1))
        best.append(scores.max(axis=1))
    return np.concatenate(best), np.concatenate(places)


def _blocks(x_SD: np.ndarray, y_TD: np.ndarray) -> Iterator[np.ndarray]:
    """The products of some x and all y at a time."""
    starts = range(0, len(x_SD), _AT_ONCE)
    for start in progress.bar(starts, leave=False, unit=" blocks"):
        yield x_SD[start : start + _AT_ONCE] @ y_TD.T


def _of_length_1(x_SD: np.ndarray) -> np.ndarray:
    return x_SD / np.maximum(np.linalg.norm(x_SD, axis=1, keepdims=True), 1e-12)
