"""Layers that are stored stacked: an optimizer for each by itself, rates that fall with depth."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from t5x_like.training.optimization.parameter_paths import by_path, path_name


def layerwise(tx: optax.GradientTransformation, stacked: Any) -> optax.GradientTransformation:
    """Runs `tx` on each layer of a stacked parameter by itself.

    Adafactor's factors, RMS and scales, and LAMB's trust ratios, belong to one tensor; on
    parameters stacked for scanning they would mix all layers.

    Args:
      tx: what to run.
      stacked: how many leading dimensions of each parameter are stacked layers; a tree of int.
    """

    def over(depth: int) -> optax.GradientTransformation:
        init, update = tx.init, tx.update
        for _ in range(depth):
            init, update = jax.vmap(init), jax.vmap(update)
        return optax.GradientTransformation(init, update)

    def of(params: Any) -> optax.GradientTransformation:
        # Stacks as deep as each other go together: an encoder may have more layers than a decoder.
        sizes = jax.tree.map(lambda leaf, depth: _sizes(leaf.shape[:depth]), params, stacked)
        depths = dict(zip(jax.tree.leaves(sizes), jax.tree.leaves(stacked), strict=True))
        return optax.partition({name: over(depths[name]) for name in sorted(depths)}, sizes)

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return of(grads).update(grads, state, params)

    return optax.GradientTransformation(lambda params: of(params).init(params), update)


def _sizes(layers: tuple[int, ...]) -> str:
    return "x".join(["stacked", *map(str, layers)])


def depths(params: nnx.State) -> Any:
    """What parameters say of their depth, "below", "above" or nothing: same tree, a plain dict."""
    return nnx.to_pure_dict(
        jax.tree.map(
            lambda variable: variable.replace(variable.get_metadata().get("depth", "")),
            params,
            is_leaf=lambda one: isinstance(one, nnx.Variable),
        )
    )


def layer_scales(params: Any, stacked: Any, depths: Any, *, decay: float) -> Any:
    """What multiplies the learning rate of each parameter: less, the nearer to the input it is.

    As ELECTRA fine-tunes (Clark et al., 2020, appendix B): layer i = 0, ..., n - 1 of n has
    `decay` ** (n - i), the last one thus `decay`; what is marked as below the layers
    `decay` ** (n + 1); what is marked as above them, heads and final norms, 1. (Its released code
    has one more factor of `decay` everywhere but in the heads.)

    Layers are the leading dimensions of stacked parameters, and n is what their sizes multiply to:
    encoder and decoder count from a top of their own each, and a layer that is stored once for all
    (ALBERT) is the last one. What comes before counts the deepest of the stacks that share most of
    its path: the embeddings of an encoder-decoder, the deeper of the two.

    Args:
      params: shapes of the parameters, a plain dict.
      stacked: how many leading dimensions of each are stacked layers, same tree.
      depths: "below" or "above" of those that are not stacked, same tree.
      decay: above 0, at most 1.

    Returns:
      Same tree: float32, of the parameter's stacked dimensions and ones.

    Raises:
      ValueError: `decay` is out of range, no parameter is stacked, or one that is not says nothing
        of its depth.
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
        if places[name] not in ("below", "above"):
            raise ValueError(
                f"LAYER_DECAY: parameter {name} does not say whether it comes before the layers or "
                "after them: make it with `layers.depth.below(...)` or `above(...)`"
            )
        if places[name] == "above":
            return np.ones((), np.float32)
        shared = {stack: _shared(name, stack) for stack in stacks}
        nearest = [n for stack, n in stacks.items() if shared[stack] == max(shared.values())]
        return np.asarray(decay ** (max(nearest) + 1), np.float32)

    return jax.tree_util.tree_map_with_path(one, params, stacked)


def scale_updates(tx: optax.GradientTransformation, scales: Any) -> optax.GradientTransformation:
    """`tx`, its updates times `scales`: weight decay, which is part of them, too."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = tx.update(grads, state, params)
        return jax.tree.map(lambda u, s: u * s, updates, scales), state

    return optax.GradientTransformation(tx.init, update)


def _shared(one: str, other: str) -> int:
    """How many parts two paths have in common at their start."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
