"""Finds the vocabulary of a Hugging Face directory in whatever tokenizer files it has."""

from __future__ import annotations

import re
import reprlib
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.core.protocols import Vocabulary
from t5x_like.interop.tokenizers.to_files import SAVED
from t5x_like.vocabularies import loading, wordpiece
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.sentinels import USUAL_EXTRA_IDS

_CONFIG, _TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_NAMING_TOKENS = (_CONFIG, "special_tokens_map.json", "added_tokens.json", _TOKENIZER)
_WITH_OTHER_IDS = "sentencepiece.bpe.model"
_SENTINEL = re.compile(rb"<extra_id_(\d+)>")


def find(directory: str | Path) -> tuple[Vocabulary | None, str]:
    """The vocabulary, or None where no usable one is found, and a line that says what was done.

    A directory that was exported from here gives exactly the exported vocabulary.
    """
    folder = Path(directory)
    try:
        vocabulary, origin = _found(folder)
    except (OSError, ValueError) as error:
        return None, f"no vocabulary from {folder}: {error}"
    return vocabulary, f"{vocabulary!r} from {origin}"


def _found(folder: Path) -> tuple[Vocabulary, Path]:
    if (folder / SAVED).is_dir():
        return loading.load(folder / SAVED), folder / SAVED
    config = _json(folder / _CONFIG)
    model_config = _json(folder / "config.json")
    named = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    if named == "ByT5Tokenizer":
        return ByteVocabulary(), folder / _CONFIG
    if (folder / _WITH_OTHER_IDS).is_file():
        raise ValueError(
            f"{_WITH_OTHER_IDS} (mBART, XLM-R) has other ids than its model, which puts fairseq's "
            "special tokens before its pieces and language codes after them; cache text for this "
            "model with its own tokenizer"
        )
    models = sorted(folder.glob("*.model"))
    if len(models) == 1:
        extra_ids = _sentinels(folder, config, model_config)
        return loading.load(models[0], extra_ids=extra_ids), models[0]
    word_pieces = folder / loading.WORDPIECE
    if word_pieces.is_file() and not (folder / _TOKENIZER).is_file():
        lowercase = config.get("do_lower_case")
        if lowercase not in (None, True, False):
            raise ValueError(f"{folder / _CONFIG} has do_lower_case {reprlib.repr(lowercase)}")
        return wordpiece.read(word_pieces, lowercase=lowercase), word_pieces
    return loading.load(folder), folder


def _sentinels(folder: Path, config: dict[str, Any], model_config: dict[str, Any]) -> int:
    """The number of sentinels that the tokenizer adds to the pieces of its `.model` file."""
    numbers = [
        int(number)
        for name in _NAMING_TOKENS
        if (folder / name).is_file()
        for number in _SENTINEL.findall((folder / name).read_bytes())
    ]
    if numbers:
        return max(numbers) + 1
    usual = USUAL_EXTRA_IDS if model_config.get("model_type") == "t5" else 0
    given: int = config.get("extra_ids", usual)
    return given


def _json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty where there is no file."""
    return whole_files.read_json(path) if path.is_file() else {}
