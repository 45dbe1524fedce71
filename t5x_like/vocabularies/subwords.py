"""WordPiece and byte-level BPE: a `tokenizer.json` of the `tokenizers` library, with sentinels."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from t5x_like.core.protocols import TokenIds
from t5x_like.vocabularies import files, sentinels, special_tokens, tokenizer_json
from t5x_like.vocabularies.text import byte_level, pieces

# Callers use threads or processes; threads of the library as well would be too many for the
# cores, and none of them survives a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_SKIPPED = 1000
"""Ids that a small file may skip."""


class SubwordVocabulary:
    """The tokens of a `tokenizer.json` with its ids, then `extra_ids` sentinels from the top.

    Special tokens are recognised by name; raw text never becomes one. Where no token is padding,
    the end of text is (GPT-2). Nothing is put around a text.

    Raises:
      ValueError: it is not such a file, or is neither WordPiece nor byte-level BPE.
    """

    releases_lock = True
    """The library encodes without Python's lock."""

    def __init__(self, text: str, extra_ids: int = 0, *, origin: str | Path = "this") -> None:
        """`text` is the file's content, `origin` its name in errors."""
        self._json = text
        self._extra_ids = extra_ids
        self._prefix = tokenizer_json.continuing_prefix(text, origin)
        try:
            ids = self._tokenizer.get_vocab(with_added_tokens=True).values()
        except Exception as error:  # the library has no class of its own for it
            raise ValueError(f"{origin} is not a tokenizer.json ({error})") from error
        # Memory is needed for each id, also for those that are skipped.
        if not ids or max(ids) >= 2 * len(ids) + _SKIPPED:
            raise ValueError(
                f"{origin} has {len(ids)} tokens, and the highest id is {max(ids, default=None)}: "
                "it is damaged"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("_json", "_extra_ids", "_prefix")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordVocabulary) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        kind = "byte-level BPE" if self._prefix is None else "WordPiece"
        return f"SubwordVocabulary({kind}, {self.vocab_size} ids, {self.fingerprint[:12]})"

    @functools.cached_property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        tokenizer = tokenizers.Tokenizer.from_str(self._json)
        tokenizer.encode_special_tokens = True  # text that looks like a special token stays text
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @functools.cached_property
    def _tokens(self) -> list[str | None]:
        """Tokens by id; None where the file skips an id."""
        places = self._tokenizer.get_vocab(with_added_tokens=True)
        tokens: list[str | None] = [None] * (max(places.values()) + 1)
        for token, i in places.items():
            tokens[i] = token
        return tokens

    @functools.cached_property
    def _special(self) -> dict[str, int]:
        marked = self._tokenizer.get_added_tokens_decoder()
        return {
            token: i
            for i, token in enumerate(self._tokens)
            if token and (special_tokens.is_special(token) or (i in marked and marked[i].special))
        }

    @property
    def is_wordpiece(self) -> bool:
        """Whether it is WordPiece; otherwise it is byte-level BPE."""
        return self._prefix is not None

    @property
    def tokenizer_json(self) -> str:
        """The content of its file."""
        return self._json

    @property
    def num_sentinels(self) -> int:
        return self._extra_ids

    @property
    def vocab_size(self) -> int:
        return len(self._tokens) + self._extra_ids

    @functools.cached_property
    def token_ids(self) -> TokenIds:
        special = special_tokens.by_role(self._special)
        named = special_tokens.additional_ids(self._special, special)
        pad = special.pop("pad")
        texts = [
            None if token is None or token in self._special else self._text(token)
            for token in self._tokens
        ]
        return TokenIds(
            vocab_size=self.vocab_size,
            sentinels=self.num_sentinels or None,
            pad=(special["eos"] or 0) if pad is None else pad,
            named=named,
            **special,
            **pieces.marks(texts, vocab_size=self.vocab_size),
        )

    def _text(self, token: str) -> str:
        """A token's text, including its leading space."""
        if self._prefix is None:
            return byte_level.to_bytes(token).decode(errors="surrogateescape")
        return token.removeprefix(self._prefix) if token.startswith(self._prefix) else f" {token}"

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"Subword {self._extra_ids} ".encode())
        digest.update(self._json.encode())
        return digest.hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, in this thread: callers use threads or processes for speed."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`, but each written `<extra_id_n>` becomes its id.

        One space before a sentinel is dropped: corruption replaces a word with the space before it.

        Raises:
          ValueError: the vocabulary has no such sentinel.
        """
        return sentinels.encode(
            text,
            self.encode,
            vocab_size=self.vocab_size,
            count=self._extra_ids,
            drop_space=True,
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text before the first end of sequence, with sentinels written out.

        Other special ids, except the unknown token, and ids out of range are dropped.
        """
        text = ""
        dropped = set(self._special.values()) - {self.token_ids.unk}
        for part in sentinels.runs(
            ids,
            vocab_size=self.vocab_size,
            count=self._extra_ids,
            eos=self.token_ids.eos,
        ):
            if isinstance(part, int):
                text += " " * bool(text) + sentinels.sentinel_text(part)
                continue
            kept = [i for i in part if 0 <= i < len(self._tokens) and i not in dropped]
            words = self._tokenizer.decode(kept, skip_special_tokens=False)
            # WordPiece's words have lost the spaces between them.
            text += " " * bool(text and words and self._prefix is not None) + words
        return text

    def piece(self, i: int) -> str:
        """Token i in readable form; `▁` is a space, also before WordPiece's tokens without `##`.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, self.vocab_size)
        if i >= len(self._tokens):
            return sentinels.sentinel_text(self.vocab_size - 1 - i)
        token = self._tokens[i]
        if token is None:
            return f"<{i}>"
        if token in self._special:
            return token
        data = byte_level.to_bytes(token) if self._prefix is None else self._text(token).encode()
        return pieces.readable(data)

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "Subword",
            "extra_ids": self._extra_ids,
            "fingerprint": self.fingerprint,
        }

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json(), parts={files.TOKENIZER: self._json.encode()})

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> SubwordVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        return read(Path(directory) / files.TOKENIZER, extra_ids=fields["extra_ids"])


def read(path: Path, *, extra_ids: int = 0) -> SubwordVocabulary:
    """Reads a `tokenizer.json`.

    Raises:
      FileNotFoundError, ValueError: as in `SubwordVocabulary`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8") from error
    return SubwordVocabulary(text, extra_ids, origin=path)
