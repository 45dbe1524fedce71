"""A model as a directory that transformers opens: config.json, weights, tokenizer, model card."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import jax
from etils import epath

from t5x_like.api.exporting import model_card, training_record, whole_export
from t5x_like.core import whole_files
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import storage
from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.hugging_face.configuration.settings import Settings
from t5x_like.interop.hugging_face.files import hub, kept_files, safetensors_files
from t5x_like.interop.tokenizers import to_files
from t5x_like.runs import run_directory, saved_model
from t5x_like.runs.trained import one_head
from t5x_like.runs.trained.merging import merged_model

if TYPE_CHECKING:
    from flax import nnx

    from t5x_like.runs.saved_model import SavedModel
    from t5x_like.training.checkpointing.ranking import WantedStep


def export(
    source: str,
    target: str | Path,
    *,
    step: WantedStep = None,
    overwrite: bool = False,
    push: str | None = None,
    private: bool = False,
    task_head: str | None = None,
    modules: Collection[str] = (),
) -> list[str]:
    """Writes the model of a directory for transformers; memory stays near one parameter.

    Args:
      source: directory of a run, or of imported weights.
      target: a folder without weights, or a place in a bucket without objects; an ELECTRA is
        written as two models, in its subfolders.
      step: the step of the checkpoint, or "best"; the newest by default.
      overwrite: whether to replace existing weights and an existing README.md.
      push: the name of a model of the hub to upload to, such as "me/my-model"; the halves of an
        ELECTRA go to "me/my-model-discriminator" and "me/my-model-generator".
      private: whether only its owner shall see it there.
      task_head: the task whose head is written with the body, of a run of several.
      modules: modules that the directory's configuration may name.

    Returns:
      A line about each model that was written.

    Raises:
      FileExistsError: there are weights or a README.md already.
      ValueError, OSError: no such model, one without a counterpart at Hugging Face, or no upload.
    """
    _check(target, overwrite=overwrite, push=push, private=private)
    model = saved_model.read(source, step=step, modules=modules)
    if task_head is not None:
        model = one_head.of_saved(model, task_head)
    return write(model, target, overwrite=overwrite, push=push, private=private)


def write(
    model: SavedModel,
    target: str | Path,
    *,
    overwrite: bool,
    push: str | None,
    private: bool,
) -> list[str]:
    """Like `export`, for an open model."""
    _check(target, overwrite=overwrite, push=push, private=private)
    if can(model.model, AnswersTasks):
        raise one_head.which(model.model)
    model = merged_model.without_adapters(model)
    halves = model_directory.halves(model.model, model.params)
    if not storage.is_url(target):
        for name in halves:
            _check(Path(target) / name, overwrite=overwrite, push=push, private=private)
    record = training_record.read(model.directory, model.step)
    at_hub = {name: push and "-".join(filter(None, [push, name])) for name in halves}
    lines = []
    with whole_export.appearing(target) as staged:
        for name, (part, params) in halves.items():
            place = f"{str(target).rstrip('/')}/{name}".rstrip("/")
            folder = PurePosixPath(Path(target).absolute().name, name)
            about = functools.partial(
                model_card.Exported, name=at_hub[name] or str(folder), record=record
            )
            architecture = _write_half(staged / name, model, part, params, about=about)
            lines.append(f"{place}: {architecture}, step {model.step}")
        if storage.is_url(target):
            lines += _upload(staged, at_hub, private=private)
    if not storage.is_url(target):
        lines += _upload(Path(target), at_hub, private=private)
    return lines


def _write_half(
    directory: Path,
    model: SavedModel,
    part: nnx.Module,
    params: Any,
    *,
    about: Callable[..., model_card.Exported],
) -> str:
    """Writes one model; returns its class at Hugging Face."""
    architecture = model_directory.write(
        directory,
        part,
        params,
        ids=None if model.vocabulary is None else model.vocabulary.token_ids,
        original=_original_settings(model),
        labels=model.labels,
    )
    limit = model_directory.max_length(part)
    exported = about(
        architecture=architecture,
        model_type=model_directory.read_config(directory)["model_type"],
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)),
        step=model.step,
        has_tokenizer=_write_tokenizer(directory, model, max_length=limit),
        original=_original_card(model),
    )
    model_card.write(directory, exported)
    return architecture


def _upload(folder: Path, at_hub: Mapping[str, str | None], *, private: bool) -> list[str]:
    """Uploads the halves that have a name at the hub; a line about each."""
    return [
        f"{hub.upload(folder / name, model, private=private)}: uploaded"
        for name, model in at_hub.items()
        if model
    ]


def _check(directory: str | Path, *, overwrite: bool, push: str | None, private: bool) -> None:
    """Raises what `export` raises, as far as this is known without the model."""
    if push is not None:
        hub.check_upload(push)
    elif private:
        raise ValueError("only an upload can be private: name the model with push (--push)")
    if storage.is_url(directory):
        storage.check_writable(str(directory))
        names = [] if overwrite else [*storage.files_below(str(directory))]
        if names:
            raise FileExistsError(
                f"{directory} holds {', '.join(names[:3])}: name another place, or replace what "
                "is there with --overwrite"
            )
    elif not overwrite:
        safetensors_files.check_free(Path(directory))
        model_card.check_free(Path(directory))


def _original_settings(model: SavedModel) -> Mapping[str, Any]:
    """The config.json that came with an import; empty without one."""
    file = None if model.original is None else model.original / model_directory.CONFIG
    if file is None or not file.exists():
        return {}
    return Settings(whole_files.read_json(file), file)


def _original_card(model: SavedModel) -> str:
    """The text of the card that came with an import; "" without one."""
    file = None if model.original is None else model.original / model_card.NAME
    return file.read_bytes().decode(errors="replace") if file is not None and file.exists() else ""


def _write_tokenizer(directory: Path, model: SavedModel, *, max_length: int | None) -> bool:
    """Writes the imported files unchanged, or those that the vocabulary makes; False without."""
    if model.original is not None and (files := kept_files.tokenizer(model.original)):
        generation = model.original.glob(model_directory.GENERATION)
        run_directory.copy([*files, *generation], epath.Path(directory))
        if model.vocabulary is not None:
            model.vocabulary.save(directory / to_files.SAVED)
        return True
    if model.vocabulary is not None:
        model_type = model_directory.read_config(directory)["model_type"]
        to_files.write(model.vocabulary, directory, model_type=model_type, max_length=max_length)
        return True
    print("note: no vocabulary is known, so no tokenizer is written", file=sys.stderr)
    return False
