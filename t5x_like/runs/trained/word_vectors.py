"""The vectors of a trained model's words, as a file."""

from __future__ import annotations

from pathlib import Path

from flax import nnx

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.evaluation.language.analogies import token_table
from t5x_like.evaluation.spaces import word_vectors


def write(path: Path, model: nnx.Module, vocabulary: Vocabulary) -> tuple[int, int]:
    """Writes the rows of a model's table of tokens that are words, or begin one.

    Returns:
      The numbers of words, and of the numbers of each.

    Raises:
      ValueError, OSError: the model or its vocabulary has no words, or the file cannot be written.
    """
    made = word_vectors.of_table(token_table(model, vocabulary.vocab_size), vocabulary)
    word_vectors.write(path, made)
    words, size = made.vectors.shape
    return words, size
