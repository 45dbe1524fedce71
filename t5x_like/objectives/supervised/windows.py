"""Windows: the parts of a long text that a model reads one by one, each after the same question."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

QUESTION_TOKENS = 64
STRIDE = 128
"""The usual values (BERT's code for SQuAD)."""


@dataclasses.dataclass(frozen=True)
class Windows:
    """The division of a text into windows; each begins `stride` tokens after the one before.

    Attributes:
      room: the tokens of a question and a window together.
      question: the most tokens of a question, whose further ones are cut; at most half of `room`.
      stride: the most tokens from the beginning of a window to that of the next.
    """

    room: int
    question: int = QUESTION_TOKENS
    stride: int = STRIDE

    def __post_init__(self) -> None:
        if self.room < 2 or self.question < 1 or self.stride < 1:
            raise ValueError(
                f"a question of at most {self.question} tokens and windows {self.stride} apart do "
                f"not fit {self.room} tokens: all must be at least 1, and the room 2"
            )

    @property
    def asked(self) -> int:
        """The most tokens that a question keeps."""
        return min(self.question, self.room // 2)

    def counts(self, questions: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """The number of windows for questions and texts of so many tokens, int64 [n] each."""
        room = self.room - np.minimum(questions, self.asked)
        over = np.maximum(texts - room, 0)
        return 1 - -over // np.minimum(self.stride, room)

    def window(self, number: int, question: int, text: int) -> tuple[int, int]:
        """Where a window begins and ends, for a question and a text of so many tokens."""
        room = self.room - min(question, self.asked)
        begin = number * min(self.stride, room)
        return begin, min(begin + room, text)

    def bounds(self, question: int, text: int) -> list[tuple[int, int]]:
        """All windows for a question and a text of so many tokens."""
        count = int(self.counts(np.array(question), np.array(text)))
        return [self.window(number, question, text) for number in range(count)]


class WindowWords(NamedTuple):
    """The words whose tags a window gives.

    Attributes:
      words: their numbers in the text, int64 [n].
      places: the number of each among the words that begin in the window, int64 [n].
    """

    words: np.ndarray
    places: np.ndarray


def words_of(bounds: Sequence[tuple[int, int]], starts: np.ndarray) -> list[WindowWords]:
    """The words of each window: each word is that of the window in which it has most context.

    This is the lesser of the tokens before its first and after its last in the window; of equals
    the first counts. A window has a word if it has its first token. A word that none has is left
    out.

    Args:
      bounds: where the windows begin and end, in tokens.
      starts: bool [tokens], which tokens are the first of a word.
    """
    first = np.flatnonzero(starts)
    end_of = np.append(first[1:], len(starts))[: len(first)]
    context = np.full((len(bounds), len(first)), -np.inf)
    for of_window, (begin, end) in zip(context, bounds, strict=True):
        here = (begin <= first) & (first < end)
        of_window[here] = np.minimum(first - begin, end - end_of)[here]
    best = np.where(np.isfinite(context).any(axis=0), context.argmax(axis=0), -1)
    before = np.searchsorted(first, [begin for begin, _ in bounds])
    words = [np.flatnonzero(best == number) for number in range(len(bounds))]
    return [WindowWords(of, of - skipped) for of, skipped in zip(words, before, strict=True)]


def most_context(bounds: list[tuple[int, int]], tokens: int) -> np.ndarray:
    """The number of the window in which each token has most context, int64 [tokens].

    This is the least of the tokens before and after it in the window, and a hundredth of the
    window's length; of equals the first counts (BERT's code).
    """
    at = np.arange(tokens)
    scores = np.full((len(bounds), tokens), -np.inf)
    for number, (begin, end) in enumerate(bounds):
        inside = at[begin:end]
        context = np.minimum(inside - begin, end - 1 - inside)
        scores[number, begin:end] = context + 0.01 * (end - begin)
    return scores.argmax(axis=0)
