"""BART's denoising: noises in turn, <s> and </s> around the text, lengths kept, vocabularies."""

from __future__ import annotations

import dataclasses
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.objectives.bart import BART, PRESETS, SUMMARIES
from t5x_like.objectives.noise.document_rotation import DocumentRotation
from t5x_like.objectives.noise.sentence_permutation import SentencePermutation
from t5x_like.objectives.noise.text_infilling import TextInfilling
from t5x_like.objectives.noise.token_noise import TokenDeletion, TokenMasking
from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks

SIZE = 300
STOP = 20
ARRAYS = {
    "word_starts": np.arange(SIZE) % 3 > 0,
    "full_stops": np.arange(SIZE) == STOP,
}
TRAINED = TokenIds(SIZE, pad=0, eos=1, unk=2, cls=3, sep=4, mask=5, **ARRAYS)
ROBERTA = TokenIds(SIZE, pad=1, eos=2, unk=3, bos=0, cls=0, sep=2, mask=SIZE - 1, **ARRAYS)
NOISES = st.one_of(
    st.builds(TokenMasking, st.floats(0, 1), st.floats(0, 1)),
    st.builds(TokenDeletion, st.floats(0, 1)),
    st.builds(TextInfilling, st.floats(0, 1), st.floats(1, 10), st.floats(0, 1)),
    st.builds(SentencePermutation, st.floats(0, 1)),
    st.builds(DocumentRotation, st.floats(0, 1)),
)
OBJECTIVES = st.one_of(
    st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__),
    st.lists(NOISES, max_size=4).map(BART),
)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def text(length: int) -> np.ndarray:
    """A sentence of ten tokens after the other, without special tokens."""
    tokens = np.random.default_rng(length).integers(STOP + 1, SIZE - 1, length, np.int32)
    tokens[9::10] = STOP
    return tokens


@hypothesis.given(
    objective=OBJECTIVES,
    tokens=st.lists(st.integers(0, SIZE - 1), max_size=130),
    ids=st.sampled_from([TRAINED, ROBERTA]),
    seed=st.integers(0, 2**64 - 1),
)
@hypothesis.example(objective=PRESETS["bart"], tokens=[], ids=TRAINED, seed=0)
@hypothesis.example(objective=PRESETS["bart"], tokens=[7], ids=TRAINED, seed=0)
@hypothesis.example(objective=PRESETS["bart"], tokens=[1] * 126, ids=TRAINED, seed=0)
def test_any_text_and_any_noise(objective: BART, tokens: list, ids: TokenIds, seed: int):
    before = np.array(tokens, np.int32)
    features = objective({"targets": before}, generator(seed), ids)
    again = objective({"targets": before}, generator(seed), ids)
    inputs, targets = features["inputs"], features["targets"]
    assert before.tolist() == tokens
    assert inputs.dtype == targets.dtype == np.int32
    begin = 3 if ids is TRAINED else 0
    assert targets.tolist() == [begin, *tokens, ids.eos]
    assert inputs[0] == begin
    assert inputs[-1] == ids.eos
    assert 2 <= len(inputs) <= len(tokens) + 2
    assert inputs.min() >= 0
    assert inputs.max() < SIZE
    assert set(features) == {"inputs", "targets"}
    assert all(np.array_equal(features[name], again[name]) for name in features)


@hypothesis.given(seed=st.integers(0, 2**32), length=st.integers(3, 200))
def test_examples_fit_the_declared_lengths(seed: int, length: int):
    lengths = {"inputs": length, "targets": length}
    # Empty spans are likelier the shorter the spans are.
    objective = BART((SentencePermutation(), TextInfilling(1.0, 1.0)))
    longest = objective.geometry(lengths).length
    features = objective({"targets": text(longest)}, generator(seed), TRAINED)
    assert objective.features(lengths) == {
        "inputs": FeatureSpec(length),
        "targets": FeatureSpec(length),
    }
    assert len(features["targets"]) == length
    assert len(features["inputs"]) <= length


def test_the_published_combination_permutes_and_then_infills():
    tokens, rng = text(500), generator(1)
    sentences = {tuple(tokens[i : i + 10].tolist()) for i in range(0, 500, 10)}
    objective = PRESETS["bart"]
    permuted = SentencePermutation()(tokens, generator(7), TRAINED)
    assert {tuple(permuted[i : i + 10].tolist()) for i in range(0, 500, 10)} == sentences
    # The same generator, so the same order of sentences, in which spans are then missing.
    inputs = objective({"targets": tokens}, generator(7), TRAINED)["inputs"][1:-1]
    left = iter(permuted.tolist())
    assert all(token in left for token in inputs[inputs != TRAINED.mask].tolist())
    hidden, draws = [], 200
    for _ in range(draws):
        inputs = objective({"targets": tokens}, rng, TRAINED)["inputs"]
        hidden.append(502 - (inputs != TRAINED.mask).sum())
    # Whole words of any number of pieces: the covered share of tokens is that of words, 0.267.
    hidden = np.array(hidden) / 500
    assert abs(hidden.mean() - 0.267) <= 5 * hidden.std() / math.sqrt(draws) + 0.005


