"""Gradual unfreezing: the head trains first, and then a layer more in each phase, from the top.

Howard and Ruder, 2018, section 3.3, for any stack; both stacks of an encoder-decoder at once, as in
T5 (Raffel et al., 2020, section 3.5.1).
"""

from __future__ import annotations

import functools
import posixpath
import re
from typing import Any

from flax import nnx

from t5x_like.runs.run import Phase
from t5x_like.runs.settings.finetuning import fresh_layers
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.parameter_paths import by_path

LAYER_DECAY = 1 / 2.6
"""The factor of the learning rate from layer to layer (section 3.2)."""
_HEAD = ("head.", "mixture.")


def phases(make: functools.partial[Any], steps: int, *, model_type: str) -> list[Phase]:
    """The phases of a run, of which each has as many steps; the last trains all parameters.

    Args:
      make: the constructor of the model.
      steps: those of the run.
      model_type: the family.

    Raises:
      ValueError: layers share their parameters, or there are fewer steps than phases.
    """
    state = nnx.state(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))), nnx.Param)
    numbers = layerwise.numbers_of(state)
    if not numbers or model_type in fresh_layers.SHARED:
        raise ValueError(
            "unfreezing frees a layer after the other, and all layers of this model are one: take "
            "another method"
        )
    marks = by_path(layerwise.depths(state))
    top = [path for path, mark in marks.items() if mark == "above" or path.startswith(_HEAD)]
    rest = [path for path in marks if path not in numbers and path not in top]
    stacks = {}
    for decodes in (False, True):
        paths = [path for path in numbers if ("decoder" in path.split(".")) == decodes]
        if paths:
            within = posixpath.commonpath([path.replace(".", "/") for path in paths])
            count = 1 + max(int(numbers[path].max()) for path in paths)
            stacks[within.replace("/", ".")] = count
    layers = max(stacks.values())
    first = 0 if any(path.startswith(_HEAD) for path in top) else 1
    each = steps // (layers + 1 - first)
    if not each:
        raise ValueError(
            f"unfreezing has {layers + 1 - first} phases, one for each layer and the head, and the "
            f"run {steps} steps: let it read the rows more often (epochs)"
        )
    frozen_rest = [f"^{re.escape(path)}$" for path in rest]
    made = [
        Phase(
            steps=each,
            frozen=[
                *frozen_rest,
                *(
                    f"^{re.escape(stack)}\\.@0-{count - free - 1}"
                    for stack, count in stacks.items()
                    if count > free
                ),
            ],
        )
        for free in range(first, layers)
    ]
    return [*made, Phase(frozen=())]
