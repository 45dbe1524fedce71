"""The tokens of words, one by one, as within a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t5x_like.core.protocols.data import GoesOn, Vocabulary


def encode(vocabulary: Vocabulary, words: Sequence[str]) -> list[np.ndarray]:
    """The ids of each word with a space before it, int32 [n], n >= 1.

    These are the tokens of `transformers` under `is_split_into_words=True` (byte-level BPE with
    `add_prefix_space=True`), but for words of which the vocabulary leaves nothing, such as a mere
    control character: they become its unknown token, so that every word has a token.

    Raises:
      ValueError: nothing is left of a word, and the vocabulary has no unknown token.
    """
    spaced = [f" {word}" for word in words]
    unknown = vocabulary.token_ids.unk
    if isinstance(vocabulary, GoesOn):
        ids = vocabulary.encode_following(spaced)
    else:
        ids = vocabulary.encode_batch(spaced)
    tokens = [np.asarray(of_word, np.int32) for of_word in ids]
    for place, of_word in enumerate(tokens):
        if not len(of_word) and unknown is None:
            raise ValueError(
                f"the vocabulary has no token for the word {words[place]!r}, and no unknown token: "
                "leave the word out, or choose another vocabulary"
            )
        if not len(of_word):
            tokens[place] = np.array([unknown], np.int32)
    return tokens


def starts(tokens: Sequence[np.ndarray]) -> np.ndarray:
    """bool: which of the tokens of words, end to end, are the first of a word."""
    sizes = np.fromiter(map(len, tokens), np.int64, len(tokens))
    is_first = np.zeros(sizes.sum(), bool)
    is_first[np.cumsum(sizes) - sizes] = True
    return is_first
