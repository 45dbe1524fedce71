"""T5's table: its published example, what can be restored, lengths, and errors."""

from __future__ import annotations

import dataclasses
import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives import lm
from t5x_like.objectives.denoising import PRESETS, Denoising
from t5x_like.objectives.noise import corruptions
from t5x_like.objectives.noise.noise_masks import IidNoise
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, SplitDocuments
from tests.objectives.binomial import assert_mean_within_5_sigma, assert_within_5_sigma

IDS = TokenIds(vocab_size=32100)
TEXT = "Thank you for inviting me to your party last week .".split()
HIGHEST_TEXT_ID = 29_000
presets = st.sampled_from(sorted(PRESETS))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


class Scripted:
    """A generator that draws what the example shows."""

    def random(self, size: int) -> np.ndarray:
        return np.array([0.5, 0.5, 0.05])[:size]

    def integers(self, high: int, size: int) -> np.ndarray:
        # The vocabulary's first ordinary id is 3.
        return np.full(size, IDS_OF["apple"] - 3)

    def permutation(self, tokens: np.ndarray) -> np.ndarray:
        order = "party me for your to . last you inviting week Thank".split()
        assert sorted(tokens.tolist()) == sorted(IDS_OF[word] for word in order)
        return np.array([IDS_OF[word] for word in order])


IDS_OF = {word: 10 + i for i, word in enumerate([*TEXT, "apple"])}
MARKS = {IDS.sentinel(0): "<X>", IDS.sentinel(1): "<Y>", IDS.sentinel(2): "<Z>"}


def written(tokens: np.ndarray) -> str:
    words = {i: word for word, i in IDS_OF.items()} | MARKS
    return " ".join(words[token] for token in tokens.tolist())


SPANS = Denoising(
    None, corruptions.NoiseToSentinels(), corruptions.CleanToSentinels()
)  # the noise is given
SCATTERED, SPAN_WORDS = "for inviting last", "for inviting me your party last"
WHOLE = "Thank you for inviting me to your party last week ."


@pytest.mark.parametrize(
    ("objective", "noise", "inputs", "targets"),
    [
        (
            PRESETS["prefix_lm"],
            "me to your party last week .",
            "Thank you for inviting",
            "me to your party last week .",
        ),
        (
            PRESETS["bert_style"],
            SCATTERED,
            "Thank you <X> <X> me to your party apple week .",
            WHOLE,
        ),
        # The paper's figure shows one word more than the text has.
        (
            PRESETS["deshuffling"],
            WHOLE,
            "party me for your to . last you inviting week Thank",
            WHOLE,
        ),
        (
            PRESETS["mass_style"],
            SCATTERED,
            "Thank you <X> <X> me to your party <X> week .",
            WHOLE,
        ),
        (
            PRESETS["iid_replace"],
            SCATTERED,
            "Thank you <X> me to your party <Y> week .",
            "<X> for inviting <Y> last <Z>",
        ),
        (
            PRESETS["iid_drop"],
            SCATTERED,
            "Thank you me to your party week .",
            "for inviting last",
        ),
        (
            SPANS,
            SPAN_WORDS,
            "Thank you <X> to <Y> week .",
            "<X> for inviting me <Y> your party last <Z>",
        ),
    ],
    ids=lambda value: value[:10] if isinstance(value, str) else None,
)
def test_the_published_example(objective: Denoising, noise: str, inputs: str, targets: str):
    mask = np.array([word in noise.split() for word in TEXT])
    given = dataclasses.replace(objective, noise=lambda n, rng: mask)
    tokens = np.array([IDS_OF[word] for word in TEXT], np.int32)
    features = given({"targets": tokens}, Scripted(), IDS)
    assert written(features["inputs"]) == inputs
    assert written(features["targets"]) == targets


def test_the_published_example_of_a_language_model():
    tokens = np.array([IDS_OF[word] for word in TEXT], np.int32)
    for name in ("lm", "lm_t5"):  # rows that continue have samples of their own
        features = lm.PRESETS[name]({"targets": tokens}, generator(), IDS)
        assert list(features) == ["targets"]
        assert written(features["targets"]) == WHOLE


def example(name: str, tokens: np.ndarray, seed: int) -> tuple[list[int], list[int]]:
    before = tokens.copy()
    features = PRESETS[name]({"targets": tokens}, generator(seed), IDS)
    assert np.array_equal(tokens, before)
    assert {name: value.dtype for name, value in features.items()} == {
        "inputs": np.int32,
        "targets": np.int32,
    }
    return features["inputs"].tolist(), features["targets"].tolist()


