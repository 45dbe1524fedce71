import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from t5x_like.objectives.parts import sentence_pairs
from t5x_like.objectives.parts.sentence_blocks import LineBlocks, SentenceBlocks
from t5x_like.objectives.parts.sentence_pairs import SentencePairs, SingleSentencePairs
from tests.objectives.sentences import CORPORA, SEEDS, InMemory, planned, sigmas

PROBABILITIES = st.sampled_from([0, 0.1, 0.5, 1])
PAIRS = st.builds(
    SentencePairs,
    length=st.integers(2, 60),
    short_probability=PROBABILITIES,
    random_probability=PROBABILITIES,
)
ALL = PAIRS | st.builds(SingleSentencePairs, length=st.integers(2, 60))


def first_of_each_document(plan, corpus):
    """A plan's rows in which a document's first pair is: one a document, in order."""
    documents = corpus.document_at(plan["first_start"])
    _, rows = np.unique(documents, return_index=True)
    return {name: column[rows] for name, column in plan.items()}


def tokens(plan, name):
    return plan[f"{name}_end"] - plan[f"{name}_start"]


@given(ALL, CORPORA, SEEDS)
def test_texts_lie_inside_documents_and_fit(geometry, documents, seed):
    corpus = InMemory(documents)
    plan = planned(geometry, documents, seed)
    for name in ("first", "second"):
        assert (tokens(plan, name) >= 1).all()
        start, end = plan[f"{name}_start"], plan[f"{name}_end"]
        assert (start >= 0).all()
        assert (corpus.document_at(start) == corpus.document_at(end - 1)).all()
    assert (tokens(plan, "first") + tokens(plan, "second") <= geometry.length).all()
    assert set(plan["is_random"]) <= {0, 1}


@given(ALL, CORPORA, SEEDS)
def test_a_second_text_that_is_not_random_follows_the_first(geometry, documents, seed):
    corpus = InMemory(documents)
    plan = planned(geometry, documents, seed)
    follows = plan["is_random"] == 0
    first, second = plan["first_end"][follows], plan["second_start"][follows]
    assert (corpus.document_at(first - 1) == corpus.document_at(second)).all()
    whole = (tokens(plan, "first") + tokens(plan, "second") < geometry.length)[follows]
    assert (second >= first).all()
    assert (second[whole] == first[whole]).all()


@given(ALL, CORPORA, SEEDS, st.integers(1, 400))
def test_nothing_but_what_is_truncated_is_missing(geometry, documents, seed, together):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentence_pairs, "_TOKENS", together)
        plan = planned(geometry, documents, seed)
    full = tokens(plan, "first") + tokens(plan, "second") == geometry.length
    # All texts in order, save random ones, and a mark at either end of the stream.
    ranges = [(0, 0, False)]
    for row in range(len(full)):
        ranges.append((plan["first_start"][row], plan["first_end"][row], full[row]))
        if not plan["is_random"][row]:
            ranges.append((plan["second_start"][row], plan["second_end"][row], full[row]))
    ranges.append((InMemory(documents).total,) * 2 + (False,))
    for (_, end, truncated), (start, _, truncated_next) in itertools.pairwise(ranges):
        assert end == start or (end < start and (truncated or truncated_next))


