"""How our Pallas kernels of attention are split over a mesh: each device has own rows and heads."""

from __future__ import annotations

from typing import NamedTuple

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
