"""Every preset, from a cache to batches: it keeps to its features and does not vary by process."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from t5x_like import objectives
from t5x_like.data import task
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.rows import late_steps
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.samples import packing
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import Examples, train_stream
from t5x_like.vocabularies.byte import ByteVocabulary

ROWS = 4
TEXTS = [
    "\n".join(f"Sentence {i} of document {j}, {'words ' * (i % 5)}end." for i in range(1 + j % 7))
    for j in range(40)
]


@pytest.fixture(scope="module")
def cache(make_corpus: type, tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """A cache of bytes, in which rare bytes serve as the special tokens of objectives."""
    directory: Path = tmp_path_factory.mktemp("cache")
    write_cache(
        directory, make_corpus(TEXTS, TEXTS[:3]), ByteVocabulary(), workers=1, progress=False
    )
    made = Cache.open(directory)
    needs = sorted({name for o in objectives.of_plain_text().values() for name in o.needs})
    special = {name: 140 + i for i, name in enumerate(needs)}
    fields = {f.name for f in dataclasses.fields(made.token_ids)}
    ids = dataclasses.replace(
        made.token_ids,
        **{name: special[name] for name in needs if getattr(made.token_ids, name, 0) is None},
        named={name: special[name] for name in needs if name not in fields},
    )
    made.__dict__["token_ids"] = ids  # the ids of a vocabulary with all of them
    return made


def examples_of(cache: Cache, preset: str, tokens: int, *, seed: int) -> Examples:
    objective = objectives.preset(preset)
    opened = task.of_cache(cache, objective).with_cache(cache, objective.lengths(tokens))
    (found,) = mixtures.examples(
        [opened], "train", converter=default_converter(objective), seed=seed, rows=ROWS
    )
    return found


@pytest.mark.parametrize("preset", sorted(objectives.of_plain_text()))
def test_examples_stay_within_their_features(preset: str, cache: Cache) -> None:
    objective = objectives.preset(preset)
    for tokens in (64, 200):
        examples = examples_of(cache, preset, tokens, seed=0)
        found, size = examples.task, len(examples)
        assert size >= ROWS
        for n in {*range(min(size, 20)), size - 1, size}:
            rng = np.random.default_rng(n)
            (sample,) = examples.samples[n % size]
            made = objective(sample, rng, found.token_ids)
            # Independent noise may be longer than the feature; other noise needs no trimming.
            limits = {name: spec.length for name, spec in found.features.items()}
            lengths = limits if found.steps else {}
            made = late_steps.apply(found.steps, made, lengths=lengths, eos=found.eos)
            for name, spec in found.features.items():
                value = made[name]
                assert (value.dtype, value.ndim) == (spec.dtype, len(spec.shape))
                assert spec.length is None or len(value) <= spec.length
            assert all(np.isfinite(value).all() for value in examples[n].values())


@pytest.mark.parametrize("preset", sorted(objectives.of_plain_text()))
def test_rows_do_not_depend_on_who_asks(preset: str, cache: Cache) -> None:
    examples = [examples_of(cache, preset, 64, seed=5)]
    whole = list(itertools.islice(train_stream(examples, batch_size=ROWS, num_threads=0), 4))
    some = train_stream(examples, batch_size=ROWS, rows=[2, 0], start_step=2, num_threads=2)
    for ours, theirs in zip(itertools.islice(some, 2), whole[2:], strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name][[2, 0]], strict=True)


PACKED = ("mlm", "mlm_whole_word", "electra", "spanbert", "distilbert")


@pytest.mark.parametrize("preset", PACKED)
def test_a_packed_row_is_its_texts_end_to_end(preset: str, cache: Cache) -> None:
    """Each piece of text is in one row, and noise is that of the row: the same in any process."""
    objective = objectives.preset(preset)
    opened = task.of_cache(cache, objective).with_cache(cache, objective.lengths(200))
    (found,) = mixtures.examples(
        [opened], "train", converter=default_converter(objective, pack=True), seed=1, rows=ROWS
    )
    samples = found.samples
    assert isinstance(samples, packing.PackedSamples)
    numbers = sorted(itertools.chain.from_iterable(map(samples.row, range(len(samples)))))
    assert numbers == list(range(len(samples.samples)))
    assert len(samples) < len(numbers)
    for n in range(min(3, len(samples))):
        row, texts = found[n], found.features(n)
        joined = np.concatenate([text["inputs"] for text in texts])
        tokens = row["encoder_segment_ids"] > 0
        np.testing.assert_array_equal(row["encoder_input_tokens"][tokens], joined)
        assert row["encoder_segment_ids"].max() == len(texts)
        counted = row["masked_loss_weights"] > 0
        at = row["masked_positions"][counted]
        numbered = row["encoder_segment_ids"][at]
        of_texts = [[n] * len(text["masked_positions"]) for n, text in enumerate(texts, 1)]
        assert numbered.tolist() == [*itertools.chain.from_iterable(of_texts)]
        assert row["encoder_input_tokens"].size == 200


@pytest.mark.parametrize("preset", ["mlm_nsp", "full_sentences", "mlm_static"])
def test_rows_that_are_more_than_texts_are_not_packed(preset: str, cache: Cache) -> None:
    objective = objectives.preset(preset)
    opened = task.of_cache(cache, objective).with_cache(cache, objective.lengths(64))
    with pytest.raises(ValueError, match=r"cannot be packed|set dupe_factor of \w+ to 1"):
        opened.samples("train", pack=True)
