"""A SentencePiece model with T5's sentinels above its pieces."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm

from t5x_like.protocols import TokenIds
from t5x_like.vocabularies import files, sentinels

_WORD_START = "▁"
_OWN_SENTINEL = re.compile(rf"{_WORD_START}?<extra_id_(\d+)>")

# Serialised protobufs merge when concatenated: these four bytes are a ModelProto that says only
# normalizer_spec (field 3) { add_dummy_prefix (field 3): false }.
_NO_SPACE_BEFORE = b"\x1a\x02\x18\x00"


USUAL_EXTRA_IDS = 100
"""T5's number of sentinels."""


class SentencePieceVocabulary:
    """Pieces of a `.model` file, then `extra_ids` sentinels; `<extra_id_0>` has the highest id.

    The special ids are the model's; where it has no pad piece, id 0 is the padding, as in SeqIO.
    A model whose own top pieces already are the sentinels (umT5) gets no more of them.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not a SentencePiece model, or holds sentinels elsewhere than at its top.
    """

    def __init__(self, model_file: str | Path, extra_ids: int = USUAL_EXTRA_IDS) -> None:
        self._model = Path(model_file).read_bytes()
        self._extra_ids = extra_ids
        try:
            self._processor  # noqa: B018 (loading it is the check)
        except RuntimeError as error:
            raise ValueError(f"{model_file} is not a SentencePiece model") from error
        self._own_sentinels = _own_sentinels(self._pieces, model_file)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_model", "_extra_ids", "_own_sentinels")
        return {name: self.__dict__[name] for name in kept}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SentencePieceVocabulary) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"SentencePieceVocabulary({self.vocab_size} ids, {self.fingerprint[:12]})"

    @functools.cached_property
    def _processor(self) -> spm.SentencePieceProcessor:
        return spm.SentencePieceProcessor(model_proto=self._model)

    @functools.cached_property
    def _continuing(self) -> spm.SentencePieceProcessor:
        """Encodes what follows a sentinel without a space: no word start is put before it."""
        return spm.SentencePieceProcessor(model_proto=self._model + _NO_SPACE_BEFORE)

    @functools.cached_property
    def _pieces(self) -> list[str]:
        return [self._processor.id_to_piece(i) for i in range(self._processor.get_piece_size())]

    @property
    def num_sentinels(self) -> int:
        return self._own_sentinels or self._extra_ids

    @property
    def vocab_size(self) -> int:
        return len(self._pieces) + (0 if self._own_sentinels else self._extra_ids)

    @functools.cached_property
    def token_ids(self) -> TokenIds:
        places = {piece: i for i, piece in enumerate(self._pieces)}
        special = {name: places.get(f"[{name.upper()}]") for name in ("cls", "sep", "mask")}
        word_starts = np.zeros([self.vocab_size], dtype=bool)
        ordinary = len(self._pieces) - self._own_sentinels
        word_starts[:ordinary] = [p.startswith(_WORD_START) for p in self._pieces[:ordinary]]
        return TokenIds(
            vocab_size=self.vocab_size,
            pad=max(self._processor.pad_id(), 0),
            eos=_present(self._processor.eos_id()),
            unk=_present(self._processor.unk_id()),
            bos=_present(self._processor.bos_id()),
            word_starts=word_starts,
            **special,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"SentencePiece {self._extra_ids} ".encode())
        digest.update(self._model)
        return digest.hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._processor.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, in this thread: callers parallelise over processes."""
        return self._processor.encode(list(texts), num_threads=1) if texts else []

    def encode_with_sentinels(self, text: str) -> list[int]:
        """As `encode`, with each written `<extra_id_n>` becoming its id.

        Space before a sentinel is dropped: corruption replaces a word with the space before it.

        Raises:
          ValueError: the vocabulary has no such sentinel.
        """
        ids: list[int] = []
        for part in sentinels.split(text, count=self.num_sentinels):
            if isinstance(part, int):
                ids.append(self.vocab_size - 1 - part)
            elif part.strip():
                begins_word = not ids or part[0].isspace()
                processor = self._processor if begins_word else self._continuing
                ids.extend(processor.encode(part.rstrip()))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text before the first end of sequence; sentinels written out, foreign ids as unknown."""
        unknown = max(self._processor.unk_id(), 0)
        lowest_sentinel = self.vocab_size - self.num_sentinels
        text, run = "", list[int]()
        for raw in ids:
            i = int(raw)
            if i == self._processor.eos_id():
                break
            if not lowest_sentinel <= i < self.vocab_size:
                run.append(i if 0 <= i < lowest_sentinel else unknown)
                continue
            text = self._joined(text, run)
            text += " " * bool(text) + sentinels.written(self.vocab_size - 1 - i)
            run = []
        return self._joined(text, run)

    def _joined(self, text: str, run: list[int]) -> str:
        """Appends decoded pieces, with the space that SentencePiece strips at a text's start."""
        if not run:
            return text
        space = text and self._pieces[run[0]].startswith(_WORD_START)
        return text + " " * bool(space) + self._processor.decode(run)

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "SentencePiece",
            "extra_ids": self._extra_ids,
            "fingerprint": self.fingerprint,
        }

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json(), model=self._model)

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> SentencePieceVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        return cls(Path(directory) / files.MODEL, extra_ids=fields["extra_ids"])


def _present(i: int) -> int | None:
    """SentencePiece gives -1 for a special id the model lacks."""
    return None if i < 0 else i


def _own_sentinels(pieces: Sequence[str], model_file: str | Path) -> int:
    """How many sentinels the model itself has, counting down from its top id."""
    matches = ((i, _OWN_SENTINEL.fullmatch(piece)) for i, piece in enumerate(pieces))
    found = {i: int(match[1]) for i, match in matches if match}
    if found != {len(pieces) - 1 - n: n for n in range(len(found))}:
        raise ValueError(
            f"{model_file} holds pieces like {sentinels.written(0)}, but not as its top ids "
            "counting down: train a vocabulary without them, loading it adds the sentinels"
        )
    return len(found)
