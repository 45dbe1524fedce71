"""The tokens of a `tokenizer.json`, of any kind that the `tokenizers` library runs."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from t5x_like.core.protocols.data import TokenIds
from t5x_like.vocabularies import files, sentinels, special_tokens
from t5x_like.vocabularies.text import pieces, places
from t5x_like.vocabularies.tokenizer_files import spelling, tokenizer_config, tokenizer_json

# Callers use threads or processes; threads of the library as well would be too many for the
# cores, and none of them survives a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_SKIPPED = 1000
"""Ids that a small file may skip."""
_UNKNOWN = "\u0378\ue000\U0010fffd"
"""Characters that no vocabulary has: a file without an unknown token fails on them."""
_OWN_SENTINEL = re.compile(rf"{pieces.SPACE}?<extra_id_(\d+)>")


class SubwordVocabulary:
    """The tokens of a `tokenizer.json` with its ids, then `extra_ids` sentinels from the top.

    Special tokens are recognised by name, or named by `roles`; raw text never becomes one, but for
    those that somebody has added for text, such as [E1]. Where no token is padding, the end of
    text is (GPT-2). Nothing is put around a text. A file that has sentinels (T5) gets no more.

    Args:
      text: the file's content.
      extra_ids: sentinels to add.
      roles: the tokens of roles (fields of `TokenIds`), in place of those found by name; tokens
        that the file lacks are left out.
      origin: the file's name in errors.

    Raises:
      ValueError: it is not such a file.
    """

    releases_lock = True
    """The library encodes without Python's lock."""

    def __init__(
        self,
        text: str,
        extra_ids: int = 0,
        *,
        roles: Mapping[str, str] | None = None,
        origin: str | Path = "this",
    ) -> None:
        self._json = text
        self._extra_ids = extra_ids
        self._spelling = spelling.read(text, origin)
        try:
            ids = self._plain.get_vocab(with_added_tokens=True)
            self._plain.encode(_UNKNOWN, add_special_tokens=False)
        except Exception as error:  # the library has no class of its own for it
            raise ValueError(f"{origin} is not a tokenizer.json ({error})") from error
        # Memory is needed for each id, also for those that are skipped.
        if not ids or max(ids.values()) >= 2 * len(ids) + _SKIPPED:
            highest = max(ids.values(), default=None)
            raise ValueError(
                f"{origin} has {len(ids)} tokens, and the highest id is {highest}: it is damaged"
            )
        usual = special_tokens.by_role(ids)
        self._roles = {
            role: name
            for role, name in (roles or {}).items()
            if role in usual and name in ids and ids[name] != usual[role]
        }

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: self.__dict__[name] for name in ("_json", "_extra_ids", "_roles", "_spelling")
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordVocabulary) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        kind = self._spelling.kind
        return f"SubwordVocabulary({kind}, {self.vocab_size} ids, {self.fingerprint[:12]})"

    @functools.cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """All that needs no text."""
        return _tokenizer(self._json)

    @functools.cached_property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        if not self._for_text:
            return self._plain
        return _tokenizer(tokenizer_json.with_text(self._json, self._for_text))

    @functools.cached_property
    def _continuing(self) -> tokenizers.Tokenizer:
        """Encodes what continues a line."""
        changed = tokenizer_json.continuing(self._json)
        if changed is None:
            return self._tokenizer
        return _tokenizer(tokenizer_json.with_text(changed, self._for_text))

    @functools.cached_property
    def _tokens(self) -> list[str | None]:
        """Tokens by id; None where the file skips an id."""
        ids = self._plain.get_vocab(with_added_tokens=True)
        tokens: list[str | None] = [None] * (max(ids.values()) + 1)
        for token, i in ids.items():
            tokens[i] = token
        return tokens

    @functools.cached_property
    def _added(self) -> dict[int, tokenizers.AddedToken]:
        """Tokens that are found in text before the model sees it, by id."""
        added: dict[int, tokenizers.AddedToken] = self._plain.get_added_tokens_decoder()
        return added

    @functools.cached_property
    def _special(self) -> dict[str, int]:
        own_sentinels = {*self._own_sentinels}
        return {
            token: i
            for i, token in enumerate(self._tokens)
            if token
            and i not in own_sentinels
            and (
                special_tokens.is_special(token)
                or token in self._roles.values()
                or (i in self._added and self._added[i].special)
            )
        }

    @functools.cached_property
    def _for_text(self) -> set[str]:
        """Special tokens that somebody has added to write them in text."""
        return {
            token
            for token in self._special
            if not special_tokens.is_special(token) and token not in self._roles.values()
        }

    @functools.cached_property
    def _own_sentinels(self) -> list[int]:
        """The ids of the file's own sentinels, from that of sentinel 0 down; mostly none."""
        matches = (
            (i, _OWN_SENTINEL.fullmatch(token or "")) for i, token in enumerate(self._tokens)
        )
        id_of = {int(match[1]): i for i, match in matches if match}
        ids = [id_of[n] for n in sorted(id_of)]
        top = id_of.get(0, 0)
        whole = id_of == {n: top - n for n in range(len(id_of))}
        return ids if whole else []

    @property
    def is_wordpiece(self) -> bool:
        return self._spelling.kind == "WordPiece"

    @property
    def tokenizer_json(self) -> str:
        """The content of its file."""
        return self._json

    @property
    def num_sentinels(self) -> int:
        return len(self._own_sentinels) or self._extra_ids

    @property
    def vocab_size(self) -> int:
        return len(self._tokens) + (0 if self._own_sentinels else self._extra_ids)

    @property
    def _top_sentinel(self) -> int:
        return self._own_sentinels[0] if self._own_sentinels else self.vocab_size - 1

    @functools.cached_property
    def token_ids(self) -> TokenIds:
        special = special_tokens.by_role(self._special, self._roles)
        named = special_tokens.additional_ids(self._special, special)
        pad = special.pop("pad")
        none = {*self._special.values(), *self._own_sentinels}
        texts = [
            None if token is None or i in none else self._text(i, token)
            for i, token in enumerate(self._tokens)
        ]
        marks = pieces.marks(
            texts, vocab_size=self.vocab_size, punctuation=self._spelling.marks_spaces
        )
        if not self._spelling.tells_words:
            del marks["word_starts"]
        top = self._top_sentinel
        return TokenIds(
            vocab_size=self.vocab_size,
            sentinels=self.num_sentinels or None,
            top_sentinel=None if top == self.vocab_size - 1 else top,
            pad=(special["eos"] or 0) if pad is None else pad,
            named=named,
            **special,
            **marks,
        )

    def _text(self, i: int, token: str) -> str:
        """A token's text, including its leading space; one that was added is a word."""
        return f" {token.strip()}" if i in self._beside_model else self._spelling.text(token)

    @functools.cached_property
    def _beside_model(self) -> set[int]:
        """Ids of tokens that the model itself does not have."""
        return {*self._added} - {*self._plain.get_vocab(with_added_tokens=False).values()}

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"Subword {self._extra_ids} ".encode())
        digest.update(self._json.encode())
        if self._roles:
            digest.update(json.dumps(self._roles, sort_keys=True).encode())
        return digest.hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def locate(self, text: str) -> tuple[list[int], np.ndarray]:
        """The ids and where they are (`protocols.data.Locates`)."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, places.trimmed(text, encoding.offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, in this thread: callers use threads or processes for speed."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def encode_following(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `encode_batch`, for texts that each continue a line: puts nothing before them.

        Where a file ignores a space before a text, one that begins with it begins a word.
        """
        spaced = [self._strips and text[:1].isspace() for text in texts]
        begun = iter(self.encode_batch([*itertools.compress(texts, spaced)]))
        rest = [text for text, space in zip(texts, spaced, strict=True) if not space]
        encoded = self._continuing.encode_batch_fast(rest, add_special_tokens=False)
        going_on = (encoding.ids for encoding in encoded)
        return [next(begun if space else going_on) for space in spaced]

    @functools.cached_property
    def _strips(self) -> bool:
        """Whether a leading space changes nothing."""
        return self.encode(" a") == self.encode("a")

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`, but each written `<extra_id_n>` becomes its id.

        One space before a sentinel is dropped: corruption replaces a word with the space before it.

        Raises:
          ValueError: the vocabulary has no such sentinel.
        """
        return sentinels.encode(
            text,
            self.encode,
            top=self._top_sentinel,
            count=self.num_sentinels,
            following=lambda part: self.encode_following([part])[0],
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
            top=self._top_sentinel,
            count=self.num_sentinels,
            eos=self.token_ids.eos,
        ):
            if isinstance(part, int):
                text += " " * bool(text) + sentinels.sentinel_text(part)
                continue
            shown = [i for i in part if 0 <= i < len(self._tokens) and i not in dropped]
            words = self._tokenizer.decode(shown, skip_special_tokens=False)
            # Most kinds drop the space before the first word.
            begins = bool(shown) and self._text(shown[0], self._tokens[shown[0]] or "")[:1] == " "
            text += " " * (bool(text and words[:1].strip()) and begins) + words
        return text

    def piece(self, i: int) -> str:
        """Token i in readable form; `▁` is a space, also before WordPiece's tokens without `##`.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, self.vocab_size)
        number = self._top_sentinel - i
        if 0 <= number < self.num_sentinels:
            return sentinels.sentinel_text(number)
        token = self._tokens[i]
        if token is None:
            return f"<{i}>"
        if token in self._special:
            return token
        return pieces.readable(self._text(i, token).encode(errors="surrogateescape"))

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "Subword",
            "extra_ids": self._extra_ids,
            "fingerprint": self.fingerprint,
            **({"roles": self._roles} if self._roles else {}),
        }

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json(), parts={files.TOKENIZER: self._json.encode()})

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> SubwordVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        path = Path(directory) / files.TOKENIZER
        return cls(_read(path), fields["extra_ids"], roles=fields.get("roles"), origin=path)


def _tokenizer(text: str) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(text)
    tokenizer.encode_special_tokens = True  # text that looks like a special token stays text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read(path: Path, *, extra_ids: int = 0) -> SubwordVocabulary:
    """Reads a `tokenizer.json`, and what the `tokenizer_config.json` beside it says of ids.

    Raises:
      FileNotFoundError, ValueError: as in `SubwordVocabulary`; or the two files contradict each
        other.
    """
    roles = tokenizer_config.roles(path.parent)
    vocabulary = SubwordVocabulary(_read(path), extra_ids, roles=roles, origin=path)
    tokenizer_config.check(path.parent, vocabulary.tokenizer_json)
    return vocabulary


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8") from error