def runs(tokens: list[int]) -> list[list[int]]:
    """The text before, between and after sentinels."""
    split = [[]]
    for token in tokens:
        if token > HIGHEST_TEXT_ID:
            split.append([])
        else:
            split[-1].append(token)
    return split


def sentinels(tokens: list[int]) -> list[int]:
    return [token for token in tokens if token > HIGHEST_TEXT_ID]


texts = st.builds(
    lambda n, seed: generator(seed).integers(3, HIGHEST_TEXT_ID, n).astype(np.int32),
    st.one_of(st.integers(0, 3), st.integers(0, 511)),
    st.integers(0, 2**32),
)


@hypothesis.given(name=presets, tokens=texts, seed=st.integers(0, 2**64 - 1))
def test_any_text_gives_features_no_longer_than_it(name: str, tokens: np.ndarray, seed: int):
    inputs, targets = example(name, tokens, seed)
    assert (inputs, targets) == example(name, tokens, seed)
    sizes = PRESETS[name].sizes(np.array([len(tokens)]))
    assert len(inputs) + 1 <= sizes["inputs"][0]
    assert len(targets) + 1 <= sizes["targets"][0]
    if len(tokens) > 100:
        # One other seed may cut where this one does; eight do not.
        others = [example(name, tokens, seed ^ other) for other in range(1, 9)]
        assert any((inputs, targets) != other for other in others)


@hypothesis.given(tokens=texts, seed=st.integers(0, 2**64 - 1), data=st.data())
def test_runs_replaced_by_sentinels_can_be_restored(tokens: np.ndarray, seed: int, data):
    name = data.draw(st.sampled_from([name for name in PRESETS if "replace" in name]))
    inputs, targets = example(name, tokens, seed)
    for feature in (inputs, targets):
        marks = sentinels(feature)
        assert marks == [IDS.sentinel(k) for k in range(len(marks))]
    # A text that begins with noise has one run more before the first sentinel of its targets.
    noise = [run for run in runs(targets) if run]
    assert len(noise) == len(sentinels(inputs))
    pieces = itertools.zip_longest(runs(inputs), noise, fillvalue=[])
    assert [t for clean, noisy in pieces for t in (*clean, *noisy)] == tokens.tolist()
    if tokens.size:
        begins_noisy = inputs[0] > HIGHEST_TEXT_ID
        assert (targets[0] <= HIGHEST_TEXT_ID) == begins_noisy
        # A closing sentinel exactly where the text ends clean.
        assert (targets[-1] > HIGHEST_TEXT_ID) == (inputs[-1] <= HIGHEST_TEXT_ID)


@hypothesis.given(tokens=texts, seed=st.integers(0, 2**64 - 1))
def test_prefix_and_rest_are_the_text(tokens: np.ndarray, seed: int):
    inputs, targets = example("prefix_lm", tokens, seed)
    assert inputs + targets == tokens.tolist()
    assert bool(targets) == bool(len(tokens))
    assert bool(inputs) == (len(tokens) > 1)


@hypothesis.given(n=st.integers(0, 511), seed=st.integers(0, 2**64 - 1), data=st.data())
def test_dropped_tokens_are_in_order(n: int, seed: int, data):
    name = data.draw(st.sampled_from([name for name in PRESETS if "drop" in name]))
    inputs, targets = example(name, np.arange(n, dtype=np.int32), seed)
    assert inputs == sorted(inputs)
    assert targets == sorted(targets)
    assert sorted(inputs + targets) == list(range(n))


@hypothesis.given(tokens=texts, seed=st.integers(0, 2**64 - 1))
def test_objectives_that_write_the_whole_text(tokens: np.ndarray, seed: int):
    for name in ("bert_style", "mass_style", "deshuffling"):
        inputs, targets = example(name, tokens, seed)
        assert targets == tokens.tolist()
        assert len(inputs) == len(tokens)
        if name == "deshuffling":
            assert sorted(inputs) == sorted(targets)
        if name == "mass_style":
            changed = [a for a, b in zip(inputs, targets, strict=True) if a != b]
            assert set(changed) <= {IDS.sentinel(0)}


