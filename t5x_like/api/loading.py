"""Opens the model of a directory: of a run, of an import, or of Hugging Face."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.api.loaded_model import LoadedModel
from t5x_like.core.buckets import staging, storage
from t5x_like.interop.hugging_face.files import hub
from t5x_like.runs import run_directory, saved_model
from t5x_like.runs.trained import trained_run

if TYPE_CHECKING:
    from t5x_like.training.checkpointing.ranking import WantedStep


def load(
    directory: str | Path,
    *,
    step: WantedStep = None,
    gin: Sequence[str] = (),
    modules: Collection[str] = (),
    rows: int | None = None,
    allow_paths: bool = False,
) -> LoadedModel:
    """The model of a directory, with its parameters and its vocabulary.

    Args:
      directory: the directory of a run, of imported weights, or of transformers' `save_pretrained`;
        or a model's name at the hub, such as "google-t5/t5-small", which is downloaded.
      step: the step of a run's checkpoint, or "best"; the newest by default.
      gin: settings that replace those saved with a run: `["BATCH_SIZE=8"]`.
      modules: modules or `.py` files that the directory's configuration may name, because you
        trust them: nothing else is imported or run but t5x_like itself.
      rows: the rows of a batch of a run; None for 32, or as many as the mesh divides.
      allow_paths: whether text (and a teacher) that a run's configuration names outside of its
        directory may be read. Those with which this account has trained always may.

    Raises:
      ValueError, OSError: it holds no model that can be read, or no such step.
      UntrustedError: its configuration names a module that is not allowed.
    """
    if hub.is_name(directory):
        return _from_hugging_face(hub.download(str(directory)), named=str(directory))
    path = storage.path(directory)
    if not run_directory.has_config(path) and (path / "config.json").exists():
        return _from_hugging_face(staging.fetched(directory), named=str(directory))
    if run_directory.is_run(path):
        run = trained_run.load(
            str(directory),
            step=step,
            bindings=gin,
            rows=rows,
            modules=modules,
            allow_paths=allow_paths,
        )
        labels = run_directory.read_class_names(path)
        return LoadedModel(run.model, run.vocabulary, run.step, str(directory), run, labels=labels)
    saved = saved_model.read(str(directory), step=step, modules=modules)
    params = jax.tree.map(lambda leaf: leaf.read(), saved.params)
    model = nnx.merge(nnx.graphdef(saved.model), params)
    return LoadedModel(
        *(model, saved.vocabulary, saved.step, str(directory), None, saved.original),
        labels=saved.labels,
    )


def _from_hugging_face(directory: Path, *, named: str) -> LoadedModel:
    from t5x_like.interop.hugging_face import model_directory
    from t5x_like.interop.tokenizers import from_files

    imported = model_directory.read(directory)
    graph = nnx.graphdef(nnx.eval_shape(lambda: imported.make(rngs=nnx.Rngs(0))))
    model = nnx.merge(graph, jax.tree.map(jnp.asarray, imported.params))
    vocabulary, _ = from_files.find(directory)
    saved_model.check_rows(model, vocabulary)
    return LoadedModel(model, vocabulary, 0, named, None, storage.path(directory))
