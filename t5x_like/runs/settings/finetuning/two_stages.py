"""The two stages of a second encoder: first it alone learns, then all (Lewis et al., 2020, 3.4)."""

from __future__ import annotations

import functools
from typing import Any

from flax import nnx

from t5x_like.runs.run import Phase

LAST = 0.1
"""The share of the steps in which all parameters train: "a small number"."""
_OTHERS = (
    r"^(?!source\.|(en|de)coder_entry\.positions$|encoder\.layers\.attention\.(query|key|value)\.)"
)
_PROJECTIONS = r"^encoder\.layers\.attention\.(query|key|value)\."


def phases(make: functools.partial[Any], steps: int) -> list[Phase]:
    """The phases of a run.

    In the first the new encoder trains, the positions, and the projections of the inputs of the
    first layer's self-attention; in the second all parameters.

    Args:
      make: the constructor of a BART.
      steps: those of the run.

    Raises:
      ValueError: the run has one step.
    """
    last = max(1, round(LAST * steps))
    if last >= steps:
        raise ValueError("a second encoder learns in two stages, and the run has one step")
    layers = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))).encoder.num_layers
    frozen = [_OTHERS, *([f"{_PROJECTIONS}@1-{layers - 1}"] if layers > 1 else [])]
    return [Phase(steps=steps - last, frozen=frozen), Phase(frozen=())]
