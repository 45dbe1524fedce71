"""UTF-8 bytes as ids (ByT5, section 3.1): nothing to train, and no unknown text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.vocabularies import files, sentinels, special_tokens
from t5x_like.vocabularies.text import pieces, places

_SPECIAL = 3
_SHARED_SENTINELS = 100
_IN_NO_TEXT = 11
"""UTF-8 text has no bytes from 0xF5 on."""
_INVALID = re.compile("[\udc80-\udcff]")


class ByteVocabulary:
    """Byte b has id b + 3, after padding (0), end (1) and unknown (2).

    Without `extra_ids`, the sentinels are the top 100 byte ids, as in ByT5: 8 of them occur in no
    UTF-8 text, the others are lead bytes of rarer scripts. With `extra_ids`, they lie above.
    """

    def __init__(self, extra_ids: int = 0) -> None:
        self._extra_ids = extra_ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteVocabulary) and self._extra_ids == other._extra_ids

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"ByteVocabulary(extra_ids={self._extra_ids})"

    @property
    def num_sentinels(self) -> int:
        return self._extra_ids or _SHARED_SENTINELS

    @property
    def vocab_size(self) -> int:
        return _SPECIAL + 256 + self._extra_ids

    @property
    def token_ids(self) -> TokenIds:
        each = (bytes([byte]).decode(errors="surrogateescape") for byte in range(256))
        texts = [None] * _SPECIAL + list(each)
        return TokenIds(
            vocab_size=self.vocab_size,
            sentinels=self.num_sentinels,
            **pieces.marks(texts, vocab_size=self.vocab_size),
        )

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"Byte {self._extra_ids}".encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        return [byte + _SPECIAL for byte in text.encode()]

    def locate(self, text: str) -> tuple[list[int], np.ndarray]:
        """The ids and where they are (`protocols.data.Locates`)."""
        characters = places.of_bytes(text)[:-1]
        return self.encode(text), places.trimmed(text, ((at, at + 1) for at in characters))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`, but each written `<extra_id_n>` becomes its id.

        Raises:
          ValueError: the vocabulary has no such sentinel.
        """
        return sentinels.encode(
            text, self.encode, top=self.vocab_size - 1, count=self.num_sentinels
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Text before the first end of sequence; special ids and ids out of range are dropped.

        Bytes that are not valid UTF-8 where they are become the sentinels that share their ids, or
        are dropped where the sentinels have their own ids.
        """
        text, run = "", bytearray()
        for raw in ids:
            i = int(raw)
            if i == 1:
                break
            if _SPECIAL <= i < _SPECIAL + 256:
                run.append(i - _SPECIAL)
            elif _SPECIAL + 256 <= i < self.vocab_size:
                text += self._text(run) + sentinels.sentinel_text(self.vocab_size - 1 - i)
                run.clear()
        return text + self._text(run)

    def _text(self, run: bytearray) -> str:
        return _INVALID.sub(self._invalid, run.decode(errors="surrogateescape"))

    def _invalid(self, match: re.Match[str]) -> str:
        i = ord(match[0]) - 0xDC00 + _SPECIAL
        number = self.vocab_size - 1 - i
        shared = not self._extra_ids and number < _SHARED_SENTINELS
        return sentinels.sentinel_text(number) if shared else ""

    def piece(self, i: int) -> str:
        """Byte, special token or sentinel i.

        Where sentinels share ids with bytes, the ids that occur in no text are sentinels.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, self.vocab_size)
        if i < _SPECIAL:
            return special_tokens.TRAINED[i]
        number = self.vocab_size - 1 - i
        if number < self._extra_ids or (not self._extra_ids and number < _IN_NO_TEXT):
            return sentinels.sentinel_text(number)
        return pieces.readable(bytes([i - _SPECIAL]))

    def to_json(self) -> dict[str, Any]:
        return {"class": "Byte", "extra_ids": self._extra_ids, "fingerprint": self.fingerprint}

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json())

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> ByteVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        del directory
        return cls(extra_ids=fields["extra_ids"])
