"""Conversion of vocabularies to SeqIO, so that its tools work on our tasks, and from SeqIO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.extras import require
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")


class SeqioVocabulary(seqio.Vocabulary):
    """A `seqio.Vocabulary` around one of ours. Two are equal where they give equal ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(extra_ids=vocabulary.to_json().get("extra_ids", 0))
        self.vocabulary = vocabulary

    @property
    def pad_id(self) -> int:
        return self.vocabulary.token_ids.pad

    @property
    def bos_id(self) -> int | None:
        return self.vocabulary.token_ids.bos

    @property
    def eos_id(self) -> int | None:
        return self.vocabulary.token_ids.eos

    @property
    def unk_id(self) -> int | None:
        return self.vocabulary.token_ids.unk

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.vocab_size

    @property
    def _base_vocab_size(self) -> int:
        # SeqIO decodes ids from this size on as unknown. Our extra ids have a written form.
        return self.vocabulary.vocab_size

    def _encode(self, s: str) -> list[int]:
        return self.vocabulary.encode(s)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.vocabulary.decode([int(i) for i in ids])

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        """Scalar string to int32 [n]."""

        def encode(text: bytes | np.ndarray) -> np.ndarray:
            # In a graph, the text is bytes; in eager mode, it is an array without axes.
            document = np.array(text, dtype=object).item().decode()
            return np.asarray(self.vocabulary.encode(document), np.int32)

        ids = tf.numpy_function(encode, [tf.convert_to_tensor(s)], tf.int32, stateful=False)
        return tf.ensure_shape(ids, [None])

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        """int32 [n] to a scalar string, [rows, n] to string [rows]."""

        def decode(rows: np.ndarray) -> np.ndarray:
            shape = rows.shape[:-1]
            flat = rows.reshape(math.prod(shape), rows.shape[-1])
            texts = [self._decode(row.tolist()).encode() for row in flat]
            return np.array(texts, dtype=object).reshape(shape)

        texts = tf.numpy_function(decode, [ids], tf.string, stateful=False)
        return tf.ensure_shape(texts, ids.shape[:-1])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SeqioVocabulary)
            and self.vocabulary.fingerprint == other.vocabulary.fingerprint
        )

    def __hash__(self) -> int:
        return hash(self.vocabulary.fingerprint)

    def __str__(self) -> str:
        return f"SeqioVocabulary({self.vocabulary.to_json()})"


def from_seqio(vocabulary: seqio.Vocabulary) -> Vocabulary:
    """Our vocabulary with the same ids.

    A vocabulary whose class or options have no counterpart here becomes a `PassThroughVocabulary`.
    A task that uses it can train, and its decoded text is ids.
    """
    kind = type(vocabulary)
    if kind is SeqioVocabulary:
        return vocabulary.vocabulary
    if kind is seqio.ByteVocabulary:
        return ByteVocabulary(extra_ids=vocabulary.extra_ids)
    if kind is seqio.SentencePieceVocabulary and _is_plain(vocabulary):
        ours = SentencePieceVocabulary(
            vocabulary.sentencepiece_model_file, extra_ids=vocabulary.extra_ids
        )
        if ours.vocab_size == vocabulary.vocab_size and not ours.cleans_text:
            return ours
    eos = vocabulary.eos_id
    # Some SeqIO vocabularies give NumPy integers, which JSON cannot hold.
    return PassThroughVocabulary(int(vocabulary.vocab_size), eos=None if eos is None else int(eos))


def _is_plain(vocabulary: seqio.SentencePieceVocabulary) -> bool:
    """Whether it counts its extra ids downwards and normalises text as its model file says."""
    forward = not vocabulary._reverse_extra_ids and vocabulary.extra_ids
    return not forward and vocabulary._normalizer_spec_overrides is None