def test_sentences_are_the_segments_where_there_are_some():
    tokens, starts = text(90), np.array([7, 40, 41, 80], np.int32)
    parts = {tuple(part.tolist()) for part in np.split(tokens, starts)}
    objective = PRESETS["sentence_permutation"]
    seen = set()
    for seed in range(200):
        sample = {"targets": tokens, "segments": starts}
        inputs = objective(sample, generator(seed), TRAINED)["inputs"][1:-1].tolist()
        first = next(part for part in parts if inputs[: len(part)] == list(part))
        seen.add(first)
        assert sorted(inputs) == sorted(tokens.tolist())
    assert seen == parts
    # Without any, full stops divide.
    alone = {"targets": tokens, "segments": starts[:0]}
    assert np.array_equal(
        objective(alone, generator(3), TRAINED)["inputs"],
        objective({"targets": tokens}, generator(3), TRAINED)["inputs"],
    )


def test_noises_run_in_their_order():
    ids = dataclasses.replace(TRAINED, full_stops=np.arange(SIZE) == TRAINED.mask)
    masked_first = BART((TokenMasking(1.0), SentencePermutation()))
    # Each mask is a full stop, the first of several: one sentence. There is nothing to permute.
    assert masked_first({"targets": text(9)}, generator(0), ids)["inputs"].tolist() == [
        3,
        *[5] * 9,
        1,
    ]
    deleted = BART((TokenDeletion(0.5), TokenMasking(1.0)))
    assert deleted({"targets": text(9)}, generator(0), ids)["inputs"].tolist() == [3, 5, 5, 5, 5, 1]
    nothing = BART(())({"targets": text(9)}, generator(0), ids)
    assert np.array_equal(nothing["inputs"], nothing["targets"])


def test_other_generators_give_other_noise():
    for name, objective in PRESETS.items():
        one, other = (
            objective({"targets": text(200)}, generator(seed), TRAINED)["inputs"].tolist()
            for seed in (1, 2)
        )
        assert one != other, name


def test_presets():
    assert set(SUMMARIES) == set(PRESETS)
    assert PRESETS["bart"].noises == (SentencePermutation(1.0), TextInfilling(0.3, 3.0, 0.0))
    assert {name: len(preset.noises) for name, preset in PRESETS.items() if name != "bart"} == {
        "token_masking": 1,
        "token_deletion": 1,
        "text_infilling": 1,
        "sentence_permutation": 1,
        "document_rotation": 1,
    }
    assert repr(PRESETS["token_deletion"]) == "BART(noises=(TokenDeletion(rate=0.15),))"


def test_equal_however_the_noises_are_given():
    noises = [SentencePermutation(1), TextInfilling(mean_span_length=3)]
    assert BART(noises) == PRESETS["bart"]
    assert repr(BART(noises)) == repr(PRESETS["bart"])
    assert hash(BART(noises)) == hash(PRESETS["bart"])


def test_what_models_and_data_are_told():
    objective = PRESETS["bart"]
    assert (objective.kind, objective.steps, objective.static) == ("encoder_decoder", (), False)
    assert objective.decoder_start == "eos"
    assert objective.lengths(512) == {"inputs": 512, "targets": 512}
    blocks = SentenceBlocks(510, cross_documents=False)
    assert objective.geometry(objective.lengths(512)) == blocks
    assert objective.geometry({"inputs": 512, "targets": 100}).length == 98
    with pytest.raises(ValueError, match=r"\['targets'\] missing"):
        objective.geometry({"inputs": 512})
    with pytest.raises(ValueError, match="at least"):
        objective.geometry({"inputs": 512, "targets": 2})


def test_needs_are_those_of_the_noises():
    assert PRESETS["bart"].needs == ("cls", "eos", "full_stops", "mask", "word_starts")
    assert PRESETS["token_masking"].needs == ("cls", "eos", "mask")
    assert PRESETS["token_deletion"].needs == ("cls", "eos")
    for ids in (TRAINED, ROBERTA):
        assert not any(ids.missing(preset.needs) for preset in PRESETS.values())


@pytest.mark.parametrize("lacking", ["cls", "eos", "mask", "word_starts", "full_stops"])
def test_a_vocabulary_that_lacks_something_is_refused(lacking: str):
    ids = dataclasses.replace(TRAINED, **{lacking: None})
    with pytest.raises(ValueError, match=f"needs a vocabulary with {lacking}$"):
        PRESETS["bart"]({"targets": text(10)}, generator(0), ids)
