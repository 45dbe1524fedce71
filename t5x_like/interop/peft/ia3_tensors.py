"""(IA)3 in PEFT's files: a vector for each module, [O, 1] for outputs and [1, I] for inputs.

Suffixes: I in, O out.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.interop.peft.placement import Placement
from t5x_like.layers.adapters import ia3
from t5x_like.layers.adapters.ia3 import Scaled

VECTOR = ".ia3_l"
"""The end of the names of tensors."""
Params = Mapping[str, np.ndarray]


def written(
    placement: Placement, nodes: Mapping[str, Scaled], params: Mapping[str, Params]
) -> Iterator[tuple[str, np.ndarray]]:
    """(module, its vector) for each layer of a placement; arguments as in `lora_tensors.written`.

    Matrices side by side have one vector, with ones for those that are not scaled.
    """
    adapted = [path for path in placement.paths if path in nodes]
    if not adapted:
        return
    stacked = placement.rule.stacked
    of_inputs = nodes[adapted[0]].of_inputs
    for layer in range(len(params[adapted[0]]["kernel"]) if stacked else 1):
        parts = []
        for path in placement.paths:
            if path in nodes:
                scale = params[path]["ia3_scale"]
                parts.append(np.asarray(scale[layer] if stacked else scale, np.float32))
            else:
                parts.append(np.ones(params[path]["kernel"].shape[-1], np.float32))
        vector = np.concatenate(parts)
        yield placement.module(layer), vector[None] if of_inputs else vector[:, None]


def read(
    placements: Sequence[Placement],
    vectors: Mapping[str, np.ndarray],
    kernels: Mapping[str, Any],
    *,
    feedforward: Collection[str],
) -> tuple[functools.partial, dict[str, np.ndarray]]:
    """The `ia3.adapt` and the {path: parameter} of vectors; other arguments as `lora_tensors.read`.

    Args:
      vectors: {module: its vector}.
      feedforward: the modules whose inputs are scaled.

    Raises:
      ValueError: not all layers have vectors, a vector is longer or shorter than its matrix, or
        the inputs of a module are scaled whose outputs are here, or the reverse.
    """
    params: dict[str, np.ndarray] = {}
    for placement in placements:
        layers = kernels[placement.paths[0]].shape[0] if placement.rule.stacked else 1
        modules = [placement.module(layer) for layer in range(layers)]
        given = [module for module in modules if module in vectors]
        if not given:
            continue
        of_inputs = given[0] in feedforward
        for path in placement.paths:
            if ia3.scales_inputs(path) != of_inputs or len(given) < layers:
                raise ValueError(
                    f"(IA)3 of {given[0]} is not read: here all layers have it, on the outputs of "
                    "matrices in attention and of the first of an MLP, and on the inputs of its "
                    "second"
                )
        stack = np.stack([vectors[module].reshape(-1) for module in modules]).astype(np.float32)
        ends = np.cumsum([kernels[path].shape[-2 if of_inputs else -1] for path in placement.paths])
        if stack.shape[1] != ends[-1]:
            raise ValueError(
                f"{given[0]} has {ends[-1]} units in this base, and its vector {stack.shape[1]}: "
                "name another base"
            )
        for path, part in zip(
            placement.paths, [stack] if of_inputs else np.split(stack, ends[:-1], axis=1),
            strict=True,
        ):  # fmt: skip
            params[f"{path}/ia3_scale"] = part if placement.rule.stacked else part[0]
    places = dict.fromkeys(path.split("/")[-2] for path in params)
    return functools.partial(ia3.adapt, places=tuple(places)), params
