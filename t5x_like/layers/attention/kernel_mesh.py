"""How our Pallas kernels of attention are split over a mesh: each device has own rows and heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from t5x_like.core.accelerators import CHIPS, chip_of
from t5x_like.core.partitioning import Layout, active_layout
from t5x_like.layers.dropout import Dropping


class Split(NamedTuple):
    """The mesh axes that split rows, and those that split heads."""

    rows: tuple[str, ...]
    heads: tuple[str, ...]

    @classmethod
    def of(cls, layout: Layout, q_BLJ: jax.Array, *, width: int) -> Split:
        """How a layout splits queries whose heads have this width."""
        spec = layout.spec(("batch", "heads"), (len(q_BLJ), q_BLJ.shape[-1] // width))
        return cls(*((one,) if isinstance(one, str) else tuple(one or ()) for one in spec))

    @property
    def joined(self) -> PartitionSpec:
        """Of an array [B, L, J]."""
        return PartitionSpec(self.rows, None, self.heads)

    def of_rows(self, x: jax.Array, *rest: tuple[str, ...] | None) -> PartitionSpec:
        """Of an array whose first dimension is B or 1."""
        return PartitionSpec(self.rows if len(x) > 1 else None, *rest)

    def own_seed(self, seed: jax.Array, q_BLJ: jax.Array, *, width: int) -> jax.Array:
        """`seed` with the numbers of a device's first row and first head; `q_BLJ` is its own."""
        row = jax.lax.axis_index(self.rows) * len(q_BLJ) if self.rows else 0
        own = q_BLJ.shape[-1] // width
        head = jax.lax.axis_index(self.heads) * own if self.heads else 0
        return seed.at[2:4].set(jnp.stack([row, head]).astype(jnp.int32))


class Gradient(NamedTuple):
    """How a gradient is split, and whether devices with other rows have other parts of its sum."""

    spec: PartitionSpec
    summed: bool = False


def over_mesh(
    fn: Callable[..., Any],
    settings: Any,
    operands: Any,
    values_and_gradient: Sequence[jax.Array],
    *,
    specs: Callable[[Split], tuple[Any, Sequence[Gradient]]],
) -> Any:
    """A kernel over the active mesh: each device computes its own rows and heads.

    Args:
      fn: the kernel's forward pass, or its backward pass.
      settings: the first argument of `fn`; has the `width` of a head.
      operands: the second: a NamedTuple with arrays `q` and `seed`.
      values_and_gradient: the rest, split as the queries are; empty in the forward pass.
      specs: how the operands are split, and the gradients that the backward pass returns.
    """
    layout = active_layout()
    if layout is None or layout.mesh.size == 1:
        return fn(settings, operands, *values_and_gradient)
    split = Split.of(layout, operands.q, width=settings.width)
    of_operands, gradients = specs(split)

    def local(operands: Any, *more: jax.Array) -> Any:
        seed = split.own_seed(operands.seed, operands.q, width=settings.width)
        found = fn(settings, operands._replace(seed=seed), *more)
        if not more:
            return found
        return [
            jax.lax.psum(one, split.rows) if gradient.summed and split.rows else one
            for one, gradient in zip(found, gradients, strict=True)
        ]

    return jax.shard_map(
        local,
        mesh=layout.mesh,
        in_specs=(of_operands, *[split.joined for _ in values_and_gradient]),
        out_specs=[one.spec for one in gradients] if values_and_gradient else split.joined,
        check_vma=False,
    )(operands, *values_and_gradient)


def seed_words(drop: Dropping | None, heads: int) -> jax.Array:
    """`kernel_parts.Draws.seed` for a device with the first row and the first head."""
    words = jnp.zeros(2, jnp.uint32) if drop is None else jax.random.key_data(drop.key)[:2]
    words = jax.lax.bitcast_convert_type(words, jnp.int32)
    return jnp.concatenate([words, jnp.array([0, 0, heads], jnp.int32)])


def usable_vmem() -> int:
    """Bytes of the chip's memory that a kernel may take."""
    layout = active_layout()
    device = jax.devices()[0] if layout is None else layout.mesh.devices.flat[0]
    return int((chip_of(device.device_kind) or CHIPS["v5e"]).vmem_bytes)
