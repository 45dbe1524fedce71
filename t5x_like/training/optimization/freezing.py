"""Frozen parameters: patterns that choose them, and trees without them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from t5x_like.core.spelling import alike
from t5x_like.training.optimization.parameter_paths import by_path, path_name


def trainable_mask(params: Any, frozen: Sequence[str]) -> Any:
    """Whether each parameter is trained: a tree of bool.

    Args:
      params: a plain dict of arrays or of shapes.
      frozen: regular expressions; a parameter whose path contains a match is not trained. Paths are
        written as `t5x_like inspect` prints them: `encoder.embedding.tokens.table`. The layers of
        a stack are one parameter.

    Raises:
      ValueError: a pattern matches no path or is no regular expression, or nothing is trained.
    """
    if isinstance(frozen, str):
        raise ValueError(f"frozen parameters are given as a list of patterns, not as {frozen!r}")
    paths = list(by_path(params))
    searches = []
    for pattern in frozen:
        try:
            searches.append(re.compile(pattern).search)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        if not any(map(searches[-1], paths)):
            raise ValueError(
                f"no parameter to freeze has {pattern!r} in its path; {_near(pattern, paths)}"
            )
    if all(any(search(path) for search in searches) for path in paths):
        raise ValueError(f"nothing is left to train: {list(frozen)} match all parameters")
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not any(search(path_name(path)) for search in searches), params
    )


def split(tree: Any, mask: Any) -> tuple[Any, Any]:
    """The leaves where `mask` is true, and the others: two trees, with None for missing leaves."""
    return (
        jax.tree.map(lambda leaf, keep: leaf if keep else None, tree, mask),
        jax.tree.map(lambda leaf, keep: None if keep else leaf, tree, mask),
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
