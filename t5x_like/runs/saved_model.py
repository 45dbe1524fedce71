"""Reads the model in the directory of a run or of an import; writes an import."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from etils import epath
from flax import nnx

from t5x_like.config import gin_config, gin_text, object_text
from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.runs import model_config, run_directory
from t5x_like.runs.run import Options, adapted, phase_starts
from t5x_like.training.checkpointing.checkpoints import Checkpoints

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.training.checkpointing.bases import Base
    from t5x_like.training.checkpointing.ranking import WantedStep

_ORIGINAL = "hugging_face"
"""The folder of the files that an import copies: tokenizer, config.json, generation_config.json."""


@dataclasses.dataclass(frozen=True)
class SavedModel:
    """An abstract model, its parameters as a plain dict of `LazyArray`, and its vocabulary.

    `directory` is where it was read from, `original` the folder of the files that an import copied,
    `labels` are the names of the classes that a run has learned. `task_head` is the task whose head
    it has, of a run of several.
    """

    model: nnx.Module
    params: Any
    step: int
    vocabulary: Vocabulary | None
    directory: str
    original: epath.Path | None
    labels: Sequence[str]
    task_head: str | None = None


def check_new(directory: str) -> None:
    """Raises ValueError if a directory is not empty, or no checkpoint can be read from it."""
    run_directory.check_name(directory)
    path = storage.path(directory)
    if path.exists() and any(path.iterdir()):
        raise ValueError(f"{directory} is not empty: name a new directory with --to")


def write(
    directory: str,
    make: functools.partial,
    params: Any,
    *,
    title: str,
    vocabulary: Vocabulary | None,
    files: Iterable[Path],
    adapt: functools.partial | None = None,
    bases: Sequence[Base] = (),
    labels: Sequence[str] = (),
) -> None:
    """Writes a model like a run; config.gin comes last, so that only a complete model has it.

    Args:
      directory: a new or empty directory.
      make: constructs the model from `rngs`.
      params: a plain dict of NumPy arrays, which is changed: JAX arrays replace them. What `bases`
        have is given by shape and dtype.
      title: a sentence about where the model is from, for config.gin and the checkpoint.
      vocabulary: the vocabulary; None if it is unknown.
      files: files to copy unchanged, for an export.
      adapt: gives the model new parameters (`Run.adapt`); None for none.
      bases: where parameters are that are not saved.
      labels: the names of its classes.

    Raises:
      ValueError: the model's table of tokens has no row for an id of the vocabulary.
    """
    check_rows(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))), vocabulary)
    text = object_text.model_text(make, title=title, adapt=adapt)
    _move(params, jax.devices("cpu")[0])
    with _appearing(directory) as path:
        checkpoints = Checkpoints(run_directory.checkpoints(path), bases=bases)
        try:
            checkpoints.save_params(0, params, metadata={"config": text, "title": title})
        finally:
            checkpoints.close()
        run_directory.copy(files, path / _ORIGINAL)
        names = {"label": labels} if labels else None
        run_directory.write(path, config=text, vocabulary=vocabulary, labels=names)


def check_rows(model: Any, vocabulary: Vocabulary | None) -> None:
    """Raises ValueError where ids of the vocabulary have no row in the model's table."""
    if vocabulary is not None and vocabulary.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {vocabulary.vocab_size:,} ids, and the model's table "
            f"{model.config.vocab_size:,} rows: the last ids would have no vector. Resize the "
            "model where it was made (`model.resize_token_embeddings(len(tokenizer))`), or name "
            "the vocabulary that it was trained with (`import --vocabulary`)"
        )


@contextlib.contextmanager
def _appearing(directory: str) -> Iterator[epath.Path]:
    """A folder to write. On a disk it appears whole: a command that fails may be repeated."""
    if storage.is_url(directory):
        yield storage.path(directory)
    else:
        with whole_files.writing_folder(Path(directory)) as folder:
            yield epath.Path(folder)


