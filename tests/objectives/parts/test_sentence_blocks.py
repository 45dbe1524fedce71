import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.objectives.parts.geometry import constants
from t5x_like.objectives.parts.sentence_blocks import LineBlocks, SentenceBlocks
from tests.objectives.sentences import CORPORA, SEEDS, InMemory, planned, sigmas

BLOCKS = st.builds(
    SentenceBlocks,
    length=st.integers(4, 60),
    cross_documents=st.booleans(),
    per_segment=st.integers(0, 3),
    per_document=st.integers(0, 3),
)
LINES = st.builds(
    LineBlocks, length=st.integers(5, 60), short_probability=st.sampled_from([0, 0.05, 0.5, 1])
)


def blocks(geometry, documents, seed=0):
    """The blocks as (start, end)."""
    plan = planned(geometry, documents, seed)
    return list(zip(plan["targets_start"].tolist(), plan["targets_end"].tolist(), strict=True))


def cost(geometry, corpus, start, end):
    """Tokens of a block as the objective will emit it."""
    inside = np.arange(start + 1, end)
    return (
        end
        - start
        + geometry.per_segment * (1 + np.isin(inside, corpus.segment_starts).sum())
        + geometry.per_document * np.isin(inside, corpus.starts).sum()
    )


def places_in_segments(corpus, offsets):
    """How far each offset lies inside its segment, and that segment's length."""
    edges = np.append(corpus.segment_starts, corpus.total)
    segment = np.searchsorted(edges, offsets, side="right") - 1
    return offsets - edges[segment], np.diff(edges)[segment]


@given(BLOCKS | LINES, CORPORA, SEEDS)
def test_blocks_cut_the_stream_without_gaps(geometry, documents, seed):
    found = blocks(geometry, documents, seed)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == InMemory(documents).total
    assert all(start < end for start, end in found)


@given(BLOCKS, CORPORA)
def test_a_block_fits_and_nothing_more_would_fit(geometry, documents):
    corpus = InMemory(documents)
    budget = geometry.length - geometry.per_segment
    for start, end in blocks(geometry, documents):
        assert cost(geometry, corpus, start, end) <= geometry.length
        if end == corpus.total or (not geometry.cross_documents and end in corpus.starts):
            continue
        (place,), (length,) = places_in_segments(corpus, np.array([end]))
        more = min(length - place, budget)
        added = geometry.per_segment + geometry.per_document * (end in corpus.starts)
        assert cost(geometry, corpus, start, end) + more + added > geometry.length


@given(BLOCKS, CORPORA)
def test_segments_stay_whole_unless_they_are_too_long(geometry, documents):
    budget = geometry.length - geometry.per_segment
    ends = np.array([end for _, end in blocks(geometry, documents)])[:-1]
    place, length = places_in_segments(InMemory(documents), ends)
    assert not (place % budget).any()
    assert (place[length <= budget] == 0).all()


@given(BLOCKS | LINES, CORPORA, SEEDS)
def test_no_block_holds_two_documents_unless_allowed(geometry, documents, seed):
    corpus = InMemory(documents)
    start, end = np.array(blocks(geometry, documents, seed)).T
    crossing = corpus.document_at(start) != corpus.document_at(end - 1)
    assert getattr(geometry, "cross_documents", False) or not crossing.any()


@pytest.mark.parametrize(
    ("geometry", "ends"),
    [
        (SentenceBlocks(10, cross_documents=False), [10, 14, 15, 19, 20]),
        (SentenceBlocks(10, cross_documents=True), [10, 20]),
        (SentenceBlocks(11, cross_documents=True, per_segment=1), [7, 15, 20]),
        (SentenceBlocks(11, cross_documents=True, per_segment=1, per_document=1), [7, 14, 20]),
        (SentenceBlocks(8, cross_documents=False), [7, 14, 15, 19, 20]),
        (SentenceBlocks(3, cross_documents=False), [3, 4, 7, 10, 13, 14, 15, 18, 19, 20]),
        (SentenceBlocks(3, cross_documents=True), [3, 4, 7, 10, 13, 15, 18, 20]),
        (SentenceBlocks(100, cross_documents=True), [20]),
    ],
)
def test_blocks_by_hand(geometry, ends):
    # Documents of 14, 1, 4 and 1 tokens.
    documents = [[4, 3, 3, 4], [1], [4], [1]]
    assert [end for _, end in blocks(geometry, documents)] == ends


