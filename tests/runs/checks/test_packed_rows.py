"""Rows that hold several labelled texts are for models that read them apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from flax import nnx

from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.layers.adapters import prompt
from t5x_like.models import bert, xlnet
from t5x_like.models.finetuned import FineTuned
from t5x_like.objectives.mlm import MaskedLM
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.runs.checks import preflight

SIZES = {"vocab_size": 9, "d_model": 8, "d_ff": 8, "num_heads": 2, "num_layers": 1}


def made(body: Any) -> FineTuned:
    return FineTuned(body, rngs=nnx.Rngs(0))


def of_bert(rngs: nnx.Rngs) -> bert.Encoder:
    return bert.Encoder(bert.Config(**SIZES), rngs=rngs)


def of_xlnet(rngs: nnx.Rngs) -> xlnet.Encoder:
    return xlnet.Encoder(xlnet.Config(**SIZES), rngs=rngs)


def checked(model: Any, objective: Any, *, pack: bool = True) -> None:
    options = SimpleNamespace(group_by_length=False)
    run: Any = SimpleNamespace(
        feature_converter=Encoder(pack), options=options, abstract_model=model
    )
    preflight.packed(run, [objective])


def test_a_model_that_reads_one_text_in_a_row_is_refused() -> None:
    checked(made(of_bert), Classes())
    checked(made(of_xlnet), Classes(), pack=False)
    checked(made(of_xlnet), MaskedLM())  # of plain text, its objective decides
    with pytest.raises(ValueError, match="reads one labelled text in a row"):
        checked(made(of_xlnet), Classes())
    prompted = prompt.adapt(made(of_bert), virtual_tokens=2, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="reads one labelled text in a row"):
        checked(prompted, Classes())
