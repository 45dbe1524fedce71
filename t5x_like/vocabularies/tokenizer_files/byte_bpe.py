"""Byte-level BPE (GPT-2, section 2.2; RoBERTa, BART): reads `vocab.json` with `merges.txt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.text import byte_level
from t5x_like.vocabularies.tokenizer_files.tokenizer_json import describe

FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of the pair of files: Hugging Face's and OpenAI's."""

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_CAPITAL, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS: Mapping[str, str | None] = {
    "gpt2": None,
    "gpt4o": "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}*{_SMALL}+{_SUFFIX}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}+{_SMALL}*{_SUFFIX}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
}
"""Patterns of words; no merge crosses their ends. GPT-2's, which the `tokenizers` library has and
RoBERTa and BART use, treats a combining mark as punctuation, and so cuts the words of Hindi, Thai
and other scripts at vowels. GPT-4o's (o200k_base) keeps marks with letters, numbers in threes."""


def read(vocab_file: Path, merges_file: Path, *, extra_ids: int = 0) -> SubwordVocabulary:
    """The vocabulary of a pair of files; its special tokens are found by name.

    Raises:
      FileNotFoundError: one of them is missing.
      ValueError: a file does not hold what its name says.
    """
    try:
        vocab = whole_files.read_json(Path(vocab_file))
        if not all(type(i) is int and 0 <= i < 1 << 31 for i in vocab.values()):
            raise TypeError("an id is not a whole number from 0 on")
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


def divide(pattern: str) -> dict[str, Any]:
    """The `pre_tokenizer` for one of `PATTERNS` in a `tokenizer.json`; adds no space before a text.

    Raises:
      ValueError: there is no such pattern.
    """
    if pattern not in PATTERNS:
        raise ValueError(f"no pattern {pattern!r} of byte-level BPE: one of {', '.join(PATTERNS)}")
    regex = PATTERNS[pattern]
    if regex is None:
        return _BYTES | {"use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _BYTES | {"use_regex": False}]}


def tokenizer_json(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], *, pattern: str = "gpt2"
) -> str:
    """The text of a `tokenizer.json`; one of `PATTERNS` divides text into words."""
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
    decoder = _BYTES | {"use_regex": True}
    return describe(model, vocab, normalizer=None, pre_tokenizer=divide(pattern), decoder=decoder)
