"""A stream gives the tokens of its records for every range and every cut of documents."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.cache import tokenization
from t5x_like.data.samples import token_stream
from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.segments import Segments
from t5x_like.data.samples.token_stream import TokenStream, separator
from t5x_like.vocabularies.byte import ByteVocabulary
from tests.data.records import RECORDS, SEPARATORS, Plainly, RecordsSplit


@given(records=RECORDS, mark=SEPARATORS, data=st.data())
def test_every_range_of_tokens_and_its_marks(records, mark, data):
    stream, plain = TokenStream(RecordsSplit(records), separator=mark), Plainly.of(records, mark)
    assert stream.total == len(plain.tokens)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, stream.total)] * 2)))
    tokens = stream.read(start, end)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == plain.tokens[start:end]
    segments, documents = stream.marks(start, end)
    assert segments.dtype == documents.dtype == np.int32
    starts = [s for document in plain.documents for s in document[:-1]]
    assert segments.tolist() == [s - start for s in starts if start < s < end]
    firsts = [document[0] for document in plain.documents]
    assert documents.tolist() == [s - start for s in firsts if start < s < end]


@given(records=RECORDS, mark=SEPARATORS, block=st.integers(1, 5), data=st.data())
def test_documents_and_their_segments(records, mark, block, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_stream, "_BLOCK", block)
        stream, plain = (
            TokenStream(RecordsSplit(records), separator=mark),
            Plainly.of(records, mark),
        )
        documents = len(plain.documents)
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, documents)] * 2)))
        segments = Segments(stream, part=range(first, last))
        for some in (range(first, last), range(documents)):
            if some:
                expected = [bound for i in some for bound in plain.documents[i][:-1]]
                expected.append(plain.documents[some.stop - 1][-1])
                assert segments.bounds(some).tolist() == expected
                ends = [*(plain.documents[i][0] for i in some), expected[-1]]
                assert segments.heads(some).tolist() == ends
        assert [bounds.tolist() for bounds in segments] == plain.documents
        assert {bounds.dtype for bounds in segments} <= {np.dtype(np.int64)}
        assert (len(segments), segments.total) == (len(plain.documents), len(plain.tokens))
        gap = int(mark is not None)
        found = np.concatenate([np.zeros((0, 2), int), *stream.documents()])
        assert found.tolist() == [[d[0], d[-1] - gap] for d in plain.documents]
        with pytest.raises(IndexError):
            segments[len(plain.documents)]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text("ab\n", max_size=40).filter(str.strip), min_size=1, max_size=6))
def test_a_cache_and_memory_hold_the_same_stream(texts, make_cache, monkeypatch):
    monkeypatch.setattr(tokenization, "PIECE_TOKENS", 16)
    cached = TokenStream(make_cache(texts).split("train"), separator=1)
    monkeypatch.undo()
    documents = []
    for text in texts:
        (record,) = tokenization.plain_records([{"targets": text}], ByteVocabulary())
        documents.append((record.features["targets"], record.segments))
    memory = TokenStream(MemorySplit(documents), separator=1)
    assert cached.read(0, cached.total).tolist() == memory.read(0, memory.total).tolist()
    for ours, theirs in zip(Segments(cached), Segments(memory), strict=True):
        assert ours.tolist() == theirs.tolist()
    for ours, theirs in zip(
        cached.marks(0, cached.total), memory.marks(0, memory.total), strict=True
    ):
        assert ours.tolist() == theirs.tolist()


def test_offsets_beyond_32_bits_stay_exact():
    split = MemorySplit([(np.arange(5), np.array([0, 3]))])
    split.offsets = {"targets": np.array([0, 5]) + 2**40}
    stream = TokenStream(split)
    assert Segments(stream)[0].tolist() == [2**40, 2**40 + 3, 2**40 + 5]
    assert stream.read(2**40 + 1, 2**40 + 4).tolist() == [1, 2, 3]
    assert stream.marks(2**40 + 1, 2**40 + 5)[0].tolist() == [2]


def test_what_is_read_is_the_callers_own():
    stream = TokenStream(MemorySplit([(np.arange(9), np.zeros(0))]))
    stream.read(2, 5)[:] = -1
    assert stream.read(0, 9).tolist() == list(range(9))


def test_stream_pickles_and_is_read_by_threads(make_cache):
    split = make_cache([f"document {i}\n" * (1 + i % 9) for i in range(60)]).split("train")
    stream = TokenStream(split, separator=1)
    whole = pickle.loads(pickle.dumps(stream)).read(0, stream.total).tolist()
    wrong: list[tuple[int, int]] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for start, end in np.sort(rng.integers(0, stream.total, (200, 2)), axis=1).tolist():
            if stream.read(start, end).tolist() != whole[start:end]:
                wrong.append((start, end))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (TokenIds(9, eos=1, sep=3, named={"<eod>": 7}), 7),
        (TokenIds(9, eos=1, sep=3), 1),
        (TokenIds(9, eos=None, sep=3), 3),
        (TokenIds(9, eos=None), None),
    ],
)
def test_separator_of_a_vocabulary(ids: TokenIds, found: int | None):
    assert separator(ids) == found
