"""How the tokens of a `tokenizer.json` spell text: where words begin, and which bytes they are."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_like.vocabularies.text import byte_level
from t5x_like.vocabularies.text.pieces import SPACE

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_STEPS = ("normalizer", "pre_tokenizer", "decoder")


@dataclasses.dataclass(frozen=True)
class Spelling:
    """The meaning of the characters of a token.

    Attributes:
      kind: the model's, for people: "WordPiece", "Unigram", "byte-level BPE".
      marks_spaces: whether "▁" stands for a space (SentencePiece).
      of_bytes: whether each character stands for a byte (GPT-2).
      names_bytes: whether tokens such as <0x0A> stand for a byte.
      prefix: the beginning of a token that continues a word (WordPiece's ##).
      suffix: the end of a token that ends a word (the first GPT's </w>).
      before: the text before that of each token: a space where every token is a word.
    """

    kind: str
    marks_spaces: bool = False
    of_bytes: bool = False
    names_bytes: bool = False
    prefix: str = ""
    suffix: str = ""
    before: str = ""

    @property
    def tells_words(self) -> bool:
        """Whether a token alone shows if it begins a word."""
        spaces = self.marks_spaces or self.of_bytes
        return spaces or bool(self.prefix) or self.kind == "WordLevel"

    def text(self, token: str) -> str:
        """A token's text with the space before it; bytes of half characters as lone surrogates."""
        if self.of_bytes:
            return byte_level.to_bytes(token).decode(errors="surrogateescape")
        if self.names_bytes and _BYTE.fullmatch(token):
            return bytes([int(token[3:5], 16)]).decode(errors="surrogateescape")
        if self.marks_spaces:
            return token.replace(SPACE, " ")
        if self.prefix:
            return token.removeprefix(self.prefix) if token.startswith(self.prefix) else f" {token}"
        return self.before + token.removesuffix(self.suffix)


def read(text: str, origin: str | Path) -> Spelling:
    """How the tokens of a file with this content spell text.

    Raises:
      ValueError: the text is not a `tokenizer.json`; names `origin`.
    """
    try:
        fields = json.loads(text)
        model = fields["model"]
        steps = json.dumps([fields.get(name) for name in _STEPS], ensure_ascii=False)
        kind = model.get("type") or _kind_of_old(model)
        prefix = model.get("continuing_subword_prefix") or ""
        suffix = model.get("end_of_word_suffix") or ""
        if not all(isinstance(name, str) for name in (kind, prefix, suffix)):
            raise TypeError("a name that is not text")
        decoder = fields.get("decoder") or {}
        fuses = "Fuse" in json.dumps(decoder)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{origin} is not a tokenizer.json; for vocab.json give the directory with merges.txt "
            "that it lies in"
        ) from error
    of_bytes = '"ByteLevel"' in steps
    return Spelling(
        kind=f"byte-level {kind}" if of_bytes else kind,
        marks_spaces=SPACE in steps and not of_bytes,
        of_bytes=of_bytes,
        names_bytes=bool(model.get("byte_fallback")),
        prefix=prefix,
        suffix=suffix,
        before=" " if kind == "WordLevel" and not fuses else "",
    )


def _kind_of_old(model: Mapping[str, Any]) -> str:
    """The kind of model in a file of an older release, which does not name it."""
    if "merges" in model:
        return "BPE"
    if isinstance(model["vocab"], list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"
