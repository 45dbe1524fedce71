"""What the tests of masked encoders share: two small vocabularies, texts, checks of any example."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np

from t5x_like.core.protocols.data import TokenIds

VOCAB = 60
STARTS = np.arange(VOCAB) % 3 != 0
COUNTS = np.arange(VOCAB) ** 2
BERT = TokenIds(VOCAB, eos=None, unk=10, cls=11, sep=12, mask=13, word_starts=STARTS, counts=COUNTS)
ROBERTA = TokenIds(
    VOCAB, pad=1, eos=2, unk=3, bos=0, cls=0, sep=2, mask=VOCAB - 1, word_starts=STARTS
)
TEXT = np.arange(20, VOCAB - 1)
SEEDS = st.integers(0, 2**64 - 1)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def texts(longest: int, shortest: int = 0) -> st.SearchStrategy[np.ndarray]:
    """Any ids, special ones too; also nothing but special ones, and as long as may be."""
    anything = st.lists(st.integers(0, VOCAB - 1), min_size=shortest, max_size=longest)
    special = st.lists(st.sampled_from(BERT.special), min_size=shortest, max_size=longest)
    longest_texts = st.integers(0, VOCAB - 1).map(lambda start: np.arange(start, start + longest))
    longest_texts = longest_texts.map(lambda ids: (ids % VOCAB).tolist())
    return st.one_of(anything, special, longest_texts).map(lambda ids: np.array(ids, np.int32))


def text(length: int, seed: int = 0) -> np.ndarray:
    """Ordinary tokens."""
    return generator(seed).choice(TEXT, length).astype(np.int32)


def rebuilt(features: dict[str, np.ndarray]) -> np.ndarray:
    """The inputs without noise."""
    inputs = features["inputs"].copy()
    inputs[features["masked_positions"]] = features["masked_targets"]
    return inputs


def made(objective, sample, *, length: int, seed: int = 0, ids=BERT) -> dict[str, np.ndarray]:
    """The example of a sample, once all has been checked that holds for any masked encoder."""
    before = {name: np.copy(value) for name, value in sample.items()}
    features = objective(sample, generator(seed), ids)
    for name, value in before.items():
        assert np.array_equal(value, sample[name])

    again = objective(sample, generator(seed), ids)
    specs = objective.features({"inputs": length})
    assert set(specs) == set(features) == set(again)
    for name, spec in specs.items():
        assert features[name].dtype == spec.dtype
        assert np.array_equal(features[name], again[name])
        if spec.length is None:
            assert features[name].shape == ()
        else:
            assert features[name].ndim == 1
            assert len(features[name]) <= spec.length

    positions = features["masked_positions"]
    assert (np.diff(positions) >= 0).all()
    assert len(positions) == len(features["masked_targets"]) == len(features["masked_loss_weights"])
    assert (features["masked_loss_weights"] == 1).all()
    assert len(features["inputs"]) == len(features["token_type_ids"])
    assert set(np.flatnonzero(features["inputs"] != rebuilt(features))) <= set(positions.tolist())
    return features


def many(objective, sample, draws: int, ids=BERT) -> list[dict[str, np.ndarray]]:
    """Examples of one sample under other noise each."""
    rng = generator(1)
    return [objective(sample, rng, ids) for _ in range(draws)]


def fates(examples: list[dict[str, np.ndarray]], mask: int) -> dict[str, int]:
    """How many of the predicted positions became [MASK], became another id, or look unchanged."""
    counts = {"masked": 0, "other": 0, "same": 0}
    for one in examples:
        seen = one["inputs"][one["masked_positions"]]
        same = int((seen == one["masked_targets"]).sum())
        masked = int((seen == mask).sum())
        counts["masked"] += masked
        counts["same"] += same
        counts["other"] += len(seen) - masked - same
    return counts
