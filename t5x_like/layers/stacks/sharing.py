"""A stack whose layers share parameters: all, or those of one part (ALBERT, section 3.1).

Suffixes: N layers as they run, C copies of what is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks.encoder import EncoderStack
from t5x_like.layers.stacks.remat import Policy
from t5x_like.layers.stacks.stack import Bodies, Body, gathered_layers

Sharing = Literal["all", "attention", "ffn", "none"]
SHARING: tuple[str, ...] = get_args(Sharing)
MOST_LAYERS = 10_000
"""Far above any that was trained; sizes may come from files of strangers."""
_ATTENTION, _FFN = ("attention", "attention_norm"), ("mlp", "mlp_norm")
_ONE_PART = {"attention": _ATTENTION, "ffn": _FFN}


def copies_in_groups(num_layers: int, *, num_groups: int, inner_layers: int) -> tuple[int, ...]:
    """The index of the copy that each layer uses, in running order.

    `num_layers` falls into `num_groups` equal parts. Each has a group of `inner_layers` copies that
    run one after another: N is num_layers * inner_layers.

    Raises:
      ValueError: there are more than `MOST_LAYERS`.
    """
    if num_layers * inner_layers > MOST_LAYERS:
        raise ValueError(
            f"a stack has at most {MOST_LAYERS:,} layers, not num_layers={num_layers} times "
            f"inner_layers={inner_layers}"
        )
    groups = [i * num_groups // num_layers for i in range(num_layers)]
    return tuple(group * inner_layers + j for group in groups for j in range(inner_layers))


class SharedStack(EncoderStack):
    """Encoder layers that store shared parameters once.

    What is shared is stored [C, ...], the rest [N, ...]. Norms belong to the part that they norm.
    """

    def __init__(
        self,
        make_layer: Callable[[nnx.Rngs], nnx.Module],
        copies: Sequence[int],
        *,
        sharing: Sharing,
        rngs: nnx.Rngs,
        unroll: int | None = None,
        remat: str | Policy | None = None,
    ) -> None:
        num_copies = max(copies) + 1
        stored = num_copies if sharing == "all" else len(copies)
        super().__init__(make_layer, stored, rngs=rngs, unroll=unroll, remat=remat)
        for name in _ONE_PART.get(sharing, ()):
            part = getattr(self.layers, name)
            setattr(self.layers, name, jax.tree.map(lambda leaf: leaf[:num_copies], part))
        self.num_layers = len(copies)
        self.copies = tuple(copies)

    def __call__(self, bodies: Bodies, x: jax.Array, xs: Any = None) -> tuple[jax.Array, Any]:
        # What is shared stays outside the loop: it is not copied for each layer, and its
        # gradients add up in one place.
        leaves, structure = jax.tree.flatten(gathered_layers(self.layers))
        unshared = [leaf if len(leaf) == self.num_layers else None for leaf in leaves]
        # In float32: the gradients of all layers add up in this dtype.
        leaves = [leaf.astype(jnp.float32) for leaf in leaves]

        def of_copy(body: Body) -> Body:
            def run(own_leaves: list, x: jax.Array, copy_xs: tuple) -> tuple[jax.Array, Any]:
                copy, xs = copy_xs
                layer = [
                    _copy(leaf, copy) if own_leaf is None else own_leaf
                    for leaf, own_leaf in zip(leaves, own_leaves, strict=True)
                ]
                return body(jax.tree.unflatten(structure, layer), x, xs)

            return run

        in_turn = [bodies] if callable(bodies) else bodies
        return self.run([*map(of_copy, in_turn)], x, unshared, (jnp.array(self.copies), xs))

    def matrix_size(self) -> float:
        """The number of elements in the kernels of all layers as they run."""
        layer = jax.eval_shape(lambda x: jax.tree.map(lambda leaf: leaf[0], x), self.layers)
        return self.num_layers * accounting.matrix_size(layer)


def _copy(leaf: jax.Array, copy: jax.Array) -> jax.Array:
    if len(leaf) == 1:
        return leaf[0]
    return jax.lax.dynamic_index_in_dim(leaf, copy, keepdims=False)
