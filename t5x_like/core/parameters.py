"""Metadata of parameters: the facts that each `nnx.Param` of a model has beside its value.

`axes` names its dimensions; leading ones without a name are stacked layers. Everything else has a
default that follows from them, so that a bare `nnx.Param(value, axes=...)` is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx


def is_decayed(parameter: nnx.Variable) -> bool:
    """Whether weight decay applies: to matrices and tables, not to vectors, unless it says so."""
    return bool(parameter.get_metadata().get("decayed", _is_matrix(parameter)))


def is_multiplied(parameter: nnx.Variable) -> bool:
    """Whether each token is multiplied with all of it: so are matrices, unless it says so."""
    return bool(parameter.get_metadata().get("multiplied", _is_matrix(parameter)))


def is_hidden(parameter: nnx.Variable) -> bool:
    """Whether it is a matrix between states of a model, unless it says so.

    It is then multiplied with each state, and has two axes, of which none is the vocabulary's. The
    last matrix of a head of labels says that it is none (`layers.heads.outputs`).
    """
    axes = parameter.get_metadata().get("axes", ())
    matrix = is_multiplied(parameter) and len(axes) == 2 and "vocab" not in axes
    return bool(parameter.get_metadata().get("hidden", matrix))


def map_variables(fn: Callable[[nnx.Variable], Any], params: nnx.State) -> dict[str, Any]:
    """A plain dict of `fn(variable)` for each parameter of a (possibly abstract) state."""
    values: dict[str, Any] = nnx.to_pure_dict(
        jax.tree.map(lambda variable: variable.replace(fn(variable)), params, is_leaf=is_variable)
    )
    return values


def is_variable(leaf: Any) -> bool:
    """Whether a node of a tree is a parameter, for `is_leaf` of `jax.tree` functions."""
    return isinstance(leaf, nnx.Variable)


def _is_matrix(parameter: nnx.Variable) -> bool:
    return len(parameter.get_metadata().get("axes", ())) > 1
