"""Byte-level BPE (GPT-2, section 2.2; RoBERTa, BART): reading `vocab.json` with `merges.txt`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_like.vocabularies import byte_level
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.tokenizer_json import describe

FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of the pair: Hugging Face's and OpenAI's."""


def read(vocab_file: Path, merges_file: Path, *, extra_ids: int = 0) -> SubwordVocabulary:
    """The vocabulary of a pair of files; its special tokens are found by name.

    Raises:
      FileNotFoundError: one of them is missing.
      ValueError: one is not what its name says.
    """
    try:
        vocab = json.loads(Path(vocab_file).read_bytes())
        lines = Path(merges_file).read_text(encoding="utf-8").split("\n")
        rules = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        merges = [(left, right) for left, right in rules]
        missing = [token for rule in merges for token in rule if token not in vocab]
        other = [character for character in byte_level.CHARACTERS if character not in vocab]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{vocab_file} and {merges_file} are not the vocabulary (JSON) and the merges (two "
            f"tokens a line) of byte-level BPE: {error}"
        ) from error
    if missing:
        raise ValueError(f"{merges_file} merges {missing[0]!r}, which {vocab_file} does not have")
    if other:
        raise ValueError(
            f"{vocab_file} is not of byte-level BPE: no token of it is {other[0]!r}, which stands "
            f"for the byte {byte_level.to_bytes(other[0])!r}"
        )
    return SubwordVocabulary(tokenizer_json(vocab, merges), extra_ids, origin=vocab_file)


def tokenizer_json(vocab: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> str:
    """The text of a `tokenizer.json`: no space is put before a text, as in GPT-2 and RoBERTa."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "merges": [list(rule) for rule in merges],
    }
    return describe(model, vocab, normalizer=None, pre_tokenizer=byte_level, decoder=byte_level)
