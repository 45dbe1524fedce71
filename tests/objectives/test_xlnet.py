"""XLNet's examples: their layout, what is predicted, and who sees whom."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts.carried_rows import CarriedRows
from t5x_like.objectives.xlnet import XLNet
from tests.objectives.sentences import InMemory

CLS, SEP, TEXT, VOCABULARY = 3, 4, 9, 1000
# Even ids begin words.
STARTS = np.arange(VOCABULARY) % 2 == 0
IDS = TokenIds(vocab_size=VOCABULARY, bos=1, eos=2, cls=CLS, sep=SEP, word_starts=STARTS)
WORDS = TokenIds(
    vocab_size=VOCABULARY, bos=1, eos=2, cls=CLS, sep=SEP, word_starts=np.ones(VOCABULARY, bool)
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def sample_of(tokens: np.ndarray, sizes: tuple[int, int, int], backward: int = 0) -> dict:
    """The first tokens of a text as the columns of `CarriedRows`, A and B in this order."""
    parts = np.split(tokens[: sum(sizes)].astype(np.int32), np.cumsum(sizes)[:2])
    return {
        **dict(zip(("inputs", "first", "second"), parts, strict=True)),
        "is_next": np.int32(1),
        "reset_memory": np.int32(0),
        "backward": np.int32(backward),
    }


def text(n: int, seed: int = 0) -> np.ndarray:
    return generator(seed).integers(TEXT, VOCABULARY, n).astype(np.int32)


FULL = (256, 126, 127)


def sees(features: dict[str, np.ndarray]) -> np.ndarray:
    """bool [n, n]: whether i sees j."""
    query, key = features["permutation_query_order"], features["permutation_key_order"]
    return query[:, None] > key[None, :]


def test_layout():
    sample = sample_of(np.arange(10, 20), (5, 2, 3))
    features = XLNet()(sample, generator(), IDS)
    expected = [10, 11, 12, 13, 14, 15, 16, SEP, 17, 18, 19, SEP, CLS]
    assert features["inputs"].tolist() == expected
    assert features["token_type_ids"].tolist() == [0] * 8 + [1] * 4 + [2]
    features = XLNet()(sample | {"backward": np.int32(1)}, generator(), IDS)
    expected = [14, 13, 12, 11, 10, 16, 15, SEP, 19, 18, 17, SEP, CLS]
    assert features["inputs"].tolist() == expected
    assert features["backward"] == 1
    assert features["token_type_ids"].tolist() == [0] * 8 + [1] * 4 + [2]


objectives = st.builds(
    XLNet,
    partial_prediction=st.integers(1, 12),
    max_ngram=st.integers(1, 7),
    perm_size=st.none() | st.integers(1, 80),
)


@hypothesis.given(
    objective=objectives,
    sizes=st.tuples(st.integers(0, 90), st.integers(0, 60), st.integers(0, 60)),
    backward=st.integers(0, 1),
    specials=st.booleans(),
    seed=st.integers(0, 2**32),
)
@hypothesis.example(XLNet(), (0, 0, 0), 0, False, 0)
@hypothesis.example(XLNet(), (1, 1, 1), 1, False, 0)
@hypothesis.example(XLNet(1), (256, 126, 127), 1, True, 0)
def test_any_sample(
    objective: XLNet, sizes: tuple[int, int, int], backward: int, specials: bool, seed: int
):
    tokens = np.full(sum(sizes), SEP) if specials else text(sum(sizes), seed)
    sample = sample_of(tokens, sizes, backward)
    before = {name: value.copy() for name, value in sample.items()}
    features = objective(sample, generator(seed), IDS)
    assert all(np.array_equal(sample[name], before[name]) for name in before)
    again = objective(sample, generator(seed), IDS)
    assert all(np.array_equal(again[name], features[name]) for name in features)

    n, split = sum(sizes) + 3, sizes[0]
    declared = objective.features({"inputs": n})
    assert features.keys() == declared.keys()
    for name, spec in declared.items():
        assert features[name].dtype == spec.dtype
        assert features[name].shape == () if spec.length is None else features[name].ndim == 1
        assert spec.length is None or len(features[name]) <= spec.length
    positions = features["masked_positions"]
    functional = [split + sizes[1], n - 2, n - 1]
    assert np.all(np.diff(positions) > 0)
    assert not np.isin(positions, functional).any()
    assert np.array_equal(features["masked_targets"], features["inputs"][positions])
    assert features["masked_loss_weights"].tolist() == [1.0] * len(positions)
    goal = round(n / objective.partial_prediction)
    goals = min(goal - goal // 2, split), min(goal // 2, n - split)
    assert np.sum(positions < split) == goals[0]
    assert goals[1] - 3 <= np.sum(positions >= split) <= goals[1]

    seen, target = sees(features), np.isin(np.arange(n), positions)
    plain = ~target
    plain[functional] = False
    assert not seen[:split, split:].any()
    assert seen[split:, :split].all()
    for part in (np.arange(n) < split, np.arange(n) >= split):
        assert seen[np.ix_(part, part & plain)].all()
        assert not seen[np.ix_(part & plain, part & ~plain)].any()
        one = seen[np.ix_(part & target, part & target)]
        assert np.array_equal(one ^ one.T, ~np.eye(len(one), dtype=bool))


def test_published_numbers():
    assert XLNet().geometry({"inputs": 512}) == CarriedRows(512, 256, True)
    assert XLNet().geometry({"inputs": 128}) == CarriedRows(128, 64, True)
    assert XLNet(reuse_length=100, bidirectional=False).geometry({"inputs": 512}) == CarriedRows(
        512, 100, False
    )
    assert XLNet().features({"inputs": 512})["masked_positions"].length == 85
    features = XLNet()(sample_of(text(509), FULL), generator(), IDS)
    assert np.sum(features["masked_positions"] < 256) == 43


def test_how_many_positions_are_predicted():
    """85 marks, less those on [SEP] and [CLS], which are marked as any token in their places is.

    By the closed form for spans with context (test_context_spans.py), the places 126, 254 and 255
    of 256 tokens, of which 42 are marked, are so with probability 0.1615, 0.0969 and 0.0257.
    """
    draws, rng, tokens = 6000, generator(1), text(509)
    objective, sample = XLNet(), sample_of(tokens, FULL)
    counts = np.array(
        [len(objective(sample, rng, WORDS)["masked_positions"]) for _ in range(draws)]
    )
    assert counts.max() == 85
    assert counts.min() >= 82
    assert abs(counts.mean() - (85 - 0.2841)) < 5 * counts.std() / math.sqrt(draws)


def test_a_target_sees_half_of_the_others_in_its_part():
    objective, sample = XLNet(), sample_of(text(509), FULL)
    visible = []
    for seed in range(300):
        features = objective(sample, generator(seed), IDS)
        targets = features["masked_positions"]
        first = targets[targets < 256]
        visible.append(sees(features)[np.ix_(first, first)].sum(axis=1)[[0, 20, 42]])
    # Uniform on 0 .. 42: mean (43 - 1) / 2, variance (43 ** 2 - 1) / 12.
    error = 5 * math.sqrt((43**2 - 1) / 12 / len(visible))
    assert np.abs(np.mean(visible, axis=0) - 21).max() < error


def test_backward_rows_are_masked_as_their_text_is_read():
    """The same draws mark the same tokens of the part that both directions hold alike."""
    tokens = text(509)
    tokens[0] = 100  # begins a word, as the first token of a text does anyway
    for seed in range(20):
        forward = XLNet()(sample_of(tokens, FULL), generator(seed), IDS)["masked_positions"]
        backward = XLNet()(sample_of(tokens, FULL, 1), generator(seed), IDS)["masked_positions"]
        mirrored = 255 - backward[backward < 256][::-1]
        assert np.array_equal(forward[forward < 256], mirrored)


def test_spans_of_backward_rows_begin_words_of_the_text():
    tokens = np.full(509, 101)
    tokens[::8] = 100
    spans, on_starts = 0, 0
    for seed in range(100):
        features = XLNet()(sample_of(tokens, FULL, 1), generator(seed), IDS)
        masked = np.zeros(256, bool)
        masked[255 - features["masked_positions"][features["masked_positions"] < 256]] = True
        begins = np.flatnonzero(masked & ~np.append(False, masked[:-1]))
        long = begins[[bool(masked[i + 1 : i + 2].any()) for i in begins]]
        spans += len(long)
        on_starts += np.sum(tokens[long] == 100)
    # Others are single tokens that happen to stand side by side.
    assert spans > 500
    assert on_starts > 0.7 * spans


def test_draws_depend_on_the_generator_alone():
    sample = sample_of(text(509), FULL)
    one, same, other = (XLNet()(sample, generator(seed), IDS) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["masked_positions"], other["masked_positions"])
    assert not np.array_equal(one["permutation_key_order"], other["permutation_key_order"])


def test_rows_of_examples_spell_the_text():
    """Carried parts, put together along a row, are its text, forward or backward."""
    tokens = text(4000)

    geometry = XLNet().geometry({"inputs": 128})
    carried: list[list[np.ndarray]] = [[] for _ in range(4)]
    text_of_rows = InMemory([[10] * 400])
    steps = range(geometry.steps(text_of_rows.total, 4))
    for step in geometry.plan_rows(text_of_rows, generator(), steps, 4):
        for row, values in enumerate(step):
            columns = dict(zip(geometry.columns, values, strict=True))
            sample = {name: np.int32(columns[name]) for name in ("reset_memory", "backward")}
            for name in ("inputs", "first", "second"):
                sample[name] = tokens[columns[f"{name}_start"] : columns[f"{name}_end"]]
            features = XLNet()(sample, generator(), IDS)
            assert len(features["inputs"]) == 128
            assert features["reset_memory"] == (not carried[row])
            assert features["backward"] == (row >= 2)
            carried[row].append(features["inputs"][:64])
    for row, parts in enumerate(carried):
        whole = np.concatenate(parts)
        part = tokens[row % 2 * 2000 : (row % 2 + 1) * 2000]
        assert len(whole) == 1920
        assert np.array_equal(whole, part[:: -1 if row >= 2 else 1][: len(whole)])


@pytest.mark.parametrize("name", ["partial_prediction", "max_ngram", "perm_size", "reuse_length"])
def test_fields_out_of_range(name: str):
    with pytest.raises(ValueError, match=f"XLNet: {name}"):
        XLNet(**{name: 0})


def test_errors_of_the_geometry():
    with pytest.raises(ValueError, match="length of inputs"):
        XLNet().geometry({})
    with pytest.raises(ValueError, match="CarriedRows: "):
        XLNet(reuse_length=120).geometry({"inputs": 120})


def test_what_the_vocabulary_must_have():
    assert TokenIds(vocab_size=10).missing(XLNet().needs) == ["cls", "sep", "word_starts"]
    assert not IDS.missing(XLNet().needs)
