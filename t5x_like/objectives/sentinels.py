"""Sentinels: replacing each masked run of tokens by one id of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.protocols import TokenIds


def replace_runs(tokens: np.ndarray, mask: np.ndarray, *, ids: TokenIds) -> np.ndarray:
    """The k-th run of True becomes sentinel k, other tokens stay (T5, section 3.1.4).

    Args:
      tokens: int32 [n].
      mask: bool [n].
      ids: the vocabulary whose highest ids are the sentinels.

    Returns:
      int32 [tokens outside the mask + runs].

    Raises:
      ValueError: more runs than the vocabulary has ids above its special ones.
    """
    starts = mask.copy()
    starts[1:] &= ~mask[:-1]
    where = np.flatnonzero(starts)
    special = max(ids.pad, ids.eos or 0, ids.unk or 0)
    if len(where) and ids.sentinel(len(where) - 1) <= special:
        raise ValueError(
            f"{len(where)} spans need as many sentinels, but the vocabulary of {ids.vocab_size} "
            f"ids has {ids.vocab_size - 1 - special} above its special ids; use longer spans, "
            "shorter inputs or a larger vocabulary"
        )
    replaced = tokens.copy()
    replaced[where] = np.arange(ids.sentinel(0), ids.sentinel(len(where)), -1)
    return replaced[starts | ~mask]
