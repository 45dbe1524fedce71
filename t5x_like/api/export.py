"""A model as a directory that transformers opens: config.json, weights, tokenizer."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from t5x_like.interop.hugging_face import model_directory, safetensors_files
from t5x_like.interop.tokenizers import to_files
from t5x_like.runs import run_directory, saved_model

if TYPE_CHECKING:
    from t5x_like.runs.saved_model import SavedModel
    from t5x_like.training.checkpointing.ranking import WantedStep


def export(
    source: str,
    target: str | Path,
    *,
    step: WantedStep = None,
    overwrite: bool = False,
    modules: Collection[str] = (),
) -> list[str]:
    """Writes the model of a directory for transformers; memory stays near one parameter.

    Args:
      source: directory of a run, or of imported weights.
      target: a folder without weights; an ELECTRA is written as two models, in its subfolders.
      step: the step of the checkpoint, or "best"; the newest by default.
      overwrite: whether to replace existing weights.
      modules: modules that the directory's configuration may name.

    Returns:
      A line about each model that was written.

    Raises:
      FileExistsError: there are weights already.
      ValueError, OSError: no such model, or one without a counterpart at Hugging Face.
    """
    if not overwrite:
        safetensors_files.check_free(Path(target))
    model = saved_model.read(source, step=step, modules=modules)
    return write(model, Path(target), overwrite=overwrite)


def write(model: SavedModel, target: Path, *, overwrite: bool) -> list[str]:
    """Like `export`, for an open model."""
    ids = None if model.vocabulary is None else model.vocabulary.token_ids
    halves = model_directory.halves(model.model, model.params)
    if not overwrite:
        for name in halves:
            safetensors_files.check_free(target / name)
    lines = []
    for name, (part, params) in halves.items():
        directory = target / name
        architecture = model_directory.write(
            directory,
            part,
            params,
            ids=ids,
            original=_original_config(model),
            overwrite=overwrite,
        )
        _write_tokenizer(directory, model, max_length=model_directory.max_length(part))
        lines.append(f"{directory}: {architecture}, step {model.step}")
    return lines


def _original_config(model: SavedModel) -> dict[str, Any] | None:
    """The config.json of the import; None if the model was not imported."""
    if model.original is None or not (model.original / "config.json").exists():
        return None
    return json.loads((model.original / "config.json").read_text())


def _write_tokenizer(directory: Path, model: SavedModel, *, max_length: int | None) -> None:
    """Writes the imported files unchanged, or those that the vocabulary makes."""
    kept = [] if model.original is None else list(model.original.iterdir())
    kept = [file for file in kept if file.name != "config.json"]
    if any("generation" not in file.name for file in kept):
        run_directory.copy(kept, epath.Path(directory))
        if model.vocabulary is not None:
            model.vocabulary.save(directory / to_files.SAVED)
    elif model.vocabulary is not None:
        model_type = model_directory.read_config(directory)["model_type"]
        to_files.write(model.vocabulary, directory, model_type=model_type, max_length=max_length)
    else:
        print("note: no vocabulary is known, so no tokenizer is written", file=sys.stderr)
