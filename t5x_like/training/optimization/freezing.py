"""Frozen parameters: patterns that choose them, or layers of them, and trees without them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.spelling import alike
from t5x_like.training.optimization.layer_patterns import LayerPattern
from t5x_like.training.optimization.parameter_paths import by_path, path_name


def trainable_mask(
    params: Any, frozen: Sequence[str], layers: Mapping[str, np.ndarray] | None = None
) -> Any:
    """Whether each parameter is trained: a tree of bool arrays.

    An array is [*stacked], its stacked dimensions, where only some layers of a parameter are
    frozen, and [] elsewhere.

    Args:
      params: a plain dict of arrays or of shapes.
      frozen: regular expressions; a parameter whose path contains a match is not trained. Paths are
        written as `t5x_like inspect` prints them: `encoder.embedding.tokens.table`. The layers of
        a stack are one parameter: `PATTERN@2` or `PATTERN@0-2` freezes these layers of the
        parameters that match, counted from 0 at the input.
      layers: the numbers of the layers of each parameter that is in one, by its path: [*stacked].

    Raises:
      ValueError: a pattern matches no path or is not a regular expression, there is no such layer,
        or nothing is trained.
    """
    if isinstance(frozen, str):
        raise ValueError(f"frozen parameters are given as a list of patterns, not as {frozen!r}")
    trained = dict.fromkeys(by_path(params), np.array(True))
    for pattern in frozen:
        for path, at in _frozen_by(pattern, trained, layers or {}).items():
            trained[path] = trained[path] & ~at
    if not any(mask.any() for mask in trained.values()):
        raise ValueError(f"nothing is left to train: {list(frozen)} match all parameters")
    return jax.tree_util.tree_map_with_path(
        lambda path, _: _without_layers(trained[path_name(path)]), params
    )


def _frozen_by(
    pattern: str, paths: Iterable[str], layers: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The parameters that a pattern freezes: {path: bool, for each layer or for the whole}."""
    chosen = LayerPattern.read(pattern)
    expression = chosen.expression
    try:
        search = re.compile(expression).search
    except re.error as error:
        raise ValueError(f"{expression!r} is not a regular expression: {error}") from error
    paths = list(paths)
    matching = [path for path in paths if search(path)]
    if not matching:
        raise ValueError(
            f"no parameter to freeze has {expression!r} in its path; {_near(expression, paths)}"
        )
    if chosen.layers is None:
        return dict.fromkeys(matching, np.array(True))
    numbers_of = {path: layers[path] for path in matching if path in layers}
    if problem := chosen.problem([*numbers_of.values()]):
        first, last = chosen.layers
        raise ValueError(
            f"{pattern!r} freezes layers {first} to {last} of {', '.join(matching[:3])}, but "
            f"{problem}"
        )
    return {path: chosen.chosen(numbers) for path, numbers in numbers_of.items()}


def _without_layers(mask: np.ndarray) -> np.ndarray:
    """The mask; one number where it is the same for all layers."""
    return np.array(mask.any()) if mask.all() == mask.any() else mask


def chosen_layers(trained: Any, frozen: Any, mask: Any) -> Any:
    """Leaves of two equal trees: those of `trained`, but in frozen layers those of `frozen`."""

    def one(new: jax.Array, old: jax.Array, at: np.ndarray) -> jax.Array:
        if at.ndim == 0:
            return new
        return jnp.where(at.reshape(*at.shape, *[1] * (new.ndim - at.ndim)), new, old)

    return jax.tree.map(one, trained, frozen, mask)


def split(tree: Any, mask: Any) -> tuple[Any, Any]:
    """The leaves where `mask` is true, and the others: two trees, with None for missing leaves.

    A leaf of which some layers are trained belongs to the first.
    """
    return (
        jax.tree.map(lambda leaf, keep: leaf if np.any(keep) else None, tree, mask),
        jax.tree.map(lambda leaf, keep: None if np.any(keep) else leaf, tree, mask),
    )


def merge(some: Any, others: Any) -> Any:
    """The inverse of `split`."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, some, others, is_leaf=lambda leaf: leaf is None
    )


def _near(pattern: str, paths: Iterable[str]) -> str:
    """A hint with parameters and modules that are similar to the pattern."""
    parts = [path.split(".") for path in paths]
    modules = {
        ".".join(names[start:stop])
        for names in parts
        for start, stop in itertools.combinations(range(len(names) + 1), 2)
    }
    if near := alike(pattern, sorted(modules)):
        return "nearest: " + ", ".join(near)
    return "it has " + ", ".join(sorted({names[0] for names in parts}))
