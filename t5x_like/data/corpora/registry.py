"""The registry of corpora by name."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from t5x_like.core.spelling import nearest
from t5x_like.data.corpora.corpus import Corpus, CorpusError

_REGISTERED: dict[str, Corpus] = {}


def add(corpus: Corpus) -> Corpus:
    """Registers a corpus under its name, as modules of `tasks` do when they are imported.

    Raises:
      ValueError: the name is taken.
    """
    if corpus.name in _REGISTERED:
        raise ValueError(
            f"there is a corpus {corpus.name!r} already "
            f"({_REGISTERED[corpus.name].description()}): choose another name"
        )
    _REGISTERED[corpus.name] = corpus
    return corpus


def get(name: str) -> Corpus:
    """The corpus of this name.

    Raises:
      CorpusError: there is no such corpus; the message gives the nearest names.
    """
    known = names()
    if name not in known:
        raise CorpusError(f"no corpus {name!r}" + nearest(name, known, of="corpora"))
    return _REGISTERED[name]


def names() -> tuple[str, ...]:
    """The names of all corpora: those of `t5x_like.tasks` and those added later."""
    _import_tasks()
    return tuple(sorted(_REGISTERED))


@functools.cache
def task_package() -> ModuleType:
    """The package `t5x_like.tasks`, whose modules are data sets."""
    if importlib.util.find_spec("t5x_like.tasks") is None:  # a checkout that is not installed
        package = sys.modules["t5x_like"]
        package.__path__.append(str(Path(*package.__path__).resolve().parent))
    return importlib.import_module("t5x_like.tasks")


@functools.cache
def _import_tasks() -> None:
    tasks = task_package()
    for module in pkgutil.iter_modules(tasks.__path__):
        importlib.import_module(f"{tasks.__name__}.{module.name}")
