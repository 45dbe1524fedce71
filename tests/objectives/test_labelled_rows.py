"""What objectives of labelled rows share: the weights of rows, and the room that they take."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds, names
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.data.samples.samples import make_samples
from t5x_like.interop.tokenizers.to_files import FAMILIES
from t5x_like.objectives.supervised.choices import Choices
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.numbers import Numbers
from t5x_like.objectives.supervised.several import Several
from t5x_like.objectives.supervised.spans import Spans
from t5x_like.objectives.supervised.tags import Tags

IDS = TokenIds(vocab_size=50, cls=3, sep=4)
TEXT = np.array([7, 8], np.int32)
SAMPLE = {
    **dict.fromkeys(("inputs", "words", "tags", "choice_0", "choice_1"), TEXT),
    "label": np.array(1, np.int32),
    "max_tokens": np.array(9),
}


@pytest.mark.parametrize("kind", [Choices, Classes, Numbers, Several, Tags])
def test_a_row_has_the_weight_of_its_column(kind: Any) -> None:
    lengths = {"inputs": 9}
    for columns, given in (((), {}), (("weight",), {"example_weights": np.float32(0.5)})):
        objective = kind.of_family(FAMILIES["bert"], columns, ["0", "1"])
        assert ("weight" in names(objective.reads)) == bool(columns)
        sample = SAMPLE | {"weight": np.float32(0.5)}
        example = objective(sample, np.random.default_rng(0), IDS)
        assert {name: example[name] for name in example if "weight" in name} == given
        assert example.keys() == objective.features(lengths).keys()
        assert objective.geometry(lengths).cut(sample)["weight"] == 0.5


@pytest.mark.parametrize(
    "objective",
    [Spans(question_tokens=5, stride=3), Choices(names=("A", "B", "C"), second=True)],
)
def test_a_text_takes_as_much_of_a_packed_row_as_was_planned(objective: Any) -> None:
    rng, lengths = np.random.default_rng(0), {"inputs": 14}
    fixed = {"label": np.array([1]), "answers": np.zeros((0, 4), np.int32)}
    texts = [column.name for column in objective.reads if column.holds in ("text", "passage")]
    sizes = {name: rng.integers(0, 12, 40) for name in texts}
    records = [
        {**fixed, **{name: np.full(of[n], 9, np.int32) for name, of in sizes.items()}}
        for n in range(40)
    ]
    offsets = {name: np.cumsum([0, *of]) for name, of in sizes.items()}
    split: Any = types.SimpleNamespace(offsets=offsets, record=records.__getitem__)
    split = type("Split", (), {"__len__": lambda _: 40, **vars(split)})()
    shape = objective.geometry(lengths)
    samples = make_samples(shape, split)
    features = objective.features(lengths)
    used = []
    for n in range(len(samples)):
        example = objective(samples[n][0], rng, IDS)
        row = Encoder(pack=True).convert([example], features=features, ids=IDS)
        assert len(row["encoder_input_tokens"]) == objective.packed_tokens(lengths)
        used.append(int(row["encoder_attention_mask"].sum()))
    assert used == shape.packed_tokens(offsets).tolist()
    assert 0 < max(used) <= objective.packed_tokens(lengths)
