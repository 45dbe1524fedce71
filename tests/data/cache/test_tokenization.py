from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5x_like.core.protocols.data import PAIRS
from t5x_like.data.cache import tokenization
from t5x_like.data.corpora import text_pieces
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

BYTES = ByteVocabulary()
TEXTS = st.text(st.sampled_from("ab c.\n\té\u3000\r"), max_size=200)


@pytest.fixture(scope="session", params=["unigram", "bpe"])
def sentencepiece(request, tmp_path_factory: pytest.TempPathFactory) -> SentencePieceVocabulary:
    path: Path = tmp_path_factory.mktemp("model") / "tiny.model"
    lines = ["a cab. bac. cab ab.", "é ab c ba. c. b a é", "a bé ca.bb aa cc é."]
    train_sentencepiece(lines * 5, path, vocab_size=16, model_type=request.param, progress=False)
    return SentencePieceVocabulary(path)


def tokens_of(text: str, vocabulary) -> list[int]:
    records = tokenization.plain_records([{"targets": text}], vocabulary)
    return [i for record in records for i in record.features["targets"].tolist()]


@given(text=TEXTS)
def test_segments_joined_are_the_document(text):
    segments = tokenization.split_segments(text)
    assert "".join(segments) == text
    for segment in segments:
        assert segment
        assert "\n" not in segment.rstrip("\n")


@given(text=TEXTS)
def test_tokens_of_bytes_are_those_of_the_whole_document(text):
    assert tokens_of(text, BYTES) == BYTES.encode(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_tokens_of_sentencepiece_are_those_of_the_whole_document(text, sentencepiece):
    assert tokens_of(text, sentencepiece) == sentencepiece.encode(text)


def test_newlines_stay_with_the_line_before():
    assert tokenization.split_segments("\na\n\n b\nc") == ["\n", "a\n\n", " b\n", "c"]


def test_endless_line_is_cut_after_spaces_or_anywhere(monkeypatch):
    monkeypatch.setattr(text_pieces, "MAX_LINE", 8)
    assert tokenization.split_segments("aaa bbb ccc") == ["aaa bbb ", "ccc"]
    assert tokenization.split_segments("a" * 20) == ["a" * 8, "a" * 8, "a" * 4]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS.filter(bool), max_size=6), piece=st.integers(1, 40))
def test_pieces_hold_documents_and_segment_starts(texts, piece, monkeypatch):
    monkeypatch.setattr(tokenization, "PIECE_TOKENS", piece)
    monkeypatch.setattr(tokenization, "_BATCH_CHARACTERS", 50)
    documents, starts = [], []
    for record in tokenization.plain_records([{"targets": text} for text in texts], BYTES):
        if record.new_document:
            documents.append([])
            starts.append([])
        tokens = record.features["targets"]
        assert 0 < len(tokens) <= piece
        starts[-1].extend((record.segments + len(documents[-1])).tolist())
        documents[-1].extend(tokens.tolist())
    assert documents == [BYTES.encode(text) for text in texts]
    for text, found in zip(texts, starts, strict=True):
        lengths = [len(s.encode()) for s in tokenization.split_segments(text)]
        assert found == np.cumsum([0, *lengths[:-1]]).tolist()


def test_text_to_text_is_encoded_whole():
    pairs = [{"inputs": f"in\n{i}", "targets": "x" * i} for i in range(3)]
    records = list(tokenization.column_records(pairs, BYTES, PAIRS, {}))
    for record, pair in zip(records, pairs, strict=True):
        assert record.new_document
        for feature, text in pair.items():
            assert record.features[feature].tolist() == BYTES.encode(text)
