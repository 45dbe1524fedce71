"""Finds the vocabulary of a Hugging Face directory in whatever tokenizer files it has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.interop.tokenizers.to_files import CODE_POINTS, SAVED
from t5x_like.vocabularies import files, loading, subwords
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.code_points import CodePointVocabulary
from t5x_like.vocabularies.sentinels import USUAL_EXTRA_IDS
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.tokenizer_files import tokenizer_config

_NAMING_TOKENS = (
    *(tokenizer_config.NAME, "special_tokens_map.json", "added_tokens.json"),
    files.TOKENIZER,
)
_WITH_OTHER_IDS = "sentencepiece.bpe.model"
_PROBES = ("Ünïcode, ÉT Ab", "the 中文 of Straße", "й")
_SENTINEL = re.compile(rb"<extra_id_(\d+)>")


def find(directory: str | Path) -> tuple[Vocabulary | None, str]:
    """The vocabulary, or None where no usable one is found, and a line that says what was done.

    A directory that was exported from here gives exactly the exported vocabulary, unless somebody
    has changed its `tokenizer.json`: that is what Hugging Face reads.
    """
    folder = Path(directory)
    try:
        vocabulary, origin = _found(folder)
        line = f"{vocabulary!r} from {origin}"
        if unread := tokenizer_config.unread(folder):
            line += f"; of {tokenizer_config.NAME} these have no meaning here: {', '.join(unread)}"
    except (OSError, ValueError) as error:
        return None, f"no vocabulary from {folder}: {error}"
    return vocabulary, line


def why_none(directory: str | Path | None) -> str:
    """Why a model has no vocabulary, of whose files a directory has some; None for no files."""
    if directory is None:
        return "it came without a vocabulary"
    vocabulary, why = find(directory)
    return why if vocabulary is None else "this release reads its tokenizer: import it again"


def _found(folder: Path) -> tuple[Vocabulary, Path]:
    older = _made_by_others(folder)
    tokenizer = folder / files.TOKENIZER
    if older and not tokenizer.is_file():
        return older
    if not older or _differs(older[0], subwords.read(tokenizer)):
        return loading.load(folder), folder
    return older


def _made_by_others(folder: Path) -> tuple[Vocabulary, Path] | None:
    """The vocabulary of files that a `tokenizer.json` beside them was made from; None: no such."""
    if (folder / SAVED).is_dir():
        return loading.load(folder / SAVED), folder / SAVED
    config = tokenizer_config.read(folder)
    model_config = _json(folder / "config.json")
    named = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    if named == CODE_POINTS or model_config.get("model_type") == "canine":
        return CodePointVocabulary(), folder / tokenizer_config.NAME
    if named == "ByT5Tokenizer":
        return ByteVocabulary(), folder / tokenizer_config.NAME
    if (folder / _WITH_OTHER_IDS).is_file():
        if (folder / files.TOKENIZER).is_file():
            return None
        raise ValueError(
            f"{_WITH_OTHER_IDS} (mBART, XLM-R) has other ids than its model, which puts fairseq's "
            "special tokens before its pieces and language codes after them: open the directory "
            "with transformers, and save the tokenizer again, as tokenizer.json"
        )
    models = sorted(folder.glob("*.model"))
    if len(models) == 1:
        extra_ids = _sentinels(folder, config, model_config)
        return loading.load(models[0], extra_ids=extra_ids), models[0]
    return None


def _differs(older: Vocabulary, newer: SubwordVocabulary) -> bool:
    """Whether a `tokenizer.json` has other ids, or other rules about letters."""

    def shown(vocabulary: Vocabulary) -> list[Any]:
        ids = vocabulary.token_ids
        roles = [ids.pad, ids.cls, ids.sep, ids.mask]
        return [ids.vocab_size, roles, *map(list, vocabulary.encode_batch(_PROBES))]

    return shown(older) != shown(newer)


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
    usual = USUAL_EXTRA_IDS if model_config.get("model_type") in ("t5", "longt5") else 0
    extra_ids: int = config.get("extra_ids", usual)
    return extra_ids


def _json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty where there is no file."""
    return whole_files.read_json(path) if path.is_file() else {}
