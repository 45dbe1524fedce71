"""The last layers of a saved model, which start from new parameters when it is fine-tuned."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from flax import nnx

from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.parameter_paths import by_path

SHARED = ("albert",)
"""The families whose layers are the same parameters."""
_POOLER = "head.pooler."


def patterns(model: Any, layers: int, *, model_type: str) -> tuple[str, ...]:
    """The patterns of `InitFrom.skip` for the last layers, and for the pooler of the head.

    They are initialised as in a model that was never trained (Zhang et al., 2021, section 5). Of an
    encoder and a decoder, they are the decoder's.

    Args:
      model: the abstract model that is fine-tuned.
      layers: how many; 0 for none, and for the saved pooler.
      model_type: its family.

    Raises:
      ValueError: there are fewer layers, or they share their parameters.
    """
    if not layers:
        return ()
    if model_type in SHARED:
        raise ValueError(
            f"reinit_layers: the layers of {model_type} share their parameters, so that the last "
            "ones cannot start afresh alone"
        )
    state = nnx.state(model, nnx.Param)
    numbers = layerwise.numbers_of(state)
    of_decoder = {path: of for path, of in numbers.items() if "decoder" in path.split(".")}
    stack = of_decoder or numbers
    count = 1 + max((int(of.max()) for of in stack.values()), default=-1)
    if not 0 < layers <= count:
        where = "decoder" if of_decoder else "model"
        raise ValueError(f"reinit_layers is from 0 to {count}, the layers of the {where}: {layers}")
    within = posixpath.commonpath([path.replace(".", "/") for path in stack]).replace("/", ".")
    pooled = any(path.startswith(_POOLER) for path in by_path(nnx.to_pure_dict(state)))
    top = f"^{re.escape(within)}\\.@{count - layers}-{count - 1}"
    return (top, f"^{re.escape(_POOLER)}") if pooled else (top,)
