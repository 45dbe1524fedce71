"""Ids without text: for SeqIO tasks whose vocabulary is unknown here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core.protocols.data import TokenIds
from t5x_like.vocabularies import files, sentinels
from t5x_like.vocabularies.text import pieces


class PassThroughVocabulary:
    """A vocabulary whose texts are decimal ids, separated by spaces."""

    def __init__(self, size: int, eos: int | None = None) -> None:
        self._size = size
        self._eos = eos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PassThroughVocabulary) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"PassThroughVocabulary({self._size}, eos={self._eos})"

    @property
    def vocab_size(self) -> int:
        return self._size

    @property
    def token_ids(self) -> TokenIds:
        # Unknown here: a task whose spans become sentinels must bring them.
        return TokenIds(
            vocab_size=self._size, eos=self._eos, unk=None, sentinels=sentinels.USUAL_EXTRA_IDS
        )

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"PassThrough {self._size} {self._eos}".encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids written in the text.

        Raises:
          ValueError: something in it is not an id of this vocabulary.
        """
        try:
            ids = [int(word) for word in text.split()]
        except ValueError:
            ids = [-1]
        if any(not 0 <= i < self._size for i in ids):
            raise ValueError(
                f"{text[:60]!r} is not a list of ids below {self._size}: this vocabulary is known "
                "by its ids alone and cannot encode text"
            )
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_with_sentinels(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The ids before the first end of sequence, in decimal."""
        cut = [int(i) for i in ids]
        if self._eos in cut:
            cut = cut[: cut.index(self._eos)]
        return " ".join(map(str, cut))

    def piece(self, i: int) -> str:
        """The id in decimal.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, self._size)
        return str(i)

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "PassThrough",
            "size": self._size,
            "eos": self._eos,
            "fingerprint": self.fingerprint,
        }

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json())

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> PassThroughVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        del directory
        size, eos = fields["size"], fields["eos"]
        if type(size) is not int or not 0 < size < 1 << 31 or type(eos) not in (int, type(None)):
            raise TypeError(f"size {size!r}, eos {eos!r}")
        return cls(size, eos)
