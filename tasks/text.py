"""A corpus of the user's own text files, by one function call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t5x_like.data.corpora import registry
from t5x_like.data.corpora.text_files import TextFiles


def text(name: str, files: str | Path | Sequence[str | Path], **options: Any) -> TextFiles:
    """Registers a corpus of files under a name; options are those of `TextFiles`.

    Files are first looked at when the corpus is read: a module that calls this imports without
    them.

    Raises:
      ValueError: the name is taken, or an option is not valid.
    """
    corpus = TextFiles(files, name=name, **options)
    registry.add(corpus)
    return corpus
