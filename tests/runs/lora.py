"""Low-rank adapters (LoRA, Hu et al., 2022) as a user writes them beside a model of t5x_like."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from t5x_like.layers.basics.modules import ZEROS, Linear, param


class Lora(Linear):
    """A matrix that keeps its place and its name, plus the product a b of rank r."""

    def __init__(self, old: Linear, rank: int, rngs: nnx.Rngs) -> None:
        self.kernel, self.bias, self.dtype = old.kernel, old.bias, old.dtype
        *stacked, rows, columns = old.kernel.shape
        from_axis, to_axis = old.kernel.get_metadata("axes")

        def make(key: jax.Array) -> tuple[nnx.Param, nnx.Param]:
            rngs, normal = nnx.Rngs(key), nnx.initializers.normal(0.02)
            return (
                param(normal, (rows, rank), axes=(from_axis, None), rngs=rngs),
                param(ZEROS, (rank, columns), axes=(None, to_axis), rngs=rngs),
            )

        for _ in stacked:
            make = jax.vmap(make)
        self.a, self.b = make(jax.random.split(rngs.params(), tuple(stacked)))

    def __call__(self, x: jax.Array, *, kept: str | None = None) -> jax.Array:
        a, b = (one[...].astype(self.dtype) for one in (self.a, self.b))
        return super().__call__(x, kept=kept) + x.astype(self.dtype) @ a @ b


def adapt(model: Any, *, rngs: nnx.Rngs, rank: int = 4) -> Any:
    """A BERT whose queries and values have adapters."""
    attention = model.encoder.trunk.stack.layers.attention
    for name in ("query", "value"):
        setattr(attention, name, Lora(getattr(attention, name), rank, rngs))
    return model
