"""Passages and the answers in them: their tokens, their characters, the places of both."""

from __future__ import annotations

import json

import numpy as np

from t5x_like.core.protocols.data import Locates, Vocabulary

NOWHERE = -1
"""The token of an answer of which the vocabulary leaves nothing."""


def located(vocabulary: Vocabulary, text: str) -> tuple[list[int], np.ndarray]:
    """The ids of a text, and int32 [n, 2]: where each begins and ends, in characters.

    Raises:
      ValueError: the vocabulary does not know.
    """
    if not isinstance(vocabulary, Locates):
        raise ValueError(
            f"a {type(vocabulary).__name__} does not know where in a text its tokens are: answers "
            "in texts need a vocabulary of subwords, SentencePiece, characters or bytes"
        )
    ids, places = vocabulary.locate(text)
    return [*ids], places


def spans(answers: str, places: np.ndarray) -> np.ndarray:
    """The answers of a row: int32 [answers, 4].

    Args:
      answers: JSON [[the place of the first character, text], ...].
      places: where the tokens of the passage begin and end, int32 [n, 2].

    Returns:
      The first and the last token of each that shares a character with it (`NOWHERE` if none
      does), its first character and the one after its last.
    """
    begins, ends = places.T
    rows = []
    for begin, text in json.loads(answers):
        end = begin + len(text)
        shares = np.flatnonzero((begins < end) & (ends > begin) & (begins < ends))
        first, last = (shares[0], shares[-1]) if len(shares) else (NOWHERE, NOWHERE)
        rows.append((first, last, begin, end))
    return np.array(rows, np.int32).reshape(-1, 4)


def characters(text: str) -> np.ndarray:
    """The code points of a text, int32 [n]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<i4").astype(np.int32)


def text(code_points: np.ndarray) -> str:
    """The inverse of `characters`."""
    return code_points.astype("<i4").tobytes().decode("utf-32-le", "surrogatepass")
