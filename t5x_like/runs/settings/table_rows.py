"""The rows of a model's tables follow a vocabulary that the user has chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t5x_like.config import gin_config
from t5x_like.core.protocols.members import lacking
from t5x_like.core.protocols.model import ModelConfig
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.runs import model_config, saved_model
from t5x_like.runs.settings import starting_model

if TYPE_CHECKING:
    from t5x_like.runs.run import Run

_CHOOSING = ("VOCABULARY", "VOCAB_SIZE", "VocabularyChoice")


def follow(run: Run) -> list[str]:
    """Sets the rows in the process's gin configuration.

    Where the user has set neither a vocabulary nor its size, or has set the rows too, they are
    those of the recipe. A run that has begun keeps its own.

    Args:
      run: the run that the configuration describes.

    Returns:
      A line about the change; none where nothing changes.

    Raises:
      OSError, ValueError: there is no such vocabulary.
    """
    choice = run.data.vocabulary
    asked = {binding.setting.selector.rpartition(".")[2] for binding in gin_config.given_settings()}
    if not isinstance(choice, VocabularyChoice) or not asked.intersection(_CHOOSING):
        return []
    config = model_config.find(run.model)
    if lacking(config, ModelConfig) or "vocab_size" in model_config.given(config):
        return []
    rows, where = _saved_rows(run), "as the run began"
    if rows is None:
        ids = choice.ids()
        rows = model_config.rows(ids, config.vocab_size)
        where = f"for the {ids:,} ids of the vocabulary"
    if rows == config.vocab_size:
        return []
    text = model_config.bind(config, {"vocab_size": rows}, where="the rows of the vocabulary")
    return [f"{model_config.selector(config)} has {text}, {where}."]


def _saved_rows(run: Run) -> int | None:
    """The rows of a run that has begun; None where it has not."""
    if run.model_dir is None or not starting_model.begun(run):
        return None
    saved = model_config.find(saved_model.constructor(run.model_dir))
    if lacking(saved, ModelConfig):
        return None
    rows: int = saved.vocab_size
    return rows
