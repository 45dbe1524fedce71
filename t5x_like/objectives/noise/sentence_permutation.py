"""Sentence permutation: the sentences of a text in random order."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.probabilities import check_share

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def sentence_ends(tokens: np.ndarray, ids: TokenIds) -> np.ndarray:
    """int64 [sentences]: one past the last token of each sentence, ascending.

    A sentence ends with a full stop of its script. The last token counts as one, and of several
    full stops in a row only the first does. So where several stand at the end, the last ones are
    in no sentence.
    """
    stops = ids.full_stops.take(tokens)  # type: ignore[union-attr]
    stops[-1:] = True
    stops[1:] &= ~stops[:-1]
    return stops.nonzero()[0] + 1


@dataclasses.dataclass(frozen=True)
class SentencePermutation:
    """Shuffles the sentences of a text (BART, section 2.2).

    The sentences are the text's segments; a text without segments is divided at full stops, as in
    the paper. ceil(n * `share`) of n sentences, drawn at random, exchange their places; all orders
    are equally likely, including the right one.
    """

    needs = ("full_stops",)

    share: float = 1.0

    def __post_init__(self) -> None:
        check_share(self, "share")

    def __call__(
        self,
        tokens: np.ndarray,
        rng: np.random.Generator,
        ids: TokenIds,
        segments: np.ndarray | None = None,
    ) -> np.ndarray:
        """int32 [n] for int32 [n], any n; `segments` (int32 [s]): the starts, without the first."""
        if segments is None or not len(segments):
            ends = sentence_ends(tokens, ids).tolist()
        else:
            ends = [*segments.tolist(), len(tokens)]
        # The beginning of a random permutation is a random subset in random order.
        moved = rng.permutation(len(ends))[: math.ceil(len(ends) * self.share)].tolist()
        order = list(range(len(ends)))
        for place, i in zip(sorted(moved), moved, strict=True):
            order[place] = i
        bounds = [0, *ends]
        parts = [tokens[bounds[i] : bounds[i + 1]] for i in order]
        return np.concatenate([*parts, tokens[bounds[-1] :]])
