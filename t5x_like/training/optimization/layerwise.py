"""Stacked layers: an optimizer for each layer, and learning rates that fall with depth."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from t5x_like.core.parameters import map_variables
from t5x_like.core.partitioning import map_parameters
from t5x_like.training.optimization.parameter_paths import by_path, path_name

_PARTS = "parts-below"
"""The mark of stacked parameters that are no layers."""


def layerwise(
    tx: optax.GradientTransformation, stacked: Any, groups: Any = None
) -> optax.GradientTransformation:
    """Runs `tx` on each layer of a stacked parameter separately.

    Adafactor's factors, RMS and scales, and LAMB's trust ratios, belong to one tensor; on
    parameters stacked for scanning they would mix all layers.

    Args:
      tx: the transformation to run.
      stacked: how many leading dimensions of each parameter are stacked layers; a tree of int.
      groups: the name of the group of each parameter, same tree: a state of its own, for layers of
        equal sizes; by default all of equal sizes are one.
    """

    def over(depth: int) -> optax.GradientTransformation:
        init, update = tx.init, tx.update
        for _ in range(depth):
            init, update = jax.vmap(init), jax.vmap(update)
        return optax.GradientTransformation(init, update)

    def of(params: Any) -> optax.GradientTransformation:
        # Stacks of equal sizes go together: an encoder may have more layers than a decoder.
        names = sizes(params, stacked) if groups is None else groups
        depths = dict(zip(jax.tree.leaves(names), jax.tree.leaves(stacked), strict=True))
        return optax.partition({name: over(depths[name]) for name in sorted(depths)}, names)

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return of(grads).update(grads, state, params)

    return optax.GradientTransformation(lambda params: of(params).init(params), update)


def sizes(params: Any, stacked: Any) -> Any:
    """A name for the sizes of each parameter's stacked dimensions, such as `stackedx12`."""
    return jax.tree.map(
        lambda leaf, depth: "x".join(["stacked", *map(str, leaf.shape[:depth])]), params, stacked
    )


def depths(params: nnx.State) -> Any:
    """The depth mark of each parameter, a plain dict.

    It is "below", "below <stack>", "parts-below", "above", "at <layer> <layers>", or "" without a
    mark.
    """
    return map_variables(lambda variable: variable.get_metadata().get("depth", ""), params)


