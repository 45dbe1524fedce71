"""Vocabularies of whole words and punctuation marks, as models before subwords had them."""

from __future__ import annotations

from collections.abc import Mapping

from t5x_like.vocabularies.tokenizer_files import wordpiece
from t5x_like.vocabularies.tokenizer_files.tokenizer_json import describe


def tokenizer_json(
    vocab: Mapping[str, int], *, lowercase: bool, strip_accents: bool | None = None
) -> str:
    """The text of a `tokenizer.json`: BERT's clean-up and splitting, then whole words.

    Where `strip_accents` is None, accents are stripped if text is lower-cased.
    """
    return describe(
        {"type": "WordLevel", "unk_token": wordpiece.UNKNOWN},
        vocab,
        normalizer=wordpiece.normalizer(lowercase=lowercase, strip_accents=strip_accents),
        pre_tokenizer=wordpiece.SPLITTING,
        decoder=wordpiece.JOINING,
    )
