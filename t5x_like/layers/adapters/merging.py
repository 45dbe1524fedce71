"""A model's parameters without adapters, which gives the same answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx

from t5x_like.layers.adapters import teacher_projection
from t5x_like.layers.adapters.bottleneck import Followed
from t5x_like.layers.adapters.ia3 import Scaled
from t5x_like.layers.adapters.lora import LowRank
from t5x_like.layers.adapters.prefix import Prefixed
from t5x_like.layers.adapters.prompt import PromptedEmbedding
from t5x_like.layers.adapters.source_encoder import SourceEncoder

Params = dict[str, Any]
_BESIDE = (Followed, Prefixed, PromptedEmbedding, SourceEncoder)
"""The modules that are more than other matrices would be."""
_ADAPTED = (LowRank, Scaled, *_BESIDE)


def has_adapters(model: nnx.Module) -> bool:
    """Whether a matrix of a model is adapted."""
    return vars(model).get(teacher_projection.NAME) is not None or any(
        isinstance(node, _ADAPTED) for _, node in nnx.iter_graph(model)
    )


def merged(model: nnx.Module, params: Mapping[str, Any]) -> Params:
    """The parameters of the model before it was adapted, with what the adapters change.

    Args:
      model: the (possibly abstract) adapted model.
      params: its parameters, as a nested dict of arrays.

    Raises:
      ValueError: an adapter is more than another matrix would be.
    """
    plain = _copied(params)
    plain.pop(teacher_projection.NAME, None)
    for path, node in nnx.iter_graph(model):
        if isinstance(node, _BESIDE):
            raise ValueError(
                "adapters after a sublayer, prefixes, prompts and second encoders are not a part "
                "of the model that they were given to, and cannot be merged into it: ask the run "
                "itself, or fine-tune with another method, such as lora"
            )
        if not isinstance(node, LowRank | Scaled):
            continue
        *parents, name = map(str, path)
        place = plain
        for parent in parents:
            place = place[parent]
        read = {part: np.asarray(value) for part, value in place[name].items()}
        place[name] = node.merged(read)
    return plain


def _copied(params: Mapping[str, Any]) -> Params:
    return {
        name: _copied(part) if isinstance(part, Mapping) else part for name, part in params.items()
    }
