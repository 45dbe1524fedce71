"""WordPiece (BERT): reads `vocab.txt`, cased or uncased."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.text import lower_case
from t5x_like.vocabularies.tokenizer_files import tokenizer_config
from t5x_like.vocabularies.tokenizer_files.tokenizer_json import describe

UNKNOWN = "[UNK]"
PREFIX = "##"
SPLITTING = {"type": "BertPreTokenizer"}
"""Text in words and punctuation marks."""
JOINING = {"type": "WordPiece", "prefix": PREFIX, "cleanup": True}
"""A space before each word, and none before most punctuation marks."""


def read(
    vocab_file: Path, *, extra_ids: int = 0, lowercase: bool | None = None
) -> SubwordVocabulary:
    """The vocabulary of a file with one token a line.

    Args:
      vocab_file: BERT's `vocab.txt`.
      extra_ids: sentinels to add.
      lowercase: whether text is lower-cased and stripped of accents; None: as the
        `tokenizer_config.json` beside the file says, or else where no token has a capital letter.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not a WordPiece vocabulary, or that file has other values.
    """
    try:
        tokens = Path(vocab_file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{vocab_file} is not text in UTF-8") from error
    if UNKNOWN not in tokens:
        raise ValueError(f"{vocab_file} is not a WordPiece vocabulary: no line of it is {UNKNOWN}")
    folder = Path(vocab_file).parent
    rules: dict[str, bool | None] = {"lowercase": lower_case.has_no_capitals(tokens)}
    rules |= tokenizer_config.of_bert(folder)
    if lowercase is not None:
        rules["lowercase"] = lowercase
    text = tokenizer_json({token: i for i, token in enumerate(tokens)}, **rules)
    roles = tokenizer_config.roles(folder)
    return SubwordVocabulary(text, extra_ids, roles=roles, origin=vocab_file)


def tokenizer_json(
    vocab: Mapping[str, int],
    *,
    lowercase: bool | None,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool | None = True,
) -> str:
    """The text of a `tokenizer.json`: BERT's clean-up and splitting, then longest match first.

    Where `strip_accents` is None, accents are stripped if text is lower-cased.
    """
    model = {
        "type": "WordPiece",
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": PREFIX,
        "max_input_chars_per_word": 100,
    }
    return describe(
        model,
        vocab,
        normalizer=normalizer(
            lowercase=lowercase,
            strip_accents=strip_accents,
            handle_chinese_chars=handle_chinese_chars,
        ),
        pre_tokenizer=SPLITTING,
        decoder=JOINING,
    )


def normalizer(
    *,
    lowercase: bool | None,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool | None = True,
) -> dict[str, Any]:
    """BERT's clean-up of text, as in a `tokenizer.json`."""
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": handle_chinese_chars,
        "strip_accents": strip_accents,
        "lowercase": lowercase,
    }
