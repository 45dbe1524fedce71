"""The matrices of a model's layers, by name, and new parameters beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
from flax import nnx

from t5x_like.layers.basics.modules import Linear, next_key

IN_ATTENTION = ("query", "key", "value", "out")
IN_MLP = ("wi", "wi_0", "wi_1", "wo")
NAMES = (*IN_ATTENTION, *IN_MLP)
"""The names of the matrices of a layer. A gated MLP has `wi_0` and `wi_1` in place of `wi`."""


def replace(
    model: nnx.Module, names: Collection[str], adapted: Callable[[str, Linear], Linear]
) -> Any:
    """The model, in whose layers other matrices stand for those of some names.

    Args:
      model: a model, which is changed.
      names: names in `NAMES`.
      adapted: gives the one that stands for a matrix, of its path and the matrix. A path ends with
        the name: `stack.layers.attention.query`.

    Raises:
      ValueError: a name is not in `NAMES`, or no layer has a matrix of these names.
    """
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(
            f"no matrix of a layer is named {unknown[0]!r}: the names are {', '.join(NAMES)}"
        )
    layers = [x for x in nnx.iter_graph(model) if x[0] and _is_of_layers(str(x[0][-1]))]
    found = 0
    for path, layer in layers:
        for name in names:
            matrix = vars(layer).get(name)
            if isinstance(matrix, Linear):
                setattr(layer, name, adapted(".".join(map(str, (*path, name))), matrix))
                found += 1
    if not found:
        raise ValueError(f"a {type(model).__name__} has no {' and no '.join(names)} in its layers")
    return model


def _is_of_layers(name: str) -> bool:
    return name == "mlp" or name.endswith("attention")


def put(model: Any, path: Sequence[Any], node: nnx.Module) -> None:
    """Puts a module where another one is.

    Args:
      model: the model, which is changed.
      path: the path of the other one, as `nnx.iter_graph` has it.
      node: the module.
    """
    *parents, name = path
    parent = functools.reduce(
        lambda x, part: x[part] if isinstance(part, int) else getattr(x, part), parents, model
    )
    setattr(parent, name, node)


def beside(
    matrix: Linear, make: Callable[[nnx.Rngs], Sequence[nnx.Param]], rngs: nnx.Rngs
) -> Sequence[nnx.Param]:
    """New parameters for a matrix: some for each layer, where it holds those of several.

    Args:
      matrix: the matrix, [in, out], or [layers, in, out].
      make: gives the parameters of one layer.
      rngs: the source of random numbers.
    """
    *stacked, _, _ = matrix.kernel.shape

    def of_key(key: jax.Array) -> Sequence[nnx.Param]:
        return make(nnx.Rngs(key))

    for _ in stacked:
        of_key = jax.vmap(of_key)
    return of_key(jax.random.split(next_key(rngs), tuple(stacked)))
