"""The files of a run's directory besides its logs: configuration, vocabulary, checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
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
    """Writes what is needed to use the model later, to a local directory or a bucket.

    The configuration comes last: a directory without it is not taken for a model.
    """
    if vocabulary is not None:
        with tempfile.TemporaryDirectory() as local:
            vocabulary.save(Path(local))
            copy(epath.Path(local).iterdir(), model_dir / _VOCABULARY)
    _replace(model_dir / _CONFIG, config.encode())


def has_vocabulary(model_dir: epath.Path) -> bool:
    """Whether one was written: a run has it, imported weights may come without."""
    return (model_dir / _VOCABULARY).is_dir()


def has_config(model_dir: epath.Path) -> bool:
    """Whether this is the directory of a run, or of imported weights."""
    return (model_dir / _CONFIG).exists()


def read_config(model_dir: epath.Path) -> str:
    """The resolved configuration as gin text.

    Raises:
      ValueError: this is not the directory of a run.
    """
    if not has_config(model_dir):
        advice = ""
        if (model_dir / "config.json").exists():
            advice = "; it is Hugging Face's: `t5x_like import` it first"
        raise ValueError(f"{model_dir} holds no run: there is no {_CONFIG} in it{advice}")
    return (model_dir / _CONFIG).read_text()


def read_vocabulary(model_dir: epath.Path) -> Vocabulary:
    """The vocabulary the run was trained with."""
    with tempfile.TemporaryDirectory() as local:
        copy((model_dir / _VOCABULARY).iterdir(), epath.Path(local))
        return loading.load(local)


def copy(files: Iterable[epath.PathLike], target: epath.Path) -> None:
    """Copies files into a folder, which is made if there are any, each whole or not at all."""
    for file in map(epath.Path, files):
        target.mkdir(parents=True, exist_ok=True)
        _replace(target / file.name, file.read_bytes())


def _replace(file: epath.Path, content: bytes) -> None:
    """Writes whole or not at all: a run may be killed here."""
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(content)
    partial.replace(file)
