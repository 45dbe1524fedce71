"""Predictions are in the marked parts of a text, whole or by token."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.formats import marked_texts
from t5x_like.data.dataset import Data
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.streams import mixtures
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.objectives.marked_parts import MarkedParts
from t5x_like.vocabularies.loading import load
from tests.objectives.masked_examples import BERT, SEEDS, made, rebuilt, text, texts

LENGTH = 64


@st.composite
def samples(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """A window of a text, and parts of the text, some beyond the window, some without tokens."""
    tokens = draw(texts(LENGTH - 2))
    begin = draw(st.integers(0, 40))
    parts = []
    for _ in range(draw(st.integers(0, 6))):
        first = draw(st.integers(-1, begin + len(tokens) + 10))
        parts.append((first, first if first < 0 else first + draw(st.integers(0, 5)), 0, 0))
    window = np.array([begin, begin + len(tokens)], np.int32)
    spans = np.array(parts, np.int32).reshape(-1, 4)
    return {"targets": tokens, "window": window, "parts": spans}


@hypothesis.given(
    st.builds(MarkedParts, masked_rate=st.sampled_from([0.15, 0.5, 1]), whole=st.booleans()),
    samples(),
    SEEDS,
)
def test_nothing_else_is_predicted(objective: MarkedParts, sample: dict, seed: int) -> None:
    features = made(objective, sample, length=LENGTH, seed=seed)
    assert rebuilt(features).tolist() == [BERT.cls, *sample["targets"], BERT.sep]
    begin, end = sample["window"]
    inside = [{*range(a, b + 1)} for a, b, *_ in sample["parts"].tolist() if a >= 0]
    here = {*range(begin, end)}
    predicted = {int(p) - 1 + begin for p in features["masked_positions"]}
    assert predicted <= {p for part in inside for p in part} & here
    budget = objective._budget(len(sample["targets"]) + 2)
    assert len(predicted) <= budget
    if objective.whole:
        assert predicted == {p for part in inside if part <= predicted for p in part}
        fits = [part for part in inside if part <= here and len(part) <= budget]
        assert bool(predicted) == bool(fits)
    else:
        marked = {p for part in inside for p in part} & here
        assert len(predicted) == min(budget, len(marked))


def test_every_part_is_drawn_sooner_or_later() -> None:
    sample = {
        "targets": text(20),
        "window": np.array([0, 20], np.int32),
        "parts": np.array([[2, 3, 0, 0], [7, 9, 0, 0], [15, 15, 0, 0]], np.int32),
    }
    objective = MarkedParts(whole=True, masked_rate=0.14)  # 3 of 22
    drawn = {
        tuple(made(objective, sample, length=22, seed=seed)["masked_positions"].tolist())
        for seed in range(40)
    }
    assert drawn == {(3, 4, 16), (8, 9, 10)}


@pytest.mark.parametrize(
    ("written", "markers", "text_of", "parts"),
    [
        ("a <e>b c</e> d<e>e</e>", ("<e>", "</e>"), "a b c de", [(2, "b c"), (7, "e")]),
        ("**a** b **c**", ("**", "**"), "a b c", [(0, "a"), (4, "c")]),
        ("a <e></e>b", ("<e>", "</e>"), "a b", []),
        ("none", ("<e>", "</e>"), "none", []),
    ],
)
def test_markers_are_left_out(written, markers, text_of, parts) -> None:
    assert marked_texts.read(written, markers, where="row 1") == (text_of, parts)


@pytest.mark.parametrize("written", ["a <e>b", "a b</e>", "<e>a <e>b</e></e>", "<e>a</e></e>"])
def test_markers_come_in_pairs(written: str) -> None:
    with pytest.raises(CorpusError, match=r"row 1 has '</?e>'"):
        marked_texts.read(written, ("<e>", "</e>"), where="row 1")


def test_both_forms_of_a_file_give_the_same_examples(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ada", "lives", "in", "tu", "##rin"]
        )
    )
    vocabulary = load(str(tmp_path / "vocab.txt"))
    rows = {
        "marked": [{"targets": "ada lives in [turin]"}] * 8,
        "beside": [
            {
                "targets": "ada lives in turin",
                "parts": {"text": ["turin"], "answer_start": [13]},
            }
        ]
        * 8,
    }
    examples = []
    for name, objective in {
        "marked": MarkedParts(whole=True, masked_rate=0.4, markers=("[", "]")),
        "beside": MarkedParts(whole=True, masked_rate=0.4),
    }.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        data = Data(
            corpus=str(file),
            objective=objective,
            vocabulary=KnownVocabulary(vocabulary),
            lengths={"inputs": 12},
            cache_dir=str(tmp_path / name),
        )
        tasks = data.open()
        converter = default_converter(objective)
        (of,) = mixtures.examples([*tasks], "train", converter=converter, seed=0)
        examples.append(of.features(0)[0])
    for name, value in examples[0].items():
        np.testing.assert_array_equal(value, examples[1][name])
    assert examples[0]["masked_positions"].tolist() == [4, 5]
    assert examples[0]["masked_targets"].tolist() == [8, 9]


def test_what_cannot_be_meant_is_refused() -> None:
    for settings in ({"markers": ("[",)}, {"markers": "[]"}, {"markers": ("", "]")}):
        with pytest.raises(ValueError, match="markers are two texts"):
            MarkedParts(**settings)
    for settings in ({"static": True}, {"whole_words": True}, {"dupe_factor": 2}):
        with pytest.raises(ValueError, match="draws new tokens of parts in every epoch"):
            MarkedParts(**settings)
