"""Unicode characters as ids: a text's frequent characters, after named special tokens."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.vocabularies import files, sentinels, special_tokens
from t5x_like.vocabularies.text import pieces, places

_SPECIAL = special_tokens.TRAINED
_REPLACEMENT = "\ufffd"


@dataclasses.dataclass(frozen=True)
class CharacterVocabulary:
    """`special_tokens.TRAINED`, then these characters, then `extra_ids` sentinels at the top.

    Other characters are unknown. A word begins at white space, as in bytes.
    """

    characters: str = dataclasses.field(repr=False)
    extra_ids: int = sentinels.USUAL_EXTRA_IDS

    @property
    def num_sentinels(self) -> int:
        return self.extra_ids

    @property
    def vocab_size(self) -> int:
        return len(_SPECIAL) + len(self.characters) + self.extra_ids

    @functools.cached_property
    def token_ids(self) -> TokenIds:
        ids = {name: i for i, name in enumerate(_SPECIAL)}
        roles = special_tokens.by_role(ids)
        return TokenIds(
            vocab_size=self.vocab_size,
            sentinels=self.num_sentinels or None,
            named=special_tokens.additional_ids(ids, roles),
            **roles,
            **pieces.marks([None] * len(_SPECIAL) + [*self.characters], vocab_size=self.vocab_size),
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"Characters {self.extra_ids} ".encode())
        digest.update(self.characters.encode())
        return digest.hexdigest()

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        ids = {character: i for i, character in enumerate(self.characters, len(_SPECIAL))}
        return _OrUnknown(ids)

    def encode(self, text: str) -> list[int]:
        return list(map(self._ids.__getitem__, text))

    def locate(self, text: str) -> tuple[list[int], np.ndarray]:
        """The ids and where they are (`protocols.data.Locates`)."""
        return self.encode(text), places.trimmed(text, ((at, at + 1) for at in range(len(text))))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`, but each written `<extra_id_n>` becomes its id.

        Raises:
          ValueError: the vocabulary has no such sentinel.
        """
        return sentinels.encode(text, self.encode, top=self.vocab_size - 1, count=self.extra_ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text before the first end of sequence, sentinels written out, unknown ids as `\ufffd`.

        Other special ids, and ids out of range, are dropped.
        """
        text = ""
        for part in sentinels.runs(
            ids, top=self.vocab_size - 1, count=self.extra_ids, eos=self.token_ids.eos
        ):
            text += (
                sentinels.sentinel_text(part)
                if isinstance(part, int)
                else "".join(self._character(i) for i in part)
            )
        return text

    def _character(self, i: int) -> str:
        place = i - len(_SPECIAL)
        if 0 <= place < len(self.characters):
            return self.characters[place]
        return _REPLACEMENT if i == self.token_ids.unk else ""

    def piece(self, i: int) -> str:
        """Character i in readable form, `▁` for a space; special tokens by name.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, self.vocab_size)
        number = self.vocab_size - 1 - i
        if number < self.extra_ids:
            return sentinels.sentinel_text(number)
        if i < len(_SPECIAL):
            return _SPECIAL[i]
        return pieces.readable(self.characters[i - len(_SPECIAL)].encode())

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "Characters",
            "extra_ids": self.extra_ids,
            "fingerprint": self.fingerprint,
        }

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json() | {"characters": self.characters})

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> CharacterVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        del directory
        if not isinstance(fields["characters"], str):
            raise TypeError("characters are not text")
        return cls(fields["characters"], extra_ids=fields["extra_ids"])


class _OrUnknown(dict[str, int]):
    def __missing__(self, character: str) -> int:
        return _SPECIAL.index("<unk>")
