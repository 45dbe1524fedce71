"""What the papers of the families tried when they fine-tuned, and a line about other settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
from flax import nnx

from t5x_like.core.partitioning import map_parameters

_SMALLEST = 5_000_000
"""Parameters, without tables of tokens and positions, of the smallest models of the papers.

ALBERT's base has 7 million and ELECTRA's small model 9. Smaller ones want higher rates.
"""


class Tried(NamedTuple):
    """What a paper tried: the least and the most of each.

    Attributes:
      rates: the highest learning rates of its runs.
      rows: the rows of a step.
      epochs: how often rows were read; None where the paper counts steps.
      source: the paper.
    """

    rates: tuple[float, float]
    rows: tuple[int, int]
    epochs: tuple[int, int] | None
    source: str


_BERT = Tried((2e-5, 5e-5), (16, 48), (2, 4), "Devlin et al., 2019, section 4 and appendix A.3")
_GPT = Tried((6.25e-5, 6.25e-5), (32, 32), (3, 3), "Radford et al., 2018, section 4.1")
_T5 = Tried((1e-3, 1e-3), (8, 128), None, "Raffel et al., 2020, sections 3.1.2 and 3.7")
TRIED: Mapping[str, Tried] = {
    "bert": _BERT,
    "distilbert": _BERT,
    "roberta": Tried((1e-5, 3e-5), (16, 48), (2, 10), "Liu et al., 2019, table 10"),
    "albert": Tried((1e-5, 5e-5), (16, 128), None, "Lan et al., 2020, table 14"),
    "electra": Tried((5e-5, 3e-4), (32, 32), (2, 10), "Clark et al., 2020, table 7"),
    "deberta": Tried((5e-6, 3e-5), (32, 64), (3, 8), "He et al., 2021, settings for GLUE"),
    "deberta-v2": Tried((2e-6, 4.5e-5), (32, 64), (2, 10), "the authors' settings for GLUE"),
    "longformer": Tried((3e-5, 3e-5), (32, 32), (5, 15), "Beltagy et al., 2020, appendix"),
    "xlnet": Tried((2e-5, 3e-5), (32, 128), None, "Yang et al., 2019, table 8"),
    "bart": Tried((5e-6, 2e-5), (32, 128), (10, 10), "Lewis et al., 2020, settings for GLUE"),
    "led": Tried((3e-5, 3e-5), (32, 32), None, "Beltagy et al., 2020, section 7"),
    "openai-gpt": _GPT,
    "gpt2": _GPT,
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "longt5": Tried((1e-3, 1e-3), (128, 128), None, "Guo et al., 2022, section 4.2.1"),
}
"""By the family; DistilBERT, GPT-2, mT5 and umT5 take the settings of BERT, GPT and T5."""


def outside(model: Any, settings: Mapping[str, Any], *, model_type: str) -> Iterator[str]:
    """A line about the settings that are outside of what the paper of a family tried, if any are.

    There is none about models that are smaller than those of the papers.

    Args:
      model: the abstract model that is fine-tuned.
      settings: {macro: value} of the run: PEAK_LEARNING_RATE, BATCH_SIZE, EPOCHS.
      model_type: its family.
    """
    tried = TRIED.get(model_type)
    if tried is None or size(model) < _SMALLEST:
        return
    ranges = {
        "PEAK_LEARNING_RATE": ("a learning rate of", tried.rates),
        "BATCH_SIZE": ("rows of a step:", tried.rows),
        "EPOCHS": ("epochs:", tried.epochs),
    }
    parts = []
    for macro, (what, bounds) in ranges.items():
        value = settings.get(macro)
        if bounds is None or not isinstance(value, int | float):
            continue
        least, most = bounds
        if not least <= value <= most:
            tried_range = f"{least:g}" if least == most else f"{least:g} to {most:g}"
            parts.append(f"{what} {value:g} (there {tried_range})")
    if parts:
        yield f"Not tried in the paper of this family ({tried.source}): {', '.join(parts)}."


def size(model: Any) -> int:
    """The parameters of a model, without tables of tokens and of positions."""
    counts = map_parameters(
        lambda axes, shape: 0 if {"vocab", "positions"} & {*axes} else math.prod(shape),
        nnx.state(model, nnx.Param),
    )
    return sum(jax.tree.leaves(counts))