def test_a_document_without_line_breaks_fills_its_blocks():
    full = blocks(SentenceBlocks(512, cross_documents=False, per_segment=1), [[2000]])
    assert [end - start for start, end in full] == [511, 511, 511, 467]


@pytest.mark.parametrize("geometry", [SentenceBlocks(8, True), SentenceBlocks(8, False)])
def test_blocks_take_no_random_numbers(geometry):
    rng = np.random.default_rng(0)
    list(geometry.plan(InMemory([[3] * 9]), rng, range(1)))
    assert rng.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize("geometry", [SentenceBlocks(8, True), LineBlocks(8)])
def test_a_corpus_without_documents_has_no_blocks(geometry):
    assert list(geometry.plan(InMemory([]), np.random.default_rng(0), range(0))) == []


def test_rows_come_a_few_at_a_time():
    lists = list(LineBlocks(5).plan(InMemory([[5] * 20_000]), np.random.default_rng(0), range(1)))
    assert len(lists) > 1
    assert sum(map(len, lists)) == 20_000


@given(LINES, CORPORA, SEEDS)
def test_a_line_block_ends_with_the_line_that_reaches_its_length(geometry, documents, seed):
    corpus = InMemory(documents)
    plan = planned(geometry, documents, seed)
    start, end, target = (plan[name] for name in geometry.columns)
    assert target[0] == geometry.length
    assert ((target >= 5) & (target <= geometry.length)).all()
    assert (end - start < 2 * geometry.length).all()
    assert ((end - start >= target) | np.isin(end, corpus.starts)).all()
    place, length = places_in_segments(corpus, end - 1)
    half = (geometry.length + 1) // 2
    last_line = np.where(length > geometry.length, place % half, place) + 1
    assert (end - last_line - start < target).all()


def test_a_line_longer_than_the_model_is_cut_in_halves():
    # 65 tokens of 13: halves of 7, and every two of them reach 13.
    found = blocks(LineBlocks(13, short_probability=0), [[65]])
    assert [end - start for start, end in found] == [14, 14, 14, 14, 9]


def test_one_line_block_in_twenty_is_short_whatever_the_documents():
    # Every document is one block, so that a length drawn before it has to survive the document.
    draws, length, shortest = 100_000, 20, 5
    target = planned(LineBlocks(length), [[3]] * (draws + 1))["max_tokens"][1:]
    lengths = length - shortest + 1
    for short in range(shortest, length):
        assert sigmas((target == short).sum(), draws, 0.05 / lengths) < 5
    assert sigmas((target == length).sum(), draws, 0.95 + 0.05 / lengths) < 5


def test_draws_depend_on_the_generator_alone():
    documents = [[3, 4, 5] * 50] * 20
    assert blocks(LineBlocks(30), documents, 1) == blocks(LineBlocks(30), documents, 1)
    assert blocks(LineBlocks(30), documents, 1) != blocks(LineBlocks(30), documents, 2)


def test_line_blocks_tell_every_sample_their_length():
    assert constants(LineBlocks(30)) == {"length": 30}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SentenceBlocks(0, True), "leave room for a token"),
        (lambda: SentenceBlocks(2, True, per_segment=2), "leave room for a token"),
        (lambda: SentenceBlocks(2, True, per_document=-1), "none of them negative"),
        (lambda: LineBlocks(4), "at least 5"),
        (lambda: LineBlocks(8, short_probability=1.5), "between 0 and 1"),
    ],
)
def test_fields_are_checked(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_whole_number_and_a_float_name_the_same_plan():
    assert repr(LineBlocks(8, short_probability=0)) == repr(LineBlocks(8, short_probability=0.0))
