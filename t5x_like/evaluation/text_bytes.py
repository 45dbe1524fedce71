"""The bytes of text that each id stands for: they make losses of vocabularies comparable."""

from __future__ import annotations

import re

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.text.pieces import SPACE

_ONE_BYTE = re.compile(rf"<0x[0-9A-F]{{2}}>|{SPACE}")
_SENTINEL = re.compile(r"<extra_id_\d+>")


def token_bytes(vocabulary: Vocabulary) -> np.ndarray | None:
    """UTF-8 bytes of each id's text, int32 [vocab_size]; None where ids have no known text.

    Special ids and sentinels stand for no bytes. The unknown token stands for none either: a model
    never looks better for text that its vocabulary cannot write. The bytes are those of the
    normalised text: bytes and byte-level BPE change nothing; SentencePiece begins each line with a
    space, which counts for the line's end; WordPiece has a space before every word and every
    punctuation mark, and lower case where the vocabulary is uncased.
    """
    if isinstance(vocabulary, PassThroughVocabulary):
        return None
    special = set(vocabulary.token_ids.special)
    pieces = ("" if i in special else vocabulary.piece(i) for i in range(vocabulary.vocab_size))
    return np.array([_text_bytes(piece) for piece in pieces], np.int32)


def _text_bytes(piece: str) -> int:
    if _SENTINEL.fullmatch(piece):
        return 0
    return len(_ONE_BYTE.sub(" ", piece).encode())
