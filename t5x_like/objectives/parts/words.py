"""Where words begin among tokens, for objectives that mask whole words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.derived import once_per_vocabulary

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_END = np.ones(1, np.bool_)


@once_per_vocabulary
def _tables(ids: TokenIds) -> tuple[np.ndarray, np.ndarray]:
    """Whether each id begins a word, and whether it is special: bool [vocab_size] each."""
    if ids.word_starts is None:
        raise ValueError(
            "this vocabulary does not say which of its pieces begin a word (word_starts), which "
            "masking whole words needs; use a subword vocabulary, or an objective on tokens"
        )
    special = np.zeros(len(ids.word_starts), np.bool_)
    special[list(ids.special)] = True
    return ids.word_starts | special, special


def begins_word(ids: TokenIds) -> np.ndarray:
    """bool [vocab_size]: the pieces that begin a word, and the special ids. Do not change it.

    Raises:
      ValueError: the vocabulary does not say which pieces begin a word.
    """
    return _tables(ids)[0]


def whole_words(tokens: np.ndarray, length: int, ids: TokenIds) -> np.ndarray:
    """The first words of `tokens` (int [n]) that have at most `length` tokens: int [m].

    The first `length` tokens if the first word is longer, or if the vocabulary does not say which
    pieces begin a word.
    """
    if len(tokens) <= length or ids.word_starts is None:
        return tokens[:length]
    starts = begins_word(ids).take(tokens[1 : length + 1]).nonzero()[0]
    return tokens[: int(starts[-1]) + 1] if len(starts) else tokens[:length]


def word_starts(tokens: np.ndarray, ids: TokenIds) -> np.ndarray:
    """Where words begin in a text: bool [n] for int tokens [n].

    A word begins at the first token, at pieces that begin a word, at each special token (which is a
    word) and right after it.

    Raises:
      ValueError: the vocabulary does not say which pieces begin a word.
    """
    begins, special = _tables(ids)
    starts = begins.take(tokens)
    starts[:1] = True
    starts[1:] |= special.take(tokens[:-1])
    return starts


def word_bounds(starts: np.ndarray) -> np.ndarray:
    """int64 [W + 1]: where each of the W words begins, then the number of tokens.

    `starts` is the bool [n] of `word_starts`. Without tokens the result is [0].
    """
    return np.concatenate((starts, _END)).nonzero()[0]
