"""Unicode's code points as ids (CANINE, section 3.1): nothing to train, and no unknown text."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.vocabularies import files, sentinels
from t5x_like.vocabularies.text import pieces, places

_SIZE = 0x110000
SPECIAL = {
    "pad": (0, "[PAD]"),
    "cls": (0xE000, "[CLS]"),
    "sep": (0xE001, "[SEP]"),
    "bos": (0xE002, "[BOS]"),
    "mask": (0xE003, "[MASK]"),
}
"""Ids and names of special tokens by their role: code points that no character ever has."""
_RESERVED = (0xE004, "[RESERVED]")
_NAMES = dict([*SPECIAL.values(), _RESERVED])
_UNKNOWN = 0xFFFD
_NO_TEXT = re.compile(f"[{''.join(map(chr, _NAMES))}\ud800-\udfff]")
_WITH_WORDS = 0x40000
"""No character from here on is white space, has a script without spaces, or ends a sentence."""


class CodePointVocabulary:
    """A character's code point is its id; the special tokens are five for private use.

    What would be a special token in a text, and a half of a surrogate pair, is read as U+FFFD,
    which stands for unknown characters. The end of sequence is [SEP]. There are no sentinels.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodePointVocabulary)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return "CodePointVocabulary()"

    @property
    def num_sentinels(self) -> int:
        return 0

    @property
    def vocab_size(self) -> int:
        return _SIZE

    @property
    def token_ids(self) -> TokenIds:
        return _token_ids()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"CodePoints").hexdigest()

    def encode(self, text: str) -> list[int]:
        return [*map(ord, _NO_TEXT.sub(chr(_UNKNOWN), text))]

    def locate(self, text: str) -> tuple[list[int], np.ndarray]:
        """The ids and where they are (`protocols.data.Locates`)."""
        return self.encode(text), places.trimmed(text, ((at, at + 1) for at in range(len(text))))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`.

        Raises:
          ValueError: a sentinel is written in the text.
        """
        return sentinels.encode(text, self.encode, top=_SIZE - 1, count=0)

    def decode(self, ids: Sequence[int]) -> str:
        """Text before the first end of sequence; special ids and ids out of range are dropped."""
        text = ""
        for raw in ids:
            i = int(raw)
            if i == SPECIAL["sep"][0]:
                break
            text += chr(i) if 0 <= i < _SIZE else ""
        return _NO_TEXT.sub("", text)

    def piece(self, i: int) -> str:
        """Character i in readable form, `▁` for a space; special tokens by name.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, _SIZE)
        if i in _NAMES:
            return _NAMES[i]
        return pieces.readable(chr(i).encode(errors="surrogatepass"))

    def to_json(self) -> dict[str, Any]:
        return {"class": "CodePoints", "fingerprint": self.fingerprint}

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json())

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> CodePointVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        del directory, fields
        return cls()


@functools.cache
def _token_ids() -> TokenIds:
    """Made once: it looks at a quarter of a million characters."""
    texts = [None if _NO_TEXT.match(chr(i)) else chr(i) for i in range(_WITH_WORDS)]
    roles: dict[str, Any] = {role: i for role, (i, _) in SPECIAL.items()}
    return TokenIds(
        vocab_size=_SIZE,
        **roles,
        eos=roles["sep"],
        unk=_UNKNOWN,
        **pieces.marks(texts, vocab_size=_SIZE),
    )
