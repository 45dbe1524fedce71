"""What objectives of labelled rows share: the weights of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds, names
from t5x_like.interop.tokenizers.to_files import FAMILIES
from t5x_like.objectives.supervised.choices import Choices
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.numbers import Numbers
from t5x_like.objectives.supervised.several import Several
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
