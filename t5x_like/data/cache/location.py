"""The paths of vocabularies, caches and task records."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from t5x_like.core import whole_files
from t5x_like.core.buckets import staging
from t5x_like.core.protocols.data import Vocabulary


def cache_root(cache_dir: str | None = None) -> Path:
    """The absolute path of `cache_dir`, or of `$T5X_LIKE_CACHE`, or of `~/.cache/t5x_like`.

    For a bucket, it is the folder of its copies on this disk (`core.buckets.staging`).
    """
    chosen = cache_dir or os.environ.get("T5X_LIKE_CACHE") or "~/.cache/t5x_like"
    return staging.local(chosen).expanduser().absolute()


def vocabulary_file(
    root: Path, corpus_name: str, *, fingerprint: str, kind: str, size: int
) -> Path:
    """The file of a vocabulary trained on a corpus. A changed text gets another file."""
    return (
        root / "vocabularies" / f"{_file_name(corpus_name)}-{fingerprint[:8]}-{kind}-{size}.model"
    )


def cache_directory(text: str, vocabulary: Vocabulary, *, sentences: str | None = None) -> str:
    """The directory of a cache, relative to the root.

    Each text has one for each vocabulary, which serves every objective. Plain text has one for each
    way to cut `sentences`.
    """
    end = "" if sentences is None else f"-{_file_name(sentences)}"
    return f"tokens/{_file_name(text)}-{vocabulary.fingerprint[:8]}{end}"


def label_for_lengths(text: str, lengths: Mapping[str, int]) -> str:
    """The name of a text whose tokens depend on feature lengths."""
    return "-".join([text, *(f"{feature}{length}" for feature, length in lengths.items())])


def evaluation_file(
    root: Path, task_name: str, *, vocabulary: str, split: str, lengths: Mapping[str, int]
) -> Path:
    """The file of a split's final examples for these feature lengths.

    `vocabulary` is the fingerprint of the vocabulary.
    """
    sizes = "".join(f"-{name}{length}" for name, length in sorted(lengths.items()))
    folder = f"{_file_name(task_name)}-{vocabulary[:8]}"
    return root / "evaluation" / folder / f"{_file_name(split)}{sizes}.jsonl.gz"


def record_file(root: Path, task_name: str) -> Path:
    """The JSON file that lets a cached task or mixture train where SeqIO is not installed."""
    return root / "tasks" / f"{_file_name(task_name)}.json"


def check_place(root: Path, path: Path) -> None:
    """Raises LinkError if a place below a cache root leads out of it by a link."""
    whole_files.check_no_link(path, inside=root)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
