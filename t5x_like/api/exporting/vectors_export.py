"""The vectors of a model's words as a file of word2vec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.api import loading
from t5x_like.evaluation.language.analogies import token_table
from t5x_like.evaluation.spaces import word_vectors

if TYPE_CHECKING:
    from t5x_like.training.checkpointing.ranking import WantedStep


def export_vectors(
    source: str | Path,
    target: str | Path,
    *,
    step: WantedStep = None,
    overwrite: bool = False,
    modules: Sequence[str] = (),
) -> str:
    """Writes the rows of a model's table of tokens that are words, or begin one.

    Args:
      source: a run or an import.
      target: the file: binary if its name ends with `.bin`, or else text.
      step: the checkpoint; None: the newest.
      overwrite: whether to replace a file.
      modules: modules of your own that the run needs.

    Returns:
      A line about the file.

    Raises:
      FileExistsError: there is a file.
      ValueError, OSError: the model or its vocabulary has no words, or the file cannot be written.
    """
    path = Path(target)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already: name another file, or --overwrite it")
    model = loading.load(source, step=step, modules=modules)
    if model.vocabulary is None:
        raise ValueError(f"{source} has no vocabulary, so that its vectors have no words")
    table = token_table(model.model, model.vocabulary.vocab_size)
    made = word_vectors.of_table(table, model.vocabulary)
    word_vectors.write(path, made)
    return f"{path}: vectors of {len(made.words):,} words, {made.vectors.shape[1]} numbers each"
