"""What holds for every objective by name, on the samples that its geometry makes of any corpus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like import objectives
from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.samples import make_samples

V = 400
IDS = TokenIds(
    V,
    pad=0,
    eos=1,
    unk=2,
    cls=3,
    sep=4,
    mask=5,
    sentinels=100,
    named={"[R]": 6, "[S]": 7, "[X]": 8, "<eod>": 9},
    word_starts=np.arange(V) % 3 != 0,
    full_stops=np.arange(V) == 12,
    counts=np.arange(V, dtype=np.int64),
)
ROWS = 4
SILENT = {"lm", "lm_t5", "lm_continued", "gap_sentences"}  # they draw nothing


@st.composite
def corpora(draw: st.DrawFn) -> list[tuple[np.ndarray, np.ndarray]]:
    """Documents and where their segments start; some of one token, some of special ids alone."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        segments = rng.integers(1, draw(st.sampled_from([2, 12, 90])), draw(st.integers(1, 9)))
        low, high = draw(st.sampled_from([(10, V - 100), (0, 10), (12, 13)]))
        tokens = rng.integers(low, high, segments.sum()).astype(np.int32)
        found.append((tokens, (np.cumsum(segments) - segments).astype(np.int32)))
    # Enough for rows that are carried from batch to batch.
    found.append((rng.integers(10, V - 100, 700).astype(np.int32), np.arange(0, 700, 9)))
    return found


def sentences(tokens: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """One document of sentences of eleven tokens, the last of them a full stop."""
    text = np.random.default_rng(0).integers(13, V - 100, tokens).astype(np.int32)
    text[10::11] = 12
    return [(text, np.arange(0, tokens, 11))]


def made(name: str, tokens: int, corpus: list) -> tuple:
    """An objective, the features it declares, and its samples."""
    objective = objectives.preset(name)
    assert not IDS.missing(objective.needs)
    lengths = objective.lengths(tokens)
    samples = make_samples(objective.geometry(lengths), MemorySplit(corpus), separator=9, rows=ROWS)
    assert len(samples) > 0
    return objective, objective.features(lengths), samples


def example(objective, sample: dict, seed: int) -> dict[str, np.ndarray]:
    return objective(sample, np.random.Generator(np.random.Philox(key=seed)), IDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", objectives.of_plain_text())
@settings(max_examples=12)
@given(corpus=corpora(), tokens=st.sampled_from([16, 24, 64]), seed=st.integers(0, 2**64 - 1))
def test_examples_are_what_the_objective_declares(name: str, corpus: list, tokens: int, seed: int):
    objective, specs, samples = made(name, tokens, corpus)
    ended = bool(objective.steps)
    for n in {0, len(samples) // 2, len(samples) - 1}:
        (sample,) = samples[n]
        before = {key: value.copy() for key, value in sample.items()}
        features = example(objective, sample, seed)
        again = example(objective, sample, seed)
        assert features.keys() == specs.keys()
        for key, value in before.items():
            np.testing.assert_array_equal(sample[key], value, err_msg="the sample was changed")
        for key, spec in specs.items():
            value = features[key]
            assert value.dtype == spec.dtype, key
            np.testing.assert_array_equal(value, again[key])
            if spec.length is None:
                assert value.ndim == 0, key
                continue
            assert value.shape[1:] == spec.item, key
            # Targets of T5's i.i.d. presets are capped, and cut where a draw exceeds the cap.
            if key == "inputs" or not name.startswith("iid_"):
                assert len(value) + ended <= spec.length, key
            if key in ("inputs", "targets", "masked_targets"):
                assert ((value >= 0) & (value < V)).all(), key


# XLNet's rows have further parts, and an error of their own.
@pytest.mark.parametrize(
    "name",
    [n for n, one in objectives.of_plain_text().items() if one.kind == "encoder" and n != "xlnet"],
)
def test_the_shortest_inputs_are_told(name: str):
    objective = objectives.preset(name)
    with pytest.raises(ValueError, match=r"set the inputs length to \d+ or more$") as caught:
        objective.geometry({"inputs": 1})
    shortest = int(str(caught.value).split()[-3])
    objective.geometry({"inputs": shortest})
    with pytest.raises(ValueError, match=f"set the inputs length to {shortest} or more"):
        objective.geometry({"inputs": shortest - 1})


@pytest.mark.parametrize("name", [n for n in objectives.of_plain_text() if n not in SILENT])
def test_another_example_has_other_noise(name: str):
    objective, _, samples = made(name, 256, sentences(6000))
    found = set()
    for seed in range(20):
        features = example(objective, samples[1][0], seed)
        found.add(b"|".join(value.tobytes() for value in features.values()))
    assert len(found) > 10


@pytest.mark.parametrize("name", objectives.of_plain_text())
def test_a_sample_of_nothing_works(name: str):
    objective, specs, samples = made(name, 64, sentences(3000))
    (sample,) = samples[0]
    for tokens in (0, 1):
        few = {key: value if value.ndim == 0 else value[:tokens] for key, value in sample.items()}
        few |= {key: value[:0] for key, value in few.items() if key in ("segments", "documents")}
        features = example(objective, few, 0)
        for key, spec in specs.items():
            assert features[key].dtype == spec.dtype
            assert spec.length is None or len(features[key]) <= spec.length


def test_every_objective_says_what_it_is():
    summaries = objectives.summaries()
    assert summaries.keys() == objectives.presets().keys()
    for name, line in summaries.items():
        assert line
        assert "\n" not in line, name
        assert len(line) <= 100, name


PUBLISHED = """
    prefix_lm bert_style deshuffling mass_style iid_replace iid_drop span_corruption drop_spans mass
    mlm mlm_static mlm_whole_word mlm_specials mlm_all_masked mlm_nsp mlm_sop segment_pair
    sentence_pair full_sentences doc_sentences spanbert albert electra bart token_masking
    token_deletion text_infilling sentence_permutation document_rotation xlnet lm ul2 distilbert
""".split()


def test_every_published_objective_is_there():
    assert not set(PUBLISHED) - objectives.presets().keys()
