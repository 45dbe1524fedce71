"""Sentinels: each masked run of tokens is replaced by one id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def replace_runs(
    tokens: np.ndarray, mask: np.ndarray, *, ids: TokenIds, starts: np.ndarray | None = None
) -> np.ndarray:
    """Replaces the k-th masked run of tokens by sentinel k (T5, section 3.1.4).

    Args:
      tokens: int32 [n].
      mask: bool [n].
      ids: the vocabulary, whose highest ids are the sentinels. If a text has more runs than there
        are sentinels, the ordinary ids below them are used too, as in T5's published code.
      starts: where the runs start (int [runs], ascending); None finds them.

    Returns:
      int32 [tokens outside the mask + runs].

    Raises:
      ValueError: there are so many runs that a special id would stand for one.
    """
    stays = ~mask
    if starts is None:
        first = mask.copy()
        first[1:] &= stays[:-1]
        starts = first.nonzero()[0]
    runs = len(starts)
    sentinels = ids.sentinels or 0
    if runs > sentinels:
        highest = max(i for i in ids.special if i <= ids.sentinel(sentinels))
        if ids.sentinel(runs - 1) <= highest:
            raise ValueError(
                f"{runs} spans need as many sentinels, but the vocabulary of {ids.vocab_size} "
                f"ids has {ids.sentinel(0) - highest} above its special ids; use longer spans, "
                "shorter inputs, or a vocabulary with more extra ids"
            )
    replaced = tokens.copy()
    replaced[starts] = np.arange(ids.sentinel(0), ids.sentinel(runs), -1)
    stays[starts] = True
    return replaced[stays]