def layer_scales(params: Any, stacked: Any, depths: Any, *, decay: float) -> Any:
    """Factors of the learning rate of each parameter, smaller towards the input.

    They are those of ELECTRA's fine-tuning (Clark et al., 2020, appendix B). Layer i = 0, ...,
    n - 1 of n has `decay` ** (n - i), so the last one has `decay`. A parameter that is marked as
    below the layers has `decay` ** (n + 1). One that is marked as above them, in heads and final
    norms, has 1. (ELECTRA's released code has one more factor of `decay` except in the heads.)

    Layers are the leading dimensions of stacked parameters, and n is the product of their sizes; or
    the mark of a parameter has its layer and n. Encoder and decoder each count from their own top.
    A layer that is stored once for all (ALBERT) is the last one. Parameters below the layers take n
    from the stack that their mark names, or else from the deepest of those that share most of their
    path: the embeddings of an encoder-decoder take it from the deeper of the two.

    Args:
      params: the shapes of the parameters, a plain dict.
      stacked: how many leading dimensions of each are stacked layers, same tree.
      depths: the marks, as `depths` gives them, same tree.
      decay: the factor from layer to layer, above 0 and at most 1.

    Returns:
      Same tree: float32, with the parameter's stacked dimensions and ones.

    Raises:
      ValueError: `decay` is out of range, no parameter is in a layer, or one that is not stacked
        has no mark of its depth, or that of a stack that is not there, or more layers are stacked
        than the mark has.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"the layerwise decay must be above 0 and at most 1, not {decay}")
    places = by_path(depths)
    layers = _layers_by_path(params, stacked, places)
    if not layers:
        raise ValueError(
            "LAYER_DECAY needs a model with layers: stacked ones, or ones that "
            "`layers.basics.depth.at` marks"
        )
    stacks = {name: stack.count for name, stack in layers.items()}

    def one(path: tuple, leaf: Any) -> np.ndarray:
        name = path_name(path)
        if place_in_stack := layers.get(name):
            ones = [1] * (len(leaf.shape) - place_in_stack.numbers.ndim)
            powers = place_in_stack.count - place_in_stack.numbers.reshape(
                *place_in_stack.numbers.shape, *ones
            )
            return np.asarray(decay**powers, np.float32)
        place, _, stack = places[name].partition(" ")
        if place not in ("below", "above", _PARTS):
            raise ValueError(
                f"LAYER_DECAY: parameter {name} does not say whether it comes before the layers or "
                "after them: make it with `below(...)` or `above(...)` of `layers.basics.depth`, "
                "or with `at(...)` in a layer that is not stacked"
            )
        if place == "above":
            return np.ones((), np.float32)
        return np.asarray(decay ** (_layers_above(name, stacks, stack) + 1), np.float32)

    return jax.tree_util.tree_map_with_path(one, params)


def layer_numbers(params: Any, stacked: Any, depths: Any) -> dict[str, np.ndarray]:
    """The numbers of the layers, [*stacked], of each parameter that is in one, by its path.

    Arguments and errors are those of `layer_scales`.
    """
    layers = _layers_by_path(params, stacked, by_path(depths))
    return {path: place.numbers for path, place in layers.items()}


def numbers_of(params: nnx.State) -> dict[str, np.ndarray]:
    """`layer_numbers` of the parameters of a model, which know their axes and their depths."""
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), params)
    return layer_numbers(nnx.to_pure_dict(params), stacked, depths(params))


@dataclasses.dataclass(frozen=True)
class _Layers:
    """The numbers of the layers that a parameter is of, [*stacked], among `count` layers."""

    numbers: np.ndarray
    count: int

    @classmethod
    def of(cls, name: str, stacked: tuple[int, ...], mark: str) -> _Layers:
        size = math.prod(stacked)
        first, count = map(int, mark.split()[1:]) if mark.startswith("at ") else (0, size)
        if first + size > count:
            raise ValueError(
                f"parameter {name} has {size} stacked layers from layer {first} on, "
                f"but its mark says that there are {count} (`layers.basics.depth.at`)"
            )
        return cls(first + np.arange(size).reshape(stacked), count)


def _layers_by_path(params: Any, stacked: Any, places: Mapping[str, str]) -> dict[str, _Layers]:
    numbers = zip(by_path(params).items(), jax.tree.leaves(stacked), strict=True)
    return {
        name: _Layers.of(name, leaf.shape[:depth], places[name])
        for (name, leaf), depth in numbers
        if (depth and places[name] != _PARTS) or places[name].startswith("at ")
    }


def scale_updates(tx: optax.GradientTransformation, scales: Any) -> optax.GradientTransformation:
    """`tx` with its updates times `scales`; weight decay is part of the updates."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = tx.update(grads, state, params)
        return jax.tree.map(lambda u, s: u * s, updates, scales), state

    return optax.GradientTransformation(tx.init, update)


def _layers_above(name: str, stacks: Mapping[str, int], own: str) -> int:
    """The layers of the stack that reads a parameter below it; `own` is its name, "" if unsaid."""
    read_by = [stack for stack in stacks if not own or own in stack.split(".")]
    if not read_by:
        raise ValueError(
            f"LAYER_DECAY: parameter {name} is marked as one of the stack {own!r}, but the stacks "
            f"are {', '.join(stacks)}"
        )
    shared = {stack: _shared_parts(name, stack) for stack in read_by}
    return max(stacks[stack] for stack in read_by if shared[stack] == max(shared.values()))


def _shared_parts(path: str, other: str) -> int:
    """How many parts two paths have in common at their start."""
    pairs = zip(path.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
