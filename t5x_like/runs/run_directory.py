"""A run's directory: its configuration, vocabulary and checkpoints, and the lock of training."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
from etils import epath

from t5x_like.config import former_names, gin_config, gin_files, gin_text
from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.core.protocols.tasks import own
from t5x_like.data.cache import typed_json
from t5x_like.data.cache.lock import HeldError, sole_writer
from t5x_like.data.user_modules import import_module
from t5x_like.training.hosts import multihost
from t5x_like.vocabularies import loading

_CONFIG = "config.gin"
_VOCABULARY = "vocabulary"
_LABELS = "labels.json"
_LOCK = ".training"


def checkpoints(model_dir: epath.Path) -> epath.Path:
    """The directory of the checkpoints."""
    return model_dir / "checkpoints"


def check_name(model_dir: str) -> None:
    """Raises ValueError if Orbax would not find checkpoints that it writes in a directory."""
    absolute = os.path.abspath(model_dir)
    if not storage.is_url(model_dir) and not fnmatch.fnmatchcase(absolute, absolute):
        raise ValueError(
            f"the directory {model_dir!r} has brackets in its path, which Orbax takes for a "
            "pattern: it would not find the checkpoints that it writes there. Name a directory "
            "without them"
        )


def write(
    model_dir: epath.Path,
    *,
    config: str,
    vocabulary: Vocabulary | None,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Writes what a run or a model is besides its parameters, to a local directory or a bucket.

    The configuration comes last: a directory without it does not count as a model.

    Args:
      model_dir: the directory.
      config: the configuration as gin text.
      vocabulary: the vocabulary; None if it is unknown.
      labels: {column: the names of its classes}, in the order of the model's logits; of several
        tasks {"<task>/<column>": names}.
    """
    if labels:
        text = json.dumps(labels, indent=1, ensure_ascii=False)
        whole_files.write(model_dir / _LABELS, text.encode())
    if vocabulary is not None:
        with tempfile.TemporaryDirectory() as local:
            vocabulary.save(Path(local))
            copy(epath.Path(local).iterdir(), model_dir / _VOCABULARY)
    whole_files.write(model_dir / _CONFIG, config.encode())


def has_vocabulary(model_dir: epath.Path) -> bool:
    """Whether the directory has a vocabulary: a run has one, imported weights may have none."""
    return (model_dir / _VOCABULARY).is_dir()


def has_config(model_dir: epath.Path) -> bool:
    """Whether this is the directory of a run, or of imported weights."""
    return (model_dir / _CONFIG).exists()


def is_run(model_dir: epath.Path) -> bool:
    """Whether the directory is a run's: imported weights have no task."""
    try:
        parsed = gin_text.read(read_config(model_dir))
    except (SyntaxError, RecursionError):  # it is damaged, which its reader says
        return False
    return any(binding.selector.rpartition(".")[2] == "Run" for binding in parsed.bindings)


def read_config(model_dir: epath.Path) -> str:
    """The resolved configuration as gin text, in which modules have the names of today.

    Raises:
      ValueError: this is not the directory of a run, or its configuration is not text.
    """
    if not has_config(model_dir):
        missing = f"there is no {_CONFIG} in it" if model_dir.exists() else "it is not there"
        advice = ""
        if (model_dir / "config.json").exists():
            advice = "; it has Hugging Face's format: import it with `t5x_like import` first"
        elif recipe := gin_files.recipe_into(str(model_dir)):
            advice = f"; train it first: `t5x_like train --recipe {recipe}`"
        elif not model_dir.exists():
            advice = (
                "; if it is a model of the hub, import it first: `t5x_like import --from "
                f"{model_dir} --to DIR`"
            )
        raise ValueError(f"{model_dir} holds no run: {missing}{advice}")
    try:
        return former_names.current((model_dir / _CONFIG).read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{model_dir / _CONFIG} is damaged: {error}") from error


def load_config(model_dir: epath.Path, modules: Collection[str] = ()) -> None:
    """Replaces the process's gin configuration with that of a run, or of imported weights.

    Args:
      model_dir: the directory, which anybody may have written.
      modules: modules or `.py` files that its configuration may name, as the user gave them.

    Raises:
      ValueError: it is not such a directory.
      UntrustedError: its configuration names something that it may not name (`trust.check`).
    """
    names = [import_module(module) for module in modules]
    text = read_config(model_dir)
    gin_config.load_text(text, where=f"the configuration of {model_dir}", modules=names)


@contextlib.contextmanager
def named(model_dir: object) -> Iterator[None]:
    """Names the directory in errors of what its configuration makes.

    Raises:
      ConfigError: in place of that of the block.
    """
    try:
        yield
    except gin_config.ConfigError as error:
        raise gin_config.ConfigError(f"the configuration of {model_dir}: {error}") from error


def read_vocabulary(model_dir: epath.Path) -> Vocabulary:
    """The vocabulary the run was trained with.

    Raises:
      ValueError, OSError: it is missing or damaged; the message names its place.
    """
    if not has_vocabulary(model_dir):
        raise FileNotFoundError(
            f"{model_dir / _VOCABULARY} is missing: the command that trains the run writes it again"
        )
    return loading.load(os.fspath(model_dir / _VOCABULARY))


def read_labels(model_dir: epath.Path) -> Mapping[str, tuple[str, ...]]:
    """{column: the names of its classes} that a run has learned; empty where it has no labels.

    A column of one of several tasks is `<task>/<column>`.

    Raises:
      ValueError: the file is damaged.
    """
    path = model_dir / _LABELS
    if not path.exists():
        return {}
    labels: Mapping[str, tuple[str, ...]] = typed_json.read(
        Mapping[str, tuple[str, ...]], whole_files.read_json(path), str(path)
    )
    return labels


def read_class_names(model_dir: epath.Path, task: str | None = None) -> tuple[str, ...]:
    """The names of a run's classes in the order of its logits; empty where it has no labels.

    Args:
      model_dir: the directory of the run.
      task: the task whose classes they are, of several.

    Raises:
      ValueError: as `read_labels`.
    """
    labels = read_labels(model_dir)
    return next(iter((labels if task is None else own(labels, task)).values()), ())


def copy(files: Iterable[epath.PathLike], target: epath.Path) -> None:
    """Copies files into a folder, each whole or not at all; makes the folder if there are any."""
    for file in map(epath.Path, files):
        target.mkdir(parents=True, exist_ok=True)
        whole_files.write(target / file.name, file.read_bytes())


@contextlib.contextmanager
def sole_run(model_dir: epath.Path) -> Iterator[None]:
    """Locks a run's directory while its processes train; process 0 does so for all of them.

    The lock ends with its process. Buckets and some network file systems have no locks.

    Raises:
      ProcessError: another run holds the lock; the message says which.
    """
    with contextlib.ExitStack() as stack:
        holder = None
        if jax.process_index() == 0 and "://" not in str(model_dir):
            try:
                stack.enter_context(sole_writer(Path(model_dir), lock=_LOCK, wait=False))
            except HeldError as held:
                holder = str(held)
            except ValueError:  # a file system without locks
                pass
        if multihost.everywhere("the run's lock", holder is not None).any():
            raise multihost.ProcessError(
                f"another run is training in {model_dir}: {holder or 'process 0 says which'}. Two "
                "runs would destroy each other's checkpoints: wait for it, end it, or choose "
                "another MODEL_DIR"
            )
        yield
