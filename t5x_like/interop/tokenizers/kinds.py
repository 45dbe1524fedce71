"""Describes any kind of vocabulary as a `tokenizer.json` that gives the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.interop.tokenizers import sentencepiece_model, sentencepiece_steps
from t5x_like.vocabularies import files, special_tokens
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.sentinels import sentinel_text
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.text import byte_level
from t5x_like.vocabularies.tokenizer_files import byte_bpe

# The bytes' ids start here; those that a byte vocabulary uses as sentinels stay bytes.
_BYTES_FROM = 3


def describe(vocabulary: Vocabulary, saved: Path) -> dict[str, Any]:
    """The fields of the file: it puts nothing around a text; special tokens in it are special.

    Args:
      vocabulary: one of text.
      saved: the directory where it was saved.

    Raises:
      ValueError: no such file can describe the vocabulary.
    """
    match vocabulary:
        case SubwordVocabulary():
            fields = json.loads(vocabulary.tokenizer_json)
            _add_sentinels(fields, vocabulary, vocabulary.num_sentinels)
            _mark(fields, vocabulary)
        case SentencePieceVocabulary():
            fields = _of_sentencepiece(vocabulary, (saved / files.MODEL).read_bytes())
        case ByteVocabulary():
            fields = _of_bytes()
            _add_sentinels(fields, vocabulary, vocabulary.to_json()["extra_ids"])
        case CharacterVocabulary():
            fields = _of_characters(vocabulary)
            _add_sentinels(fields, vocabulary, vocabulary.extra_ids)
        case _:
            raise ValueError(f"{vocabulary!r} has no text, so that no tokenizer can be made of it")
    return fields | {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "added_tokens": sorted(fields["added_tokens"], key=lambda token: token["id"]),
    }


def _special(i: int, name: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": name, "special": True, **flags}


def _add_sentinels(fields: dict[str, Any], vocabulary: Vocabulary, count: int) -> None:
    """Adds those that the file lacks, as tokens that follow its own."""
    known = {token["content"] for token in fields["added_tokens"]}
    for number in range(count):
        i, name = vocabulary.token_ids.sentinel(number), sentinel_text(number)
        if name not in known:
            fields["added_tokens"].append(_special(i, name))
            if isinstance(fields["model"]["vocab"], dict):
                fields["model"]["vocab"][name] = i


def _mark(fields: dict[str, Any], vocabulary: SubwordVocabulary) -> None:
    """Marks special tokens; a mask or a sentinel stands for a word with the space before it."""
    ids = vocabulary.token_ids
    sentinels = {ids.sentinel(number) for number in range(vocabulary.num_sentinels)}
    known = {token["id"] for token in fields["added_tokens"]}
    roles = {i for i in ids.special if i not in known and i not in ids.named.values()}
    fields["added_tokens"] += [_special(i, vocabulary.piece(i)) for i in roles]
    for token in fields["added_tokens"]:
        if token["id"] == ids.mask or token["id"] in sentinels:
            token["lstrip"] = True


def _of_sentencepiece(vocabulary: SentencePieceVocabulary, content: bytes) -> dict[str, Any]:
    model = sentencepiece_model.parse(content)
    names = [vocabulary.piece(i) for i in range(vocabulary.vocab_size)]
    of_model = (sentencepiece_model.Type.CONTROL, sentencepiece_model.Type.UNKNOWN)
    special = {i for i, piece in enumerate(model.pieces) if piece.type in of_model}
    special |= {i for i, name in enumerate(names) if special_tokens.is_special(name)}
    special |= set(range(vocabulary.vocab_size - vocabulary.num_sentinels, vocabulary.vocab_size))
    return {
        "added_tokens": [_special(i, names[i]) for i in special],
        **sentencepiece_steps.describe(model, names, clean=vocabulary.cleans_text),
    }


def _of_bytes() -> dict[str, Any]:
    """Byte-level BPE that merges nothing."""
    vocab = {name: i for i, name in enumerate(special_tokens.TRAINED[:_BYTES_FROM])}
    vocab |= {c: _BYTES_FROM + byte_level.to_bytes(c)[0] for c in byte_level.CHARACTERS}
    fields: dict[str, Any] = json.loads(byte_bpe.tokenizer_json(vocab, merges=[]))
    return fields


def _of_characters(vocabulary: CharacterVocabulary) -> dict[str, Any]:
    """Each character is a word."""
    vocab = {name: i for i, name in enumerate((*special_tokens.TRAINED, *vocabulary.characters))}
    special = special_tokens.TRAINED
    unknown = special[vocabulary.token_ids.given("unk")]
    return {
        "added_tokens": [_special(i, name) for i, name in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "unk_token": unknown, "vocab": vocab},
    }
