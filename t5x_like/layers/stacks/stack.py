"""A stack of equal layers, run as a loop that is compiled once, or unrolled partly or wholly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from t5x_like.core.devices.memory import SHARED, SUMMED_AT_ONCE, usable_bytes
from t5x_like.core.partitioning import active_layout, gathered
from t5x_like.layers.basics.modules import next_key
from t5x_like.layers.stacks.remat import Policy, fitting_policy, policy

Body = Callable[[Any, jax.Array, Any], tuple[jax.Array, Any]]
Bodies = Body | Sequence[Body]
"""The bodies that layers run: all the same one, or several in turn."""


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
        keys = jax.random.split(next_key(rngs), num_layers)
        self.layers = jax.vmap(lambda key: make_layer(nnx.Rngs(key)))(keys)
        self.num_layers = num_layers
        self.unroll = unroll
        self.remat = remat

    def __call__(self, bodies: Bodies, x: jax.Array, xs: Any = None) -> tuple[jax.Array, Any]:
        """Runs `x, y = body(layer, x, xs[i])` through the layers; returns x and the stacked y.

        Of several bodies, which give y of one shape, layer i runs number i modulo their number.
        """
        return self.run(bodies, x, self.layers, xs)

    def run_part(
        self, part: slice, bodies: Bodies, x: jax.Array, xs: Any = None
    ) -> tuple[jax.Array, Any]:
        """Does what a call does with a part of the layers, of a stack in which each has its own."""
        layers, xs = jax.tree.map(lambda leaf: leaf[part], (self.layers, xs))
        return self.run(bodies, x, layers, xs)

    def run(self, bodies: Bodies, x: jax.Array, layers: Any, xs: Any) -> tuple[jax.Array, Any]:
        """Does what a call does, with any tree [N, ...] as the layers; N may be another number."""
        num_layers = len(jax.tree.leaves((layers, xs))[0])
        in_turn = [bodies] if callable(bodies) else [*bodies][:num_layers]
        in_a_row = self._layers_in_a_row(num_layers)
        unrolled = in_a_row == num_layers
        if self.remat is None:
            chosen_policy = fitting_policy(in_turn, x, num_layers, (layers, xs))
        else:
            chosen_policy = policy(self.remat)
        if chosen_policy is not None:
            # In a loop, XLA cannot merge the second computation with the first.
            again = functools.partial(jax.checkpoint, policy=chosen_policy, prevent_cse=unrolled)
            in_turn = [again(body) for body in in_turn]
        if unrolled:
            return self._unrolled(in_turn, x, (layers, xs))
        if len(in_turn) == 1:
            return jax.lax.scan(
                lambda x, layer_xs: in_turn[0](layer_xs[0], x, layer_xs[1]),
                x,
                (gathered_layers(layers), xs),
                unroll=in_a_row,
            )
        return self._scanned_in_turn(in_turn, x, (layers, xs), unroll=in_a_row)

    def _unrolled(self, in_turn: Sequence[Body], x: jax.Array, stacked: Any) -> tuple:
        """All layers one after another."""
        ys: list[Any] = []
        slices = _unstack(stacked)
        first_layer, first_xs = gathered_layers(slices[0][0]), slices[0][1]
        converted = [jax.closure_convert(body, first_layer, x, first_xs) for body in in_turn]
        bodies = [body for body, _ in converted]
        shared = [[checkpoint_name(array, SHARED) for array in arrays] for _, arrays in converted]
        at_once = _summed_at_once([array for arrays in shared for array in arrays], rows=len(x))
        for n, (layer, layer_xs) in enumerate(slices):
            turn = n % len(bodies)
            if at_once is not None and n % at_once == 0:
                shared = [[_summed(array) for array in arrays] for arrays in shared]
            x, y = bodies[turn](gathered_layers(layer), x, layer_xs, *shared[turn])
            ys.append(y)
        return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys)

    def _scanned_in_turn(
        self, in_turn: Sequence[Body], x: jax.Array, stacked: Any, *, unroll: int
    ) -> tuple:
        """A loop over groups of one layer for each body; the last group may have fewer."""
        count, num_layers = len(in_turn), len(jax.tree.leaves(stacked)[0])
        groups = num_layers // count

        def group(x: jax.Array, stacked: Any) -> tuple:
            layers, xs = stacked
            layers = gathered_layers(layers)
            ys: list[Any] = []
            here = range(len(jax.tree.leaves(stacked)[0]))
            for n, body in zip(here, in_turn, strict=False):
                layer, layer_xs = jax.tree.map(lambda leaf, n=n: leaf[n], (layers, xs))
                x, y = body(layer, x, layer_xs)
                ys.append(y)
            return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys)

        whole = jax.tree.map(
            lambda leaf: leaf[: groups * count].reshape(groups, count, *leaf.shape[1:]), stacked
        )
        scanned: tuple = jax.lax.scan(group, x, whole, unroll=max(1, unroll // count))
        x, ys = scanned
        first = jax.tree.map(lambda leaf: leaf.reshape(groups * count, *leaf.shape[2:]), ys)
        if groups * count == num_layers:
            return x, first
        x, last = group(x, jax.tree.map(lambda leaf: leaf[groups * count :], stacked))
        return x, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), first, last)

    def _layers_in_a_row(self, num_layers: int) -> int:
        unroll = self.unroll
        if unroll is None:
            layout = active_layout()
            unroll = 1 if layout is None or layout.platform == "cpu" else 0
        return min(unroll or num_layers, num_layers)

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
    size = sum(array.size * array.dtype.itemsize for array in shared if rows not in array.shape[:1])
    return max(1, int(SUMMED_AT_ONCE * limit / size)) if limit and size else None


@jax.custom_vjp
def _summed(x: jax.Array) -> jax.Array:
    """The same array, whose gradient is summed before that of earlier layers is added."""
    return x


_summed.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.optimization_barrier(g),))


def _unstack(stacked: Any) -> list[Any]:
    """The n slices [i] as trees; the gradient is one concatenation, not n padded additions."""
    leaves, structure = jax.tree.flatten(stacked)
    slices = [jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, parts) for parts in zip(*slices, strict=True)]
