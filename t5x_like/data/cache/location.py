"""Where vocabularies, caches and task records are kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

from t5x_like.core.protocols import Vocabulary


def cache_root(cache_dir: str | None = None) -> Path:
    """`cache_dir`, else `$T5X_LIKE_CACHE`, else `~/.cache/t5x_like`; absolute."""
    chosen = cache_dir or os.environ.get("T5X_LIKE_CACHE") or "~/.cache/t5x_like"
    return Path(chosen).expanduser().absolute()


def vocabulary_file(
    root: Path, corpus_name: str, *, fingerprint: str, kind: str, size: int
) -> Path:
    """The file of a vocabulary trained on a corpus; another text gets another file."""
    return (
        root / "vocabularies" / f"{_file_name(corpus_name)}-{fingerprint[:8]}-{kind}-{size}.model"
    )


def cache_directory(text: str, vocabulary: Vocabulary, *, sentences: str | None = None) -> str:
    """Relative to the root. One for each text and vocabulary: it serves every objective.

    Of plain text also one for each way to cut it into `sentences`.
    """
    end = "" if sentences is None else f"-{_file_name(sentences)}"
    return f"tokens/{_file_name(text)}-{vocabulary.fingerprint[:8]}{end}"


def record_file(root: Path, task_name: str) -> Path:
    """The JSON file that lets a cached task or mixture train where SeqIO is not installed."""
    return root / "tasks" / f"{_file_name(task_name)}.json"


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
