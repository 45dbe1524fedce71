"""The files of a Hugging Face directory that an import copies and an export writes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CARD = "README.md"
SETTINGS = ("config.json", "generation_config.json", CARD)
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model"),
)


def settings(directory: Any) -> list[Any]:
    """The paths of the files about the model itself, and of its card, in a directory or bucket."""
    return _present(directory, SETTINGS)


def tokenizer(directory: Any) -> list[Any]:
    """The paths of the files of the tokenizer."""
    return _present(directory, TOKENIZER)


def _present(directory: Any, patterns: Sequence[str]) -> list[Any]:
    paths = [path for pattern in patterns for path in sorted(directory.glob(pattern))]
    return [path for path in paths if path.is_file()]
