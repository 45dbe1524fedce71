"""Batches of rows of like length, which are as long as their longest row."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence

import numpy as np

from t5x_like.data.samples.order import Epoch, Epochs, Numbered, Order, OwnRows

_BATCHES = 64
"""Batches that share their rows out among each other by length."""
_SHORTEST = 16


@dataclasses.dataclass(frozen=True)
class ByLength:
    """The order of `rows`, in which rows of like length share a batch.

    The batches of an epoch are taken in groups of `_BATCHES`. The rows of a group are sorted by the
    length to which they are padded, and its batches come in an order drawn from the seed. Every row
    is read once in each epoch. A batch with rows of two epochs stays as it is. The rows of several
    texts have no common epochs: a group has what the mixture gives it, whatever its epochs.

    Attributes:
      rows: the rows of one text, or of several, in their order.
      epochs: the epochs of each text.
      tokens: int [samples] for each text, the tokens of each sample's row.
      batch_size: the rows of a batch.
      seed: the seed of the order of batches.
      most: the tokens of the longest row that a model reads.
    """

    rows: Order
    epochs: Sequence[Epochs]
    tokens: Sequence[np.ndarray] = dataclasses.field(repr=False)
    batch_size: int
    seed: int
    most: int

    def __getitem__(self, row: int) -> Numbered:
        step, place = divmod(row, self.batch_size)
        component, number = self._batch(step)[place].tolist()
        return component, number

    def length(self, step: int) -> int:
        """The tokens to which the rows of a batch are padded: a power of 2, or the most."""
        return int(self._lengths(self._batch(step)).max())

    def _lengths(self, numbered: np.ndarray) -> np.ndarray:
        """int64 [rows]: the tokens to which these rows are padded."""
        tokens = np.array(
            [
                self.tokens[component][self.epochs[component].sample_of(number)]
                for component, number in numbered.tolist()
            ]
        )
        powers = 2 ** np.ceil(np.log2(np.maximum(tokens, _SHORTEST))).astype(np.int64)
        return np.minimum(powers, self.most)

    def _epoch_of(self, row: int) -> Epoch:
        """The rows that may share batches with a row: those of its epoch, or of all epochs."""
        if isinstance(self.rows, OwnRows):
            return self.rows.epochs.epoch_of(row)
        return Epoch(0, 0, sys.maxsize)

    def _batch(self, step: int) -> np.ndarray:
        """int64 [batch_size, 2]: the texts of a batch's rows, and their numbers there."""
        first = step * self.batch_size
        epoch = self._epoch_of(first)
        begin = -(-epoch.begin // self.batch_size)
        end = (epoch.begin + epoch.size) // self.batch_size
        if not begin <= step < end:
            return self._numbered(first, first + self.batch_size)
        group, place = divmod(step - begin, _BATCHES)
        start = begin + group * _BATCHES
        batches: np.ndarray = self._group(epoch, start, min(start + _BATCHES, end))[place]
        return batches

    def _numbered(self, begin: int, end: int) -> np.ndarray:
        return np.array([self.rows[row] for row in range(begin, end)], np.int64)

    @functools.cached_property
    def _groups(self) -> dict[int, np.ndarray]:
        """The newest groups, by their first step."""
        return {}

    def _group(self, epoch: Epoch, start: int, end: int) -> np.ndarray:
        """int64 [end - start, batch_size, 2]: the texts and the numbers of these batches' rows."""
        if (known := self._groups.get(start)) is not None:
            return known
        numbered = self._numbered(start * self.batch_size, end * self.batch_size)
        by_length = numbered[np.argsort(self._lengths(numbered), kind="stable")]
        rng = np.random.default_rng([self.seed, epoch.number, start])
        batches = rng.permutation(by_length.reshape(end - start, self.batch_size, 2))
        while len(self._groups) > 3:
            self._groups.pop(next(iter(self._groups)), None)
        self._groups[start] = batches
        return batches
