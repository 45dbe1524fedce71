"""Answers to texts that are read in windows: a word's tag is that of one, other answers are means.

Suffixes: W windows, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t5x_like.core.protocols.data import Objective, TokenIds
from t5x_like.objectives.supervised import windows
from t5x_like.objectives.supervised.tags import Tags
from t5x_like.objectives.supervised.windows import WindowWords


def mean_of_classes(logits_WC: Sequence[np.ndarray]) -> np.ndarray:
    """The means of the probabilities that windows give each class, float64 [C]."""
    means: np.ndarray = softmax(np.stack(logits_WC)).mean(axis=0)
    return means


def softmax(logits: np.ndarray) -> np.ndarray:
    """Float64, over the last axis."""
    shares = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def words_asked(
    objective: Objective, bounds: Sequence[tuple[int, int]], starts: np.ndarray, ids: TokenIds
) -> list[WindowWords]:
    """The words whose tags each window gives, and where in its row each is read.

    Args:
      objective: of tags.
      bounds: where the windows begin and end, in tokens.
      starts: bool [tokens], which tokens of the text are the first of a word.
      ids: the ids of the vocabulary.
    """
    assert isinstance(objective, Tags)
    asked = []
    for (words, places), (begin, end) in zip(windows.words_of(bounds, starts), bounds, strict=True):
        asked.append(WindowWords(words, objective.asked(starts[begin:end], ids)[places]))
    return asked
