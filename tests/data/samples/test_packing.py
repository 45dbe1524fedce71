"""Packed rows hold every sample once, fit, waste little, and are the same in every process."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.samples import packing
from t5x_like.data.samples.packing import best_fit, first_fit, packed_documents, packed_records
from t5x_like.data.streams.stream import Examples
from t5x_like.data.task import Task
from t5x_like.objectives.marked_parts import MarkedParts
from t5x_like.objectives.mlm import NextSentence
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, SplitDocuments
from t5x_like.objectives.supervised.text_to_text import TextToText

LENGTHS = {"inputs": 12, "targets": 8}
SPECS = {name: FeatureSpec(length) for name, length in LENGTHS.items()}
PAIRS = [{"inputs": "i" * (i % 15), "targets": "t" * (1 + i % 4)} for i in range(60)]
EOS = {"inputs": 1, "targets": 1}
STEPS = ("append_eos_after_trim",)


def plainly(needs: list[tuple[int, ...]], capacity: tuple[int, ...], slots: int) -> list[list[int]]:
    """First fit by its definition, while no row has to be closed; None otherwise."""
    rows: list[list[int]] = []
    for sample, need in enumerate(needs):
        for row in rows:
            held = np.array([needs[other] for other in row]).sum(axis=0)
            if (held + need <= capacity).all():
                row.append(sample)
                break
        else:
            rows.append([sample])
    assert len(rows) <= slots
    return rows


@given(
    needs=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60)), max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=3),
)
def test_each_goes_to_the_first_row_with_room(needs, cuts):
    array = np.array(needs, np.int64).reshape(-1, 2).T
    blocks = np.split(array, sorted(cuts), axis=1)
    assert list(first_fit(blocks, (100, 60))) == plainly(needs, (100, 60), 256)


@given(
    needs=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60)), max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=3),
)
def test_each_goes_to_the_tightest_row_with_room(needs, cuts):
    """By the definition; of rows with the same room, to any."""
    array = np.array(needs, np.int64).reshape(-1, 2).T
    rows = list(best_fit(np.split(array, sorted(cuts), axis=1), (100, 60)))
    row_of = {sample: n for n, row in enumerate(rows) for sample in row}
    held = np.zeros((len(rows), 2), np.int64)
    for sample, need in enumerate(needs):
        room = np.array([100, 60]) - held
        begun = held.any(axis=1) | [min(row) < sample for row in rows]
        fits = begun & (room >= need).all(axis=1)
        chosen = row_of[sample]
        if fits.any():
            assert fits[chosen]
            assert room[chosen, 0] == room[fits, 0].min()
        held[chosen] += need
    assert (held <= [100, 60]).all()


@given(needs=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 6)), max_size=80))
def test_with_few_open_rows_each_is_still_in_one_row_that_has_room(needs):
    array = np.array(needs, np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_OPEN_ROWS", 3)
        rows = list(first_fit([array], (10, 6)))
    assert sorted(itertools.chain.from_iterable(rows)) == list(range(len(needs)))
    for row in rows:
        assert row == sorted(row)
        assert (array[:, row].sum(axis=1) <= (10, 6)).all()


def test_the_fullest_row_is_closed_when_too_many_are_open(monkeypatch):
    monkeypatch.setattr(packing, "_OPEN_ROWS", 2)
    # The row of 7 is closed for the 9, and so takes no 3.
    rows = list(first_fit([np.array([[7, 6, 9, 4, 3]])], (10,)))
    assert rows == [[0], [1, 3], [2], [4]]


def test_little_is_wasted():
    needs = np.random.default_rng(0).lognormal(4.5, 1, 20_000).astype(np.int64).clip(1, 512)
    rows = list(first_fit([needs[None]], (512,)))
    assert needs.sum() / (512 * len(rows)) > 0.96
    tight = list(best_fit([needs[None]], (512,)))
    assert sorted(itertools.chain.from_iterable(tight)) == list(range(len(needs)))
    assert needs.sum() / (512 * len(tight)) > 0.99


def test_a_plan_is_made_in_blocks(make_cache, monkeypatch):
    monkeypatch.setattr(packing, "_BLOCK", 4)
    original = packing.plans.load_or_make
    sizes = []

    def watched(split, what, blocks, **options):
        sizes.extend(len(block) for block in blocks())
        return original(split, what, blocks, **options)

    monkeypatch.setattr(packing.plans, "load_or_make", watched)
    rows = packed_records(make_cache(PAIRS, PAIRS[:1]).split("train"), LENGTHS, eos={})
    assert sum(sizes) == len(PAIRS) + len(rows) + 1
    assert max(sizes) < 4 + max(len(rows.row(i)) for i in range(len(rows)))


def test_rows_fit_after_trimming_and_eos(make_cache):
    task = Task(
        name="task",
        objective=TextToText(),
        steps=STEPS,
        eos=EOS,
        cache=make_cache(PAIRS, PAIRS[:1]),
        lengths=LENGTHS,
    )
    samples = task.samples("train", pack=True)
    examples = Examples(task, samples, EncoderDecoder(pack=True), 0)
    rows = [examples[i] for i in range(len(samples))]
    placed = sum(int(row["decoder_segment_ids"].max()) for row in rows)
    assert placed == len(PAIRS)
    tokens = {"inputs": "encoder_input_tokens", "targets": "decoder_target_tokens"}
    for feature, name in tokens.items():
        filled = np.mean([row[name] != 0 for row in rows])
        assert samples.efficiency[feature] == pytest.approx(filled)
        ends = sum(int((row[name] == 1).sum()) for row in rows)
        assert ends == len(PAIRS)
    assert max(samples.efficiency.values()) > 0.8


def rows_of(samples) -> list[list[int]]:
    return [samples.row(i) for i in range(len(samples))]


def test_plan_is_kept_beside_the_cache_and_reused(make_cache, monkeypatch):
    split = make_cache(PAIRS, PAIRS[:1]).split("train")
    samples = packed_records(split, LENGTHS, eos={})
    monkeypatch.setattr(packing, "first_fit", None)
    assert rows_of(packed_records(split, LENGTHS, eos={})) == rows_of(samples)
    again = pickle.loads(pickle.dumps(samples))
    assert rows_of(again) == rows_of(samples)
    assert again[1][0]["targets"].tolist() == samples[1][0]["targets"].tolist()
    with pytest.raises(TypeError):  # other steps need another plan
        packed_records(split, LENGTHS, late_steps=STEPS, eos=EOS)
    for outside in (-1, len(samples)):
        with pytest.raises(IndexError):
            samples.row(outside)


@dataclasses.dataclass(frozen=True)
class Halves(InputsAndTargets):
    """The first half of a part of a document, and the rest."""

    part: int = 10

    def geometry(self, lengths):
        return SplitDocuments(self.part)

    def sizes(self, n):
        return {"inputs": n // 2 + 1, "targets": n - n // 2 + 1}

    def __call__(self, sample, rng, ids):
        half = len(sample["targets"]) // 2
        return {"inputs": sample["targets"][:half], "targets": sample["targets"][half:]}


@dataclasses.dataclass(frozen=True)
class Mixed(Halves):
    """The same objective on samples that may hold two documents."""

    def geometry(self, lengths):
        return ConcatenateAndSplit(self.part)


class Unsized(InputsAndTargets):
    """An objective without a method that gives the lengths of its examples."""

    def geometry(self, lengths):
        return SplitDocuments(5)


def test_examples_of_an_objective_share_rows(make_cache):
    texts = ["abcdefghijklmnop"[: 1 + i % 16] for i in range(50)]
    cache = make_cache(texts)
    objective, lengths = Halves(), {"inputs": 20, "targets": 20}
    task = Task(
        name="task", objective=objective, steps=STEPS, eos=EOS, cache=cache, lengths=lengths
    )
    samples = task.samples("train", pack=True)
    examples = Examples(task, samples, EncoderDecoder(pack=True), 0)
    rows = [examples[i] for i in range(len(samples))]
    parts = sum(-(-len(text) // objective.part) for text in texts)
    assert sum(int(row["decoder_segment_ids"].max()) for row in rows) == parts
    assert len(rows) < parts / 2
    filled = np.mean([row["decoder_target_tokens"] != 0 for row in rows])
    assert samples.efficiency["targets"] == pytest.approx(filled)
    text_tokens = [
        row[n] for row in rows for n in ("encoder_input_tokens", "decoder_target_tokens")
    ]
    tokens = np.concatenate(text_tokens)
    assert (tokens > 1).sum() == sum(map(len, texts))


@pytest.mark.parametrize("objective", [Unsized(), Mixed(), MarkedParts(), NextSentence()])
def test_what_cannot_be_packed_is_an_error(make_cache, objective):
    split = make_cache(["text"]).split("train")
    with pytest.raises(ValueError, match=r"cannot be packed.*`sizes`.*pack=False"):
        packed_documents(split, objective, {**LENGTHS, "inputs": 16}, ids=TokenIds(9, pad=0, eos=1))


def test_missing_feature_is_an_error(make_cache):
    split = make_cache(["text"]).split("train")
    with pytest.raises(ValueError, match=r"no feature .*inputs.*, only targets"):
        packed_records(split, LENGTHS, eos={})
