"""A model that is stored in a directory: of a run, or imported. To read, and to write an import."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from etils import epath
from flax import nnx

from t5x_like.cli import gin_config, model_text, run_files
from t5x_like.training.checkpoints import Checkpoints

if TYPE_CHECKING:
    from t5x_like.protocols import Vocabulary

_TOKENIZER = "tokenizer"


@dataclasses.dataclass(frozen=True)
class Stored:
    """An abstract model, its parameters as a plain dict of arrays, and what they read.

    `tokenizer` is a folder with the files of the tokenizer as they were imported.
    """

    model: nnx.Module
    params: Any
    step: int
    vocabulary: Vocabulary | None
    tokenizer: Path | None


def check_new(directory: str) -> None:
    """Raises ValueError where a directory holds something already."""
    path = epath.Path(directory)
    if path.exists() and any(path.iterdir()):
        raise ValueError(f"{directory} is not empty: name a new directory with --to")


def write(
    directory: str,
    make: functools.partial,
    params: Any,
    *,
    title: str,
    vocabulary: Vocabulary | None,
    tokenizer_files: list[Path],
) -> None:
    """Writes a model as a run would: config.gin last, so that what lacks it is not one.

    Args:
      directory: new or empty.
      make: constructs the model from `rngs`.
      params: a plain dict of arrays.
      title: a comment in config.gin.
      vocabulary: where it is known.
      tokenizer_files: kept as they are, for an export.
    """
    path = epath.Path(directory)
    text = model_text.model_text(make, title=title)
    checkpoints = Checkpoints(run_files.checkpoints(path))
    try:
        checkpoints.save_params(0, params, metadata={"config": text})
    finally:
        checkpoints.close()
    if tokenizer_files:
        (path / _TOKENIZER).mkdir(parents=True, exist_ok=True)
    for file in tokenizer_files:
        shutil.copyfile(file, path / _TOKENIZER / file.name)
    run_files.write(path, config=text, vocabulary=vocabulary)


def read(directory: str, *, step: int | None = None) -> Stored:
    """The model of a directory, with the parameters of a step, the newest by default.

    Raises:
      ValueError, OSError: it holds no model, or no such step.
    """
    path = epath.Path(directory)
    gin_config.load_text(run_files.read_config(path))
    make: Callable[..., Any] = gin_config.macro("MODEL")
    model = gin_config.made(lambda: nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=one),
        nnx.to_pure_dict(nnx.state(model, nnx.Param)),
    )
    restored = Checkpoints(run_files.checkpoints(path)).restore_params(shapes, step=step)
    has_vocabulary = run_files.has_vocabulary(path)
    tokenizer = path / _TOKENIZER
    return Stored(
        model,
        restored.state,
        restored.step,
        run_files.read_vocabulary(path) if has_vocabulary else None,
        Path(tokenizer) if tokenizer.is_dir() else None,
    )
