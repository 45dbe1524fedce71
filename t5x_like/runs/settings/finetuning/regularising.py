"""What keeps a large model that is fine-tuned on few rows from learning them by heart."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from t5x_like.models.finetuned import FineTuned

_KINDS = ("classes", "choices", "ordered", "tags")
"""The kinds of labels whose answers are probabilities of classes, one of which is right."""


class Regularising(NamedTuple):
    """What is done; None for nothing.

    Attributes:
      reinit_layers: how many of the last layers start afresh (`fresh_layers`).
      r_drop: the weight in the loss of the distance of two answers with other units dropped.
    """

    reinit_layers: int | None = None
    r_drop: float | None = None


def with_r_drop(
    make: functools.partial[Any], weight: float | None, kind: str
) -> functools.partial[Any]:
    """The constructor of a `FineTuned` that learns with R-Drop.

    Args:
      make: its constructor.
      weight: that of the distance; None for the constructor as it is.
      kind: the kind of label.

    Raises:
      ValueError: the kind has no classes of which one is right, the model is another one (a GPT's
        choices), or the weight is not above 0.
    """
    if weight is None:
        return make
    if kind not in _KINDS:
        raise ValueError(f"r_drop is for {', '.join(_KINDS)}, not for {kind}")
    if make.func is not FineTuned:
        raise ValueError(
            f"r_drop is not for the {kind} of a {make.func.__name__}, which keeps predicting "
            "tokens: leave it out"
        )
    if not 0 < weight < float("inf"):
        raise ValueError(f"r_drop is above 0, not {weight}: leave it out for none")
    return functools.partial(make.func, *make.args, **{**make.keywords, "r_drop": weight})


def check_dropout(model: Any) -> None:
    """Raises ValueError where R-Drop would compare two equal answers.

    Args:
      model: the `FineTuned` of the run, with all its settings.
    """
    if model.r_drop and not model.drops:
        family = type(model.config).__module__.rpartition(".")[2]
        raise ValueError(
            "r_drop compares two answers of which each has other units dropped, and this model has "
            "no dropout: its answers would be the same. Leave out r_drop, or give it dropout: "
            f"--gin.{family}.Config.dropout_rate=0.1"
        )
