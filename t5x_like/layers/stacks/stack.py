"""A stack of equal layers, run as a loop that is compiled once, or unrolled partly or wholly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from t5x_like.core.devices.memory import SHARED, SUMMED_AT_ONCE, usable_bytes
from t5x_like.core.partitioning import active_layout, gathered
from t5x_like.layers.stacks.remat import Policy, fitting_policy, policy

Body = Callable[[Any, jax.Array, Any], tuple[jax.Array, Any]]


class Stack(nnx.Module):
    """N layers whose parameters are always stored stacked, [N, ...].

    `unroll` layers are compiled one after another: 1 scans (fast to compile), 0 or N unrolls all
    (compiles longer; results of layers are not copied into stacks). None unrolls all on TPUs
    and GPUs, where these copies take up to a quarter of a step, and scans on CPUs. `remat` says
    which results of a layer are stored for the backward pass (`remat.policy`); None chooses by the
    memory of the devices (`remat.fitting_policy`).
    """

    def __init__(
        self,
        make_layer: Callable[[nnx.Rngs], nnx.Module],
        num_layers: int,
        *,
        rngs: nnx.Rngs,
        unroll: int | None = None,
        remat: str | Policy | None = None,
    ) -> None:
        if num_layers < 1 or (unroll is not None and unroll < 0):
            raise ValueError(
                f"a stack needs num_layers >= 1 and unroll >= 0, got {num_layers} and {unroll}"
            )
        keys = jax.random.split(rngs.params(), num_layers)
        self.layers = jax.vmap(lambda key: make_layer(nnx.Rngs(key)))(keys)
        self.num_layers = num_layers
        self.unroll = unroll
        self.remat = remat

    def __call__(self, body: Body, x: jax.Array, xs: Any = None) -> tuple[jax.Array, Any]:
        """Runs `x, y = body(layer, x, xs[i])` through the layers; returns x and the stacked y."""
        return self.run(body, x, self.layers, xs)

    def run(self, body: Body, x: jax.Array, layers: Any, xs: Any) -> tuple[jax.Array, Any]:
        """Does what a call does, with any tree [N, ...] as the layers."""
        unroll = self._layers_in_a_row()
        unrolled = unroll == self.num_layers
        if self.remat is None:
            kept = fitting_policy(body, x, self.num_layers, (layers, xs))
        else:
            kept = policy(self.remat)
        if kept is not None:
            # In a loop, XLA cannot merge the second computation with the first.
            body = jax.checkpoint(body, policy=kept, prevent_cse=unrolled)
        if not unrolled:
            return jax.lax.scan(
                lambda x, layer_xs: body(layer_xs[0], x, layer_xs[1]),
                x,
                (gathered_layers(layers), xs),
                unroll=unroll,
            )
        ys, slices = [], _unstack((layers, xs), self.num_layers)
        body, shared = jax.closure_convert(body, gathered_layers(slices[0][0]), x, slices[0][1])
        shared = [checkpoint_name(one, SHARED) for one in shared]
        at_once = _summed_at_once(shared, rows=len(x))
        for n, (layer, layer_xs) in enumerate(slices):
            if at_once is not None and n % at_once == 0:
                shared = [_summed(one) for one in shared]
            x, y = body(gathered_layers(layer), x, layer_xs, *shared)
            ys.append(y)
        return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys)

    def _layers_in_a_row(self) -> int:
        unroll = self.unroll
        if unroll is None:
            layout = active_layout()
            unroll = 1 if layout is None or layout.platform == "cpu" else 0
        return min(unroll or self.num_layers, self.num_layers)

    def keys(self, key: jax.Array | None) -> jax.Array | None:
        """One key for each layer, [N], as `xs` of a call; None for None."""
        return None if key is None else jax.random.split(key, self.num_layers)


def gathered_layers(layers: Any) -> Any:
    """Layers, or stacked layers, whose parameters are gathered (`partitioning.gathered`)."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, nnx.Param):
            return leaf
        return leaf.replace(gathered(leaf[...], leaf.get_metadata()["axes"]))

    is_parameter = lambda leaf: isinstance(leaf, nnx.Param)  # noqa: E731
    return jax.tree.map(one, layers, is_leaf=is_parameter)


def _summed_at_once(shared: Sequence[jax.Array], *, rows: int) -> int | None:
    """The number of layers whose gradients of these arrays fit; None for all."""
    layout = active_layout()
    limit = None if layout is None else usable_bytes(layout.mesh)
    size = sum(one.size * one.dtype.itemsize for one in shared if rows not in one.shape[:1])
    return max(1, int(SUMMED_AT_ONCE * limit / size)) if limit and size else None


@jax.custom_vjp
def _summed(x: jax.Array) -> jax.Array:
    """The same array, whose gradient is summed before that of earlier layers is added."""
    return x


_summed.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.optimization_barrier(g),))


def _unstack(stacked: Any, n: int) -> list[Any]:
    """The n slices [i] as trees; the gradient is one concatenation, not n padded additions."""
    leaves, structure = jax.tree.flatten(stacked)
    slices = [jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, [s[i] for s in slices]) for i in range(n)]
