"""Batches of rows of like length, which are as long as their longest row."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from t5x_like.data.samples.order import Epoch, Numbered, OwnRows

_BATCHES = 64
"""Batches that share their rows out among each other by length."""
_SHORTEST = 16


@dataclasses.dataclass(frozen=True)
class ByLength:
    """The order of `rows`, in which rows of like length share a batch.

    The batches of an epoch are taken in groups of `_BATCHES`. The rows of a group are sorted by the
    length to which they are padded, and its batches come in an order drawn from the seed. Every row
    is read once in each epoch. A batch with rows of two epochs stays as it is.

    Attributes:
      rows: the rows in the order of an epoch.
      tokens: int [samples], the tokens of each sample's row.
      batch_size: the rows of a batch.
      seed: the seed of the order of batches.
      most: the tokens of the longest row that a model reads.
    """

    rows: OwnRows
    tokens: np.ndarray = dataclasses.field(repr=False)
    batch_size: int
    seed: int
    most: int

    def __getitem__(self, row: int) -> Numbered:
        step, place = divmod(row, self.batch_size)
        return self.rows.component, int(self._batch(step)[place])

    def length(self, step: int) -> int:
        """The tokens to which the rows of a batch are padded: a power of 2, or the most."""
        return int(self._lengths(self._batch(step)).max())

    def _lengths(self, numbers: np.ndarray) -> np.ndarray:
        """int64 [rows]: the tokens to which these rows are padded."""
        sample_of = self.rows.epochs.sample_of
        tokens = self.tokens[[sample_of(number) for number in numbers.tolist()]]
        powers = 2 ** np.ceil(np.log2(np.maximum(tokens, _SHORTEST))).astype(np.int64)
        return np.minimum(powers, self.most)

    def _batch(self, step: int) -> np.ndarray:
        """int64 [batch_size]: the numbers of a batch's rows."""
        first = step * self.batch_size
        epoch = self.rows.epochs.epoch_of(first)
        begin = -(-epoch.begin // self.batch_size)
        end = (epoch.begin + epoch.size) // self.batch_size
        if not begin <= step < end:
            return self._numbers(first, first + self.batch_size)
        group, place = divmod(step - begin, _BATCHES)
        start = begin + group * _BATCHES
        batches: np.ndarray = self._group(epoch, start, min(start + _BATCHES, end))[place]
        return batches

    def _numbers(self, begin: int, end: int) -> np.ndarray:
        return np.array([self.rows[row][1] for row in range(begin, end)], np.int64)

    @functools.cached_property
    def _groups(self) -> dict[int, np.ndarray]:
        """The newest groups, by their first step."""
        return {}

    def _group(self, epoch: Epoch, start: int, end: int) -> np.ndarray:
        """int64 [end - start, batch_size]: the numbers of the rows of these batches."""
        if (known := self._groups.get(start)) is not None:
            return known
        numbers = self._numbers(start * self.batch_size, end * self.batch_size)
        by_length = numbers[np.argsort(self._lengths(numbers), kind="stable")]
        rng = np.random.default_rng([self.seed, epoch.number, start])
        batches = rng.permutation(by_length.reshape(end - start, self.batch_size))
        while len(self._groups) > 3:
            self._groups.pop(next(iter(self._groups)), None)
        self._groups[start] = batches
        return batches
