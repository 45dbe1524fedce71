"""The bytes of a text's tokens are the text's."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import sentencepiece as spm

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.evaluation.evaluator import evaluate
from t5x_like.evaluation.text_bytes import token_bytes
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.characters import CharacterVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.subwords import SubwordVocabulary
from t5x_like.vocabularies.text import byte_level
from t5x_like.vocabularies.tokenizer_files import byte_bpe, wordpiece

LINES = ("Größe: naïve cafés\tcost 5 €.", "the café's  owner — 東京 😀 — reads", "no more text.")


def bpe() -> SubwordVocabulary:
    tokens = [*byte_level.CHARACTERS, "th", "the", "Ġn", "Ã¶", "<|endoftext|>"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "n"), ("Ã", "¶")]
    text = byte_bpe.tokenizer_json({token: i for i, token in enumerate(tokens)}, merges)
    return SubwordVocabulary(text, extra_ids=4)


def sentencepiece(path) -> SentencePieceVocabulary:
    made = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 20),
        model_writer=made,
        vocab_size=330,
        byte_fallback=True,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(made.getvalue())
    return SentencePieceVocabulary(path)


def bytes_of(vocabulary: Vocabulary, text: str) -> int:
    table = token_bytes(vocabulary)
    assert table is not None
    assert table.shape == (vocabulary.vocab_size,)
    assert table.dtype == np.int32
    return int(table[np.asarray(vocabulary.encode(text))].sum())


@pytest.mark.parametrize(
    "vocabulary",
    [
        ByteVocabulary(),
        ByteVocabulary(extra_ids=7),
        CharacterVocabulary("".join(sorted(set("".join(LINES))))),
        bpe(),
    ],
    ids=str,
)
def test_vocabularies_that_lose_nothing_have_just_the_bytes_of_the_text(vocabulary) -> None:
    for line in LINES:
        assert bytes_of(vocabulary, line) == len(line.encode())


def test_sentencepiece_has_those_of_normalised_text_and_one_for_the_end_of_its_line(tmp_path):
    vocabulary = sentencepiece(tmp_path / "a.model")
    assert any(vocabulary.piece(i).startswith("<0x") for i in vocabulary.encode(LINES[1]))
    for line in LINES:
        assert bytes_of(vocabulary, line) == len(" ".join(line.split()).encode()) + 1


def test_wordpiece_has_a_space_before_each_word_and_mark() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##do", "it", ",", "now"]
    text = wordpiece.tokenizer_json({token: i for i, token in enumerate(tokens)}, lowercase=True)
    assert bytes_of(SubwordVocabulary(text), "Undo it, now") == len(" undo it , now")
    assert bytes_of(SubwordVocabulary(text), "lost it") == len(" it")


@pytest.mark.parametrize("vocabulary", [ByteVocabulary(extra_ids=7), bpe()], ids=str)
def test_what_is_no_text_has_no_bytes(vocabulary) -> None:
    table, ids = token_bytes(vocabulary), vocabulary.token_ids
    assert not table[list(ids.special)].any()
    assert not table[[ids.sentinel(k) for k in range(ids.sentinels)]].any()


def test_ids_without_text_have_no_table() -> None:
    assert token_bytes(PassThroughVocabulary(100)) is None


def test_models_as_sure_of_a_text_have_as_many_bits_per_byte_whatever_its_tokens() -> None:
    """Both give the text e^-300, over unequal numbers of tokens, rows and batches."""
    text = " ".join(LINES)
    found = {}
    for vocabulary, width in ((ByteVocabulary(), 7), (bpe(), 16)):
        tokens = np.array(vocabulary.encode(text))
        rows = np.zeros((-(-len(tokens) // (4 * width)), 4, width), np.int32)
        rows.reshape(-1)[: len(tokens)] = tokens
        weights = (np.arange(rows.size) < len(tokens)).reshape(rows.shape).astype(np.float32)

        nats = 300 / len(tokens)

        def step(nats, batch):
            weight = batch["decoder_loss_weights"].sum()
            return {"perplexity": (nats * weight, weight)}

        batches = (
            {"decoder_target_tokens": r, "decoder_loss_weights": w}
            for r, w in zip(rows, weights, strict=True)
        )
        metrics = evaluate(step, nats, batches, token_bytes=token_bytes(vocabulary))
        found[len(tokens)] = metrics["bits_per_byte"]
        assert metrics["perplexity"] == pytest.approx(math.exp(nats))
    assert len(found) == 2
    want = 300 / math.log(2) / len(text.encode())
    assert list(found.values()) == pytest.approx([want, want], rel=1e-6)
