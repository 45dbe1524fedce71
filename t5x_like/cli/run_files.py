"""The files of a run's directory besides its logs: configuration, vocabulary, checkpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path

from etils import epath

from t5x_like.protocols import Vocabulary
from t5x_like.vocabularies import loading

_CONFIG = "config.gin"
_VOCABULARY = "vocabulary"


def checkpoints(model_dir: epath.Path) -> epath.Path:
    """Where the checkpoints are."""
    return model_dir / "checkpoints"


def write(model_dir: epath.Path, *, config: str, vocabulary: Vocabulary | None) -> None:
    """Writes what is needed to use the model later, to a local directory or a bucket."""
    _replace(model_dir / _CONFIG, config.encode())
    if vocabulary is None:
        return
    with tempfile.TemporaryDirectory() as local:
        vocabulary.save(Path(local))
        _copy(epath.Path(local), model_dir / _VOCABULARY)


def has_vocabulary(model_dir: epath.Path) -> bool:
    """Whether one was written: a run has it, imported weights may come without."""
    return (model_dir / _VOCABULARY).is_dir()


def read_config(model_dir: epath.Path) -> str:
    """The resolved configuration as gin text.

    Raises:
      ValueError: this is not the directory of a run.
    """
    if not (model_dir / _CONFIG).exists():
        raise ValueError(f"{model_dir} holds no run: there is no {_CONFIG} in it")
    return (model_dir / _CONFIG).read_text()


def read_vocabulary(model_dir: epath.Path) -> Vocabulary:
    """The vocabulary the run was trained with."""
    with tempfile.TemporaryDirectory() as local:
        _copy(model_dir / _VOCABULARY, epath.Path(local))
        return loading.load(local)


def _copy(source: epath.Path, target: epath.Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        _replace(target / file.name, file.read_bytes())


def _replace(file: epath.Path, content: bytes) -> None:
    """Writes whole or not at all: a run may be killed here."""
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(content)
    partial.replace(file)
