"""Stacked layers: an optimizer for each layer, and learning rates that fall with depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from t5x_like.training.optimization.parameter_paths import by_path, path_name


def layerwise(tx: optax.GradientTransformation, stacked: Any) -> optax.GradientTransformation:
    """Runs `tx` on each layer of a stacked parameter separately.

    Adafactor's factors, RMS and scales, and LAMB's trust ratios, belong to one tensor; on
    parameters stacked for scanning they would mix all layers.

    Args:
      tx: the transformation to run.
      stacked: how many leading dimensions of each parameter are stacked layers; a tree of int.
    """

    def over(depth: int) -> optax.GradientTransformation:
        init, update = tx.init, tx.update
        for _ in range(depth):
            init, update = jax.vmap(init), jax.vmap(update)
        return optax.GradientTransformation(init, update)

    def of(params: Any) -> optax.GradientTransformation:
        # Stacks of equal sizes go together: an encoder may have more layers than a decoder.
        sizes = jax.tree.map(lambda leaf, depth: _sizes(leaf.shape[:depth]), params, stacked)
        depths = dict(zip(jax.tree.leaves(sizes), jax.tree.leaves(stacked), strict=True))
        return optax.partition({name: over(depths[name]) for name in sorted(depths)}, sizes)

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return of(grads).update(grads, state, params)

    return optax.GradientTransformation(lambda params: of(params).init(params), update)


def _sizes(layers: tuple[int, ...]) -> str:
    return "x".join(["stacked", *map(str, layers)])


def depths(params: nnx.State) -> Any:
    """The depth mark of each parameter, a plain dict: "below", "below <stack>", "above" or ""."""
    return nnx.to_pure_dict(
        jax.tree.map(
            lambda variable: variable.replace(variable.get_metadata().get("depth", "")),
            params,
            is_leaf=lambda one: isinstance(one, nnx.Variable),
        )
    )


def layer_scales(params: Any, stacked: Any, depths: Any, *, decay: float) -> Any:
    """Factors of the learning rate of each parameter, smaller towards the input.

    They are those of ELECTRA's fine-tuning (Clark et al., 2020, appendix B). Layer i = 0, ...,
    n - 1 of n has `decay` ** (n - i), so the last one has `decay`. A parameter that is marked as
    below the layers has `decay` ** (n + 1). One that is marked as above them, in heads and final
    norms, has 1. (ELECTRA's released code has one more factor of `decay` except in the heads.)

    Layers are the leading dimensions of stacked parameters, and n is the product of their sizes.
    Encoder and decoder each count from their own top. A layer that is stored once for all (ALBERT)
    is the last one. Parameters below the layers take n from the stack that their mark names, or
    else from the deepest of those that share most of their path: the embeddings of an
    encoder-decoder take it from the deeper of the two.

    Args:
      params: the shapes of the parameters, a plain dict.
      stacked: how many leading dimensions of each are stacked layers, same tree.
      depths: the marks of those that are not stacked, as `depths` gives them, same tree.
      decay: the factor from layer to layer, above 0 and at most 1.

    Returns:
      Same tree: float32, with the parameter's stacked dimensions and ones.

    Raises:
      ValueError: `decay` is out of range, no parameter is stacked, or a parameter that is not
        stacked has no mark of its depth, or that of a stack that is not there.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"the layerwise decay must be above 0 and at most 1, not {decay}")
    leaves, numbers = by_path(params), jax.tree.leaves(stacked)
    stacks = {
        name: math.prod(leaf.shape[:depth])
        for (name, leaf), depth in zip(leaves.items(), numbers, strict=True)
        if depth
    }
    if not stacks:
        raise ValueError("layerwise decay needs a model with stacked layers")

    places = by_path(depths)

    def one(path: tuple, leaf: Any, depth: int) -> np.ndarray:
        name = path_name(path)
        if depth:
            below = np.arange(stacks[name]).reshape(
                *leaf.shape[:depth], *[1] * (len(leaf.shape) - depth)
            )
            return np.asarray(decay ** (stacks[name] - below), np.float32)
        place, _, own = places[name].partition(" ")
        if place not in ("below", "above"):
            raise ValueError(
                f"LAYER_DECAY: parameter {name} does not say whether it comes before the layers or "
                "after them: make it with `layers.depth.below(...)` or `above(...)`"
            )
        if place == "above":
            return np.ones((), np.float32)
        return np.asarray(decay ** (_layers_above(name, stacks, own) + 1), np.float32)

    return jax.tree_util.tree_map_with_path(one, params, stacked)


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
    return max(stacks[one] for one in read_by if shared[one] == max(shared.values()))


def _shared_parts(one: str, other: str) -> int:
    """How many parts two paths have in common at their start."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
