"""A SentencePiece model with T5's sentinels above its pieces."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece as spm

from t5x_like.core.protocols.data import TokenIds
from t5x_like.vocabularies import files, sentinels, special_tokens
from t5x_like.vocabularies.text import lower_case, pieces, places

_WORD_START = pieces.SPACE
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_OWN_SENTINEL = re.compile(rf"{_WORD_START}?<extra_id_(\d+)>")

# Serialised protobufs merge when concatenated: these four bytes are a ModelProto that sets only
# normalizer_spec (field 3) { add_dummy_prefix (field 3): false }.
_NO_SPACE_BEFORE = b"\x1a\x02\x18\x00"


class SentencePieceVocabulary:
    """Pieces of a `.model` file, then `extra_ids` sentinels; `<extra_id_0>` has the highest id.

    The special ids are the model's own and those of pieces with a special token's name; where there
    is not a pad piece, id 0 is padding, as in SeqIO. A model whose top pieces are already sentinels
    (umT5) gets no more of them. Text for an ALBERT model is cleaned up first.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not a SentencePiece model, or has sentinels that are not its top ids.
    """

    releases_lock = True
    """The library encodes without Python's lock."""

    def __init__(self, model_file: str | Path, extra_ids: int = sentinels.USUAL_EXTRA_IDS) -> None:
        self._model = Path(model_file).read_bytes()
        self._extra_ids = extra_ids
        try:
            pieces = self._pieces
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ValueError(f"{model_file} is not a SentencePiece model") from error
        if not pieces:  # of an empty file
            raise ValueError(f"{model_file} is not a SentencePiece model: it has no pieces")
        if not all(_BYTE.fullmatch(piece) for i, piece in enumerate(pieces) if self._is_byte(i)):
            raise ValueError(f"{model_file} has pieces for bytes that name none, as <0x0A> does")
        self._own_sentinels = _own_sentinels(self._pieces, model_file)

    def __getstate__(self) -> dict[str, Any]:
        names = ("_model", "_extra_ids", "_own_sentinels")
        return {name: self.__dict__[name] for name in names}

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
        """Encodes what follows a sentinel without a space: adds no word start before it."""
        return spm.SentencePieceProcessor(model_proto=self._model + _NO_SPACE_BEFORE)

    @functools.cached_property
    def _pieces(self) -> list[str]:
        return [self._processor.id_to_piece(i) for i in range(self._processor.get_piece_size())]

    def _is_byte(self, i: int) -> bool:
        return bool(self._processor.is_byte(i))

    @property
    def num_sentinels(self) -> int:
        return self._own_sentinels or self._extra_ids

    @property
    def vocab_size(self) -> int:
        return len(self._pieces) + (0 if self._own_sentinels else self._extra_ids)

    @property
    def cleans_text(self) -> bool:
        """Whether text is changed before the model file's own rules apply (ALBERT)."""
        return self._clean is not None

    @functools.cached_property
    def _clean(self) -> Callable[[str], str] | None:
        return lower_case.alberts if lower_case.is_alberts(self._pieces) else None

    @functools.cached_property
    def _special(self) -> dict[str, int]:
        ordinary = self._pieces[: len(self._pieces) - self._own_sentinels]
        of_model = (self._processor.is_control, self._processor.is_unknown)
        return {
            piece: i
            for i, piece in enumerate(ordinary)
            if special_tokens.is_special(piece) or any(test(i) for test in of_model)
        }

    @functools.cached_property
    def token_ids(self) -> TokenIds:
        ids_of_model = {
            "pad": self._processor.pad_id(),
            "eos": self._processor.eos_id(),
            "unk": self._processor.unk_id(),
            "bos": self._processor.bos_id(),
        }
        # SentencePiece gives -1 for ids that the model lacks.
        model_roles = {role: i for role, i in ids_of_model.items() if i >= 0}
        special = special_tokens.by_role(self._special) | model_roles
        named = special_tokens.additional_ids(self._special, special)
        pad = special.pop("pad")
        none = {
            *self._special.values(),
            *range(len(self._pieces) - self._own_sentinels, self.vocab_size),
        }
        texts = [
            None if i in none else self._text(i, piece) for i, piece in enumerate(self._pieces)
        ]
        return TokenIds(
            vocab_size=self.vocab_size,
            sentinels=self.num_sentinels or None,
            pad=0 if pad is None else pad,
            named=named,
            **special,
            **pieces.marks(texts, vocab_size=self.vocab_size, punctuation=True),
        )

    def _text(self, i: int, piece: str) -> str:
        """A piece's text; that of a byte, `<0xE4>`, is a lone surrogate."""
        if self._is_byte(i):
            return bytes([int(piece[3:5], 16)]).decode(errors="surrogateescape")
        return piece.replace(_WORD_START, " ")

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"SentencePiece {self._extra_ids} ".encode())
        digest.update(self._model)
        return digest.hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._processor.encode(self._clean(text) if self._clean else text)

    def locate(self, text: str) -> tuple[list[int], np.ndarray]:
        """The ids and where they are (`protocols.data.Locates`)."""
        begins, ends, cleaned = [*range(len(text))], [*range(1, len(text) + 1)], text
        if self._clean:
            cleaned, begins, ends = lower_case.alberts_with_places(text)
        tokens = self._processor.encode(cleaned, return_type="proto").pieces
        characters = places.of_bytes(cleaned)
        first = [*begins, len(text)]
        last = [0, *ends]
        spans = [(first[characters[t.begin]], last[characters[t.end]]) for t in tokens]
        return [token.id for token in tokens], places.trimmed(text, spans)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int32 ids of each text, in this thread: callers use threads or processes for speed."""
        cleaned = list(map(self._clean, texts) if self._clean else texts)
        return self._processor.encode(cleaned, num_threads=1, return_type="numpy")

    def encode_following(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Like `encode_batch`, for texts that each continue a line.

        Texts that begin with a space begin a word, as in the line; the others get no word start.
        """
        cleaned = list(map(self._clean, texts) if self._clean else texts)
        spaced = [self._strips and text[:1].isspace() for text in texts]
        options: dict[str, Any] = {"num_threads": 1, "return_type": "numpy"}
        begun = iter(self._processor.encode(list(itertools.compress(cleaned, spaced)), **options))
        rest = [text for text, space in zip(cleaned, spaced, strict=True) if not space]
        going_on = iter(self._continuing.encode(rest, **options))
        return [next(begun if space else going_on) for space in spaced]

    @functools.cached_property
    def _strips(self) -> bool:
        """Whether a leading space changes nothing, as in most models."""
        return bool(self._processor.encode(" a") == self._processor.encode("a"))

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`, but each written `<extra_id_n>` becomes its id.

        The space before a sentinel is dropped: corruption replaces a word with the space before it.

        Raises:
          ValueError: the vocabulary has no such sentinel.
        """
        ids: list[int] = []
        # Sentinels are lower-case, so that cleaning does not change them.
        cleaned = self._clean(text) if self._clean else text
        for part in sentinels.split(cleaned, count=self.num_sentinels):
            if isinstance(part, int):
                ids.append(self.vocab_size - 1 - part)
            elif part.strip():
                begins_word = not ids or part[0].isspace()
                processor = self._processor if begins_word else self._continuing
                ids.extend(processor.encode(part.rstrip()))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text before the first end of sequence; sentinels written out, other ids as unknown."""
        unknown = max(self._processor.unk_id(), 0)
        known = range(self.vocab_size - self.num_sentinels)
        text = ""
        for part in sentinels.runs(
            ids,
            top=self.vocab_size - 1,
            count=self.num_sentinels,
            eos=self._processor.eos_id(),
        ):
            if isinstance(part, int):
                text += " " * bool(text) + sentinels.sentinel_text(part)
                continue
            run = [i if i in known else unknown for i in part]
            # SentencePiece strips the space at a text's start.
            space = text and self._pieces[run[0]].startswith(_WORD_START)
            text += " " * bool(space) + self._processor.decode(run)
        return text

    def piece(self, i: int) -> str:
        """Piece i as in the model; sentinels as they are written.

        Raises:
          IndexError: there is no id i.
        """
        pieces.check_id(i, self.vocab_size)
        number = self.vocab_size - 1 - i
        return sentinels.sentinel_text(number) if number < self.num_sentinels else self._pieces[i]

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "SentencePiece",
            "extra_ids": self._extra_ids,
            "fingerprint": self.fingerprint,
        }

    def save(self, directory: Path) -> None:
        files.save(directory, self.to_json(), parts={files.MODEL: self._model})

    @classmethod
    def from_saved(cls, directory: Path, fields: Mapping[str, Any]) -> SentencePieceVocabulary:
        """The vocabulary that `save` wrote; `fields` is its description."""
        return cls(Path(directory) / files.MODEL, extra_ids=fields["extra_ids"])


def _own_sentinels(model_pieces: Sequence[str], model_file: str | Path) -> int:
    """The number of sentinels in the model itself, counting down from its top id."""
    matches = ((i, _OWN_SENTINEL.fullmatch(piece)) for i, piece in enumerate(model_pieces))
    sentinel_numbers = {i: int(match[1]) for i, match in matches if match}
    if sentinel_numbers != {len(model_pieces) - 1 - n: n for n in range(len(sentinel_numbers))}:
        raise ValueError(
            f"{model_file} holds pieces like {sentinels.sentinel_text(0)}, but not as its top ids "
            "counting down: train a vocabulary without them, loading it adds the sentinels"
        )
    return len(sentinel_numbers)
