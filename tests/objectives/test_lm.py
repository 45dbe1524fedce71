"""Language models read the corpus as it is, with or without separators."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.objectives.lm import EndedLanguageModeling, LanguageModeling
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit


def test_rows_of_separated_documents():
    objective = LanguageModeling()
    assert (objective.kind, objective.needs, objective.steps) == ("decoder", ("eos",), ())
    assert objective.lengths(1024) == {"targets": 1024}
    assert objective.geometry({"targets": 1024}) == ConcatenateAndSplit(1024, separators=True)
    assert objective.features({"targets": 1024}) == {"targets": FeatureSpec(1024)}


def test_rows_that_end():
    objective = EndedLanguageModeling()
    assert objective.steps == ("append_eos_after_trim",)
    assert objective.geometry({"targets": 512}) == ConcatenateAndSplit(511)


@pytest.mark.parametrize("n", [0, 1, 512])
def test_nothing_is_changed(n: int):
    tokens = np.arange(n, dtype=np.uint16)
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    (features,) = {
        tuple(objective({"targets": tokens}, rng, TokenIds(32100))["targets"].tolist())
        for objective in (LanguageModeling(), EndedLanguageModeling())
    }
    assert features == tuple(range(n))
    assert rng.bit_generator.state == state
    assert LanguageModeling()({"targets": tokens}, rng, TokenIds(9))["targets"].dtype == np.int32


def test_lengths_that_do_not_fit():
    with pytest.raises(ValueError, match="needs the length of targets"):
        LanguageModeling().geometry({"inputs": 5})
    with pytest.raises(ValueError, match="set their length to 1 or more"):
        LanguageModeling().geometry({"targets": 0})
    with pytest.raises(ValueError, match="set their length to 2 or more"):
        EndedLanguageModeling().geometry({"targets": 1})