def read(directory: str, *, step: WantedStep = None, modules: Collection[str] = ()) -> SavedModel:
    """The model of a directory, with the parameters of a step; None for the newest.

    Args:
      directory: the directory of a run, or of imported weights.
      step: the step of the checkpoint, or "best".
      modules: modules that its configuration may name (`run_directory.load_config`).

    Raises:
      ValueError, OSError: it holds no model, or no such step.
    """
    path = storage.path(directory)
    model = abstract_model(directory, modules)
    # The model may be larger than the memory of an accelerator.
    sharding = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nnx.to_pure_dict(nnx.state(model, nnx.Param)),
    )
    checkpoints = Checkpoints(
        run_directory.checkpoints(path), best_metric=_best_metric(path, modules)
    )
    restored = checkpoints.open_params(shapes, step=step)
    model = abstract_model(directory, modules, step=restored.step)
    has_vocabulary = run_directory.has_vocabulary(path)
    original = path / _ORIGINAL
    return SavedModel(
        model,
        restored.state,
        restored.step,
        run_directory.read_vocabulary(path) if has_vocabulary else None,
        directory,
        original if original.is_dir() else None,
        run_directory.read_class_names(path),
    )


def abstract_model(directory: str, modules: Collection[str] = (), *, step: int = 0) -> Any:
    """The model of a directory without its parameters, with the settings of the phase of a step.

    Raises:
      ValueError: it holds no model, or names other modules than ours and `modules`.
    """
    make, adapt = constructor(directory, modules, step=step), None
    with gin_config.temporary_configuration():
        run_directory.load_config(storage.path(directory), modules)
        if is_adapted(directory):
            adapt = gin_config.without_gin(gin_config.macro("ADAPT"))

    def made() -> Any:
        rngs = nnx.Rngs(0)
        return adapted(make(rngs=rngs), adapt, rngs)

    with run_directory.named(directory):
        return gin_config.call(lambda: nnx.eval_shape(made))


def is_adapted(directory: str) -> bool:
    """Whether the run in a directory adapts its model (`Run.adapt`)."""
    return "ADAPT" in macros(directory)


def constructor(
    directory: str, modules: Collection[str] = (), *, step: int = 0
) -> functools.partial[Any]:
    """The constructor of a directory's model from `rngs`, before a run adapts it.

    Args:
      directory: the directory.
      modules: modules that its configuration may name (`run_directory.load_config`).
      step: the model has the settings of the phase of this step.

    Raises:
      ValueError: as in `abstract_model`.
    """
    with gin_config.temporary_configuration():
        run_directory.load_config(storage.path(directory), modules)
        with run_directory.named(directory):
            make: functools.partial[Any] = gin_config.without_gin(gin_config.macro("MODEL"))
            if "PHASES" not in macros(directory):
                return make
            phases = gin_config.without_gin(gin_config.macro("PHASES"))
    starts = zip(phase_starts(phases), phases, strict=True)
    begun = [phase for start, phase in starts if start < max(step, 1)]
    fields = begun[-1].model if begun else None
    return make if fields is None else model_config.with_fields(make, fields)


def macros(directory: str) -> set[str]:
    """The names that the configuration of a directory sets; that of an import has few."""
    return set(map(str, gin_text.read(run_directory.read_config(storage.path(directory))).values))


def _best_metric(directory: epath.Path, modules: Collection[str]) -> str:
    """The metric by which the checkpoints of a run are ranked."""
    with gin_config.temporary_configuration():
        run_directory.load_config(directory, modules)
        metric: str = gin_config.arguments_of(Options).get("best_metric", Options.best_metric)
        return metric


def _move(params: dict[str, Any], device: jax.Device) -> None:
    """Replaces NumPy arrays by JAX arrays, one by one; Orbax would copy them all at once."""
    for name, leaf in params.items():
        if isinstance(leaf, dict):
            _move(leaf, device)
        elif not isinstance(leaf, jax.ShapeDtypeStruct):
            params[name] = jax.device_put(leaf, device).block_until_ready()
