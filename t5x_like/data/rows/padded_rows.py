"""Rows of one length, in which sequences lie end to end before padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def padded(
    values: np.ndarray, shape: tuple[int, ...], *, fill: int = 0, dtype: str = "int32"
) -> np.ndarray:
    """`values` [n, ...], cut or padded to `shape`, whose other axes are theirs."""
    row = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
    row[: len(values)] = values[: shape[0]]
    return row


class PaddedRow:
    """Sequences end to end in int32 [length], padded at the end, and the place of each sequence.

    Attributes:
      tokens: int32 [length].
      used: the number of tokens that are not padding.
      spans: the slice of each sequence.

    Raises:
      ValueError: several sequences do not fit. A single sequence is cut instead.
    """

    def __init__(
        self, sequences: Sequence[np.ndarray], length: int, *, pad: int, name: str
    ) -> None:
        if len(sequences) == 1:
            self.tokens = padded(sequences[0], (length,), fill=pad)
            self.used = min(len(sequences[0]), length)
            self.spans = [slice(0, self.used)]
            return
        sequences = [sequence[:length] for sequence in sequences]
        bounds = [0, *itertools.accumulate(map(len, sequences))]
        self.used = bounds[-1]
        self.spans = [slice(start, end) for start, end in itertools.pairwise(bounds)]
        if self.used > length:
            raise ValueError(
                f"{len(sequences)} examples with {self.used} tokens of {name!r} do not fit a row "
                f"of {length}"
            )
        empty = np.zeros(0, np.int32)
        self.tokens = padded(np.concatenate([empty, *sequences]), (length,), fill=pad)

    def segments(self) -> tuple[np.ndarray, np.ndarray]:
        """Segment ids, counted from 1, and positions in the segments: int32, 0 in the padding."""
        ids, positions = np.zeros_like(self.tokens), np.zeros_like(self.tokens)
        for number, span in enumerate(self.spans, start=1):
            ids[span] = number
            positions[span] = np.arange(span.stop - span.start)
        return ids, positions

    def shifted(self, *, start: int, pad: int, clean: bool) -> np.ndarray:
        """The decoder inputs that predict `tokens`: each sequence one place later, after `start`.

        Args:
          start: the id with which every sequence begins.
          pad: the id of the padding.
          clean: whether to keep a sequence's last token out of the padding after it. SeqIO does so
            in packed rows only.
        """
        shifted = np.empty_like(self.tokens)
        shifted[1:] = self.tokens[:-1]
        for place in [span.start for span in self.spans] or [0]:
            if place < len(shifted):
                shifted[place] = start
        if clean or not self.used:
            shifted[self.used :] = pad
        return shifted