@hypothesis.given(tokens=texts, seed=st.integers(0, 2**64 - 1))
def test_a_fragment_is_masked_and_predicted(tokens: np.ndarray, seed: int):
    inputs, targets = example("mass", tokens, seed)
    n, size = len(tokens), len(targets)
    assert size == (max(1, n // 2) if n > 1 else 0)
    fits = [
        start
        for start in range(1, n - size + 1)
        if targets == tokens[start : start + size].tolist()
        and inputs[:start] + inputs[start + size :]
        == tokens[:start].tolist() + tokens[start + size :].tolist()
    ]
    assert fits or inputs == tokens.tolist()


def test_noise_statistics_of_the_published_lengths():
    rng, n, draws = generator(7), 511, 1500
    tokens = np.full(n, 5, np.int32)
    masked = np.zeros(n)
    random = 0
    lengths = []
    for _ in range(draws):
        bert = PRESETS["bert_style"]({"targets": tokens}, rng, IDS)["inputs"]
        masked += bert == 32099
        random += ((bert != 5) & (bert != 32099)).sum()
        replaced = PRESETS["iid_replace"]({"targets": tokens}, rng, IDS)["targets"]
        lengths.append(len(replaced))
    # 13.5 % the mask token, 1.5 % random tokens, at every position.
    assert_within_5_sigma(masked, np.full(n, 0.15 * (0.9 + 0.1 / 32097)), draws)
    p = 0.015 * (1 - 2 / 32097)
    assert_within_5_sigma(np.array([random]), np.array([p]), n * draws)
    # Noise tokens, and a sentinel wherever a clean run starts.
    q = 0.85
    mean = n * 0.15 + q + (n - 1) * 0.15 * q
    # A token adds nothing only if it is clean after a clean one.
    deviation = np.sqrt(n * (q**2 * (1 - q**2) + 2 * (q**3 - q**4)))
    assert_mean_within_5_sigma(np.array(lengths), mean, deviation + 1)
    # T5's 192 cut about one in 3,000.
    assert np.mean(np.array(lengths) + 1 > 192) < 0.005


@pytest.mark.parametrize(
    ("name", "targets", "shape"),
    [
        ("prefix_lm", 512, SplitDocuments(511)),
        ("bert_style", 512, ConcatenateAndSplit(511)),
        ("deshuffling", 512, SplitDocuments(511)),
        ("mass_style", 512, ConcatenateAndSplit(511)),
        ("iid_replace", 192, ConcatenateAndSplit(511)),
        ("iid_drop", 104, ConcatenateAndSplit(511)),
        ("mass", 256, ConcatenateAndSplit(511)),
    ],
)
def test_published_lengths(name: str, targets: int, shape: object):
    objective = PRESETS[name]
    lengths = objective.lengths(512)
    assert lengths == {"inputs": 512, "targets": targets}
    assert objective.geometry(lengths) == shape
    assert objective.geometry({"inputs": 512, "targets": 600}) == shape
    if name == "prefix_lm":  # T5 cuts what follows a prefix, too
        assert objective.geometry({"inputs": 512, "targets": targets - 1}) == shape
        return
    with pytest.raises(ValueError, match=f"set the targets length to {targets}"):
        objective.geometry({"inputs": 512, "targets": targets - 1})


@hypothesis.given(inputs=st.integers(2, 600), seed=st.integers(0, 9))
def test_a_fragment_is_never_cut(inputs: int, seed: int):
    lengths = PRESETS["mass"].lengths(inputs)
    targets = example("mass", np.full(inputs - 1, 5, np.int32), seed)[1]
    assert lengths["targets"] - 1 <= len(targets) + 1 <= lengths["targets"]


def test_targets_that_would_be_cut_most_of_the_time_are_refused():
    rare, dense = PRESETS["iid_replace"], IidNoise(0.5)
    with pytest.raises(ValueError, match=r"are 0\.75 of a sample on average"):
        dataclasses.replace(rare, noise=dense)
    assert dataclasses.replace(rare, noise=dense, targets_share=1.0).lengths(512)["targets"] == 512
    with pytest.raises(ValueError, match=r"targets_share=0\.203 would cut"):
        dataclasses.replace(PRESETS["iid_drop"], noise=dense)


def test_one_text_in_a_thousand_drops_more_than_the_targets_hold():
    rate, most = 15, PRESETS["iid_drop"].lengths(512)["targets"] - 1
    pmf, more = (1 - rate / 100) ** 511, 1.0
    for dropped in range(most + 1):
        more -= pmf
        at_most_fewer = more + pmf
        pmf *= (511 - dropped) / (dropped + 1) * rate / (100 - rate)
    assert more <= 0.001 < at_most_fewer


def test_lengths_that_do_not_fit():
    geometry = PRESETS["bert_style"].geometry
    with pytest.raises(ValueError, match=r"\['inputs'\] missing"):
        geometry({"targets": 512})
    with pytest.raises(ValueError, match="at least 2 tokens"):
        geometry({"inputs": 1, "targets": 512})
    with pytest.raises(ValueError, match="Denoising: targets_share"):
        dataclasses.replace(PRESETS["bert_style"], targets_share=1.5)