@given(ALL, CORPORA, SEEDS)
def test_a_pair_that_is_not_truncated_has_whole_segments(geometry, documents, seed):
    corpus = InMemory(documents)
    plan = planned(geometry, documents, seed)
    whole = tokens(plan, "first") + tokens(plan, "second") < geometry.length
    edges = np.append(corpus.segment_starts, corpus.total)
    for offsets in (plan[f"{x}_{y}"][whole] for x in ("first", "second") for y in ("start", "end")):
        segment = np.searchsorted(edges, offsets, side="right") - 1
        inside = offsets != edges[segment]
        segment = segment[inside]
        assert (edges[segment + 1] - edges[segment] > geometry.length).all()
        assert not ((offsets[inside] - edges[segment]) % ((geometry.length + 1) // 2)).any()


@given(CORPORA, st.integers(2, 60), SEEDS)
def test_without_random_pairs_only_a_lonely_segment_has_one(documents, length, seed):
    geometry = SentencePairs(length, short_probability=0, random_probability=0)
    assume(max(max(segments) for segments in documents) <= length)
    corpus = InMemory(documents)
    edges = np.append(corpus.segment_starts, corpus.total)
    plan = planned(geometry, documents, seed)
    segment = np.searchsorted(edges, plan["first_start"], side="right") - 1
    lonely = np.isin(edges[segment + 1], corpus.starts) | (np.diff(edges)[segment] >= length)
    assert (plan["is_random"] == lonely).all()


@given(st.data(), st.integers(2, 60), SEEDS, st.sampled_from([0, 0.5]))
def test_truncation_leaves_what_one_token_at_a_time_leaves(data, length, seed, probability):
    first, second = data.draw(st.integers(1, length - 1)), data.draw(st.integers(1, length))
    plan = planned(SentencePairs(length, 1, 0, probability), [[first, second]], seed)
    assume(not plan["is_random"][0])
    kept = (int(tokens(plan, "first")[0]), int(tokens(plan, "second")[0]))
    off_the_second = one_token_at_a_time(first, second, length, equal=(0, 1))
    off_the_first = one_token_at_a_time(first, second, length, equal=(1, 0))
    assert kept in ({off_the_first, off_the_second} if probability == 0 else {off_the_second})


def one_token_at_a_time(first, second, length, *, equal):
    while first + second > length:
        of_first, of_second = equal if first == second else (first > second, second > first)
        first, second = first - of_first, second - of_second
    return first, second


def test_lengths_do_not_tell_which_of_two_texts_is_the_first():
    draws = 20_000
    plan = planned(SentencePairs(61, 1, 0, random_probability=0), [[50, 50]] * draws)
    difference = tokens(plan, "first") - tokens(plan, "second")
    assert set(difference) == {-1, 1}
    assert sigmas((difference == 1).sum(), draws, 1 / 2) < 5


def test_truncation_takes_from_front_and_back_alike():
    # 90 + 90 tokens in 100: each text loses 40, of which Binomial(40, 1/2) at its front.
    draws = 20_000
    plan = planned(SentencePairs(100, 1, 0, 0), [[90, 90]] * draws)
    starts = np.arange(draws) * 180
    fronts = {
        "first": plan["first_start"] - starts,
        "second": plan["second_start"] - starts - 90,
    }
    for name, front in fronts.items():
        assert (tokens(plan, name) == 50).all()
        assert abs(front.mean() - 20) < 5 * np.sqrt(10 / draws)
        assert abs(front.var() - 10) < 5 * 10 * np.sqrt(2 / draws)
    assert abs(np.corrcoef(*fronts.values())[0, 1]) < 5 / np.sqrt(draws)


def test_one_document_in_ten_has_a_short_length():
    # Of segments of one token, a chunk is as long as was drawn; not random, it is a pair.
    draws, length = 40_000, 12
    documents = [[1] * length] * draws
    plan = planned(SentencePairs(length, random_probability=0), documents)
    first = first_of_each_document(plan, InMemory(documents))
    chunk = first["second_end"] - first["first_start"]
    for short in range(2, length):
        assert sigmas((chunk == short).sum(), draws, 0.1 / (length - 1)) < 5
    assert sigmas((chunk == length).sum(), draws, 0.9 + 0.1 / (length - 1)) < 5


def test_a_document_keeps_its_length():
    documents = [[1] * 60] * 500
    corpus = InMemory(documents)
    plan = planned(SentencePairs(12, short_probability=1, random_probability=0), documents)
    chunk = plan["second_end"] - plan["first_start"]
    # The last chunk of a document has what is left, one segment with a random second text or more.
    inner = ~np.isin(plan["second_end"], corpus.starts) & (plan["is_random"] == 0)
    document = corpus.document_at(plan["first_start"])
    lengths = [np.unique(chunk[inner & (document == i)]) for i in range(len(documents))]
    assert {len(one) for one in lengths} == {1}
    assert len(np.unique(np.concatenate(lengths))) == 11


def test_the_first_text_ends_anywhere_in_its_chunk():
    draws, segments = 30_000, 8
    documents = [[1] * segments] * draws
    plan = planned(SentencePairs(segments, 1, 0, 0), documents)
    ends = tokens(first_of_each_document(plan, InMemory(documents)), "first")
    for end in range(1, segments):
        assert sigmas((ends == end).sum(), draws, 1 / (segments - 1)) < 5
    assert set(ends) == set(range(1, segments))


def test_half_of_the_chunks_of_many_segments_have_a_random_second_text():
    documents = [[1] * 8] * 30_000
    plan = planned(SentencePairs(8, short_probability=0), documents)
    is_random = first_of_each_document(plan, InMemory(documents))["is_random"]
    assert sigmas(is_random.sum(), len(documents), 0.5) < 5


def test_unused_sentences_begin_the_next_pair():
    # Of two segments: one pair that is in order, or else two random ones, the second of them for
    # want of more segments.
    documents = [[3, 4]] * 30_000
    corpus = InMemory(documents)
    plan = planned(SentencePairs(20), documents)
    pairs = np.bincount(corpus.document_at(plan["first_start"]))
    randoms = np.bincount(corpus.document_at(plan["first_start"]), plan["is_random"])
    assert (randoms == np.where(pairs == 2, 2, 0)).all()
    assert sigmas((pairs == 2).sum(), len(documents), 0.5) < 5


@pytest.mark.parametrize("length", [125, 509])
def test_somewhat_more_than_half_of_the_pairs_of_a_corpus_are_random(length):
    rng = np.random.default_rng(1)
    documents = [rng.integers(8, 46, rng.integers(5, 61)) for _ in range(2500)]
    assert abs(planned(SentencePairs(length), documents)["is_random"].mean() - 0.55) < 0.015


def test_a_random_second_text_comes_from_any_place_of_any_other_document():
    documents, length = [[1] * 6] * 5, 4
    geometry = SentencePairs(length, random_probability=1)
    plans = [planned(geometry, documents, seed) for seed in range(2000)]
    plan = {name: np.concatenate([one[name] for one in plans]) for name in plans[0]}
    corpus = InMemory(documents)
    source = corpus.document_at(plan["first_start"])
    other = corpus.document_at(plan["second_start"])
    assert (source != other).all()
    for document in range(5):
        drawn = other[source == document]
        for choice in set(range(5)) - {document}:
            assert sigmas((drawn == choice).sum(), len(drawn), 1 / 4) < 5
    place = plan["second_start"] - corpus.starts[other]
    for start in range(6):
        assert sigmas((place == start).sum(), len(place), 1 / 6) < 5


def test_a_random_second_text_is_as_long_as_there_is_room():
    documents, length = [[1] * 30] * 50, 8
    plan = planned(SentencePairs(length, 1, 0, 1), documents)
    ends_document = np.isin(plan["second_end"], InMemory(documents).starts)
    total = tokens(plan, "first") + tokens(plan, "second")
    assert (total[~ends_document] == length).all()
    assert not ends_document.all()


def test_the_only_document_is_its_own_elsewhere():
    plan = planned(SentencePairs(8), [[2] * 100])
    assert 0 < plan["is_random"].mean() < 1


def test_a_token_by_itself_is_a_pair():
    plan = planned(SentencePairs(8), [[1]])
    assert {name: int(value) for name, (value,) in plan.items()} == {
        "first_start": 0,
        "first_end": 1,
        "second_start": 0,
        "second_end": 1,
        "is_random": 1,
    }


def test_a_document_without_line_breaks_has_pairs_of_both_kinds_and_loses_nothing():
    plan = planned(SentencePairs(100, short_probability=0), [[2000]] * 200)
    kept = tokens(plan, "first").sum() + tokens(plan, "second")[plan["is_random"] == 0].sum()
    assert kept == 2000 * 200
    assert 0.47 < plan["is_random"].mean() < 0.55


def test_single_sentences():
    # Three of them: random, random, random (1/4); else one pair in order and a random one.
    documents = [[3, 4, 5]] * 20_000
    corpus = InMemory(documents)
    plan = planned(SingleSentencePairs(20), documents)
    for name in ("first", "second"):
        assert np.isin(plan[f"{name}_start"], corpus.segment_starts).all()
        assert set(tokens(plan, name)) == {3, 4, 5}
    source = corpus.document_at(plan["first_start"])
    pairs, randoms = np.bincount(source), np.bincount(source, plan["is_random"])
    assert (randoms == np.where(pairs == 3, 3, 1)).all()
    assert sigmas((pairs == 3).sum(), len(documents), 0.25) < 5
    assert (source != corpus.document_at(plan["second_start"]))[plan["is_random"] == 1].all()


@pytest.mark.parametrize("geometry", [SentencePairs(8), SingleSentencePairs(8)])
def test_draws_depend_on_the_generator_alone(geometry):
    documents = [[3, 4, 5] * 9] * 9
    first, again, other = (planned(geometry, documents, seed) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert len(first["is_random"]) != len(other["is_random"]) or any(
        (first[name] != other[name]).any() for name in first
    )


@pytest.mark.parametrize("geometry", [SentencePairs(8), SingleSentencePairs(8)])
def test_a_corpus_without_documents_has_no_pairs(geometry):
    assert list(geometry.plan(InMemory([]), np.random.default_rng(0), range(0))) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SentencePairs(1), "SentencePairs: length .* at least 2, got 1"),
        (lambda: SingleSentencePairs(1), "SingleSentencePairs: length"),
        (lambda: SentencePairs(8, passes=0), "passes"),
        (lambda: SentencePairs(8, short_probability=1.1), "short_probability"),
        (lambda: SentencePairs(8, random_probability=-1), "random_probability"),
    ],
)
def test_fields_are_checked(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_whole_number_and_a_float_name_the_same_plan():
    assert repr(SentencePairs(8, 1, 0, 1)) == repr(SentencePairs(8, 1, 0.0, 1.0))


@given(
    geometry=ALL
    | st.builds(SentenceBlocks, length=st.integers(2, 60), cross_documents=st.booleans())
    | st.builds(LineBlocks, length=st.integers(5, 60)),
    documents=CORPORA,
    share=st.sampled_from([0.1, 0.5]),
    seed=SEEDS,
)
def test_a_cut_falls_between_words_unless_they_are_long(geometry, documents, share, seed):
    corpus = InMemory(documents)
    begins = np.random.default_rng(seed).random(corpus.total) < share
    begins[corpus.segment_starts] = True
    plan = planned(geometry, documents, seed, begins)
    starts = np.append(begins.nonzero()[0], corpus.total)
    for name in ("first", "second") if "first_start" in plan else ("targets",):
        assert (plan[f"{name}_start"] < plan[f"{name}_end"]).all()
        cuts = np.concatenate([plan[f"{name}_start"], plan[f"{name}_end"]])
        after = starts.searchsorted(cuts)
        inside = starts[after] != cuts
        words = starts[after] - starts[after - 1]
        assert (words[inside] >= geometry.length // 4).all()
