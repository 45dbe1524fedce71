"""Multi-head attention through a view; keys and values may come from a cache.

Suffixes: B batch, L queries, M keys, D d_model, H heads, K d_kv, J = H * K joined heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.attention.attention_kernels import Attended, Kernel, KeysValues
from t5x_like.layers.attention.kernel_choice import automatic
from t5x_like.layers.attention.rotary import Rotary
from t5x_like.layers.attention.view import OPEN, View
from t5x_like.layers.basics.dropout import NO_DROPOUT, Dropouts, Dropping
from t5x_like.layers.basics.modules import Init, Linear


class Inits(NamedTuple):
    """Initialisers of the four projections."""

    query: Init
    key: Init
    value: Init
    out: Init

    @classmethod
    def same(cls, init: Init) -> Inits:
        return cls(init, init, init, init)


def attend(
    q_BLHK: jax.Array,
    memory: KeysValues,
    *,
    view: View = OPEN,
    dropouts: Dropouts = NO_DROPOUT,
    key: jax.Array | None = None,
    kernel: Kernel = automatic,
) -> Attended:
    """softmax(q k + bias) v -> [B, L, H, K] in the dtype of v; q is already scaled.

    Queries and keys are turned already, where the `view` turns them. Logits and softmax are
    float32. A query that sees no key gets a mean of values. The `kernel` decides the way of
    computing. Probabilities are those before heads are switched off.
    """
    drop = dropping(dropouts, key)
    attended = kernel(q_BLHK, memory, mask=view.mask, bias=view.bias, drop=drop)
    if view.heads is None:
        return attended
    factors = view.heads[:, None, :, None].astype(attended.values.dtype)
    return attended._replace(values=attended.values * factors)


def dropping(dropouts: Dropouts, key: jax.Array | None) -> Dropping | None:
    """Dropout of attention probabilities, where there is any."""
    if key is None or not dropouts.attention:
        return None
    return Dropping(key, dropouts.attention, dropouts.shared)


class Attention(nnx.Module):
    """The projections around `attend`.

    `scale` multiplies the queries: 1 / sqrt(d_kv), or 1 where the initialiser includes it (T5).
    With fewer `num_kv_heads`, that many heads of keys and values are read by a group of heads of
    queries each (Ainslie et al., 2023); None: every head has its own.

    Raises:
      ValueError: heads do not divide into groups of one size.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_kv: int,
        inits: Inits,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        bias: bool = False,
        scale: float = 1.0,
        kernel: Kernel = automatic,
        num_kv_heads: int | None = None,
    ) -> None:
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % kv_heads:
            raise ValueError(
                f"num_kv_heads={kv_heads} does not divide num_heads={num_heads}: each head of keys "
                "and values is for a group of heads of queries, all of one size"
            )

        def dense(init: Init, *, out: bool = False, heads: int = num_heads) -> Linear:
            shape, axes = (d_model, heads * d_kv), ("embed", "joined_kv")
            if out:
                shape, axes = shape[::-1], axes[::-1]
            return Linear(shape, axes, init=init, dtype=dtype, rngs=rngs, bias=bias)

        self.query = dense(inits.query)
        self.key = dense(inits.key, heads=kv_heads)
        self.value = dense(inits.value, heads=kv_heads)
        self.out = dense(inits.out, out=True)
        self.num_heads = num_heads
        self.group = num_heads // kv_heads
        self.scale = scale
        self.kernel = kernel

    def keys_values(self, x_BMD: jax.Array, *, rotary: Rotary | None = None) -> KeysValues:
        """Keys, turned if they are to be, and values, computed once for any number of queries.

        Both are [B, M, H, K]: those of a group of heads are repeated.
        """
        # The length is not split here: each query needs every key.
        keys, values = (
            constrain(self._repeated(checkpoint_name(y, name)), "batch", None, "heads", "kv")
            for y, name in ((self.key(x_BMD), "key"), (self.value(x_BMD), "value"))
        )
        return KeysValues(keys if rotary is None else rotary.turn(keys), values)

    def __call__(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        view: View = OPEN,
        dropouts: Dropouts = NO_DROPOUT,
        key: jax.Array | None = None,
    ) -> Attended:
        """[B, L, D], and the probabilities where the kernel has them; arguments as in `attend`."""
        y_BLHK, p_BHLM = self.mixed(x_BLD, memory, view=view, dropouts=dropouts, key=key)
        y_BLJ = constrain(y_BLHK.reshape(*x_BLD.shape[:2], -1), "batch", "length", "joined_kv")
        return Attended(self.out(y_BLJ, kept="attended"), p_BHLM)

    def mixed(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        view: View,
        dropouts: Dropouts,
        key: jax.Array | None,
    ) -> Attended:
        """The values of each head, [B, L, H, K], before the last projection."""
        q_BLHK = self.queries(x_BLD)
        if view.rotary is not None:
            q_BLHK = view.rotary.turn(q_BLHK)
        return attend(q_BLHK, memory, view=view, dropouts=dropouts, key=key, kernel=self.kernel)

    def queries(self, x_BLD: jax.Array) -> jax.Array:
        """The scaled queries, [B, L, H, K], not turned."""
        q_BLHK = self._heads(checkpoint_name(self.query(x_BLD) * self.scale, "query"))
        return constrain(q_BLHK, "batch", "length", "heads", "kv")

    def _heads(self, x_BLJ: jax.Array) -> jax.Array:
        return x_BLJ.reshape(*x_BLJ.shape[:2], self.num_heads, -1)

    def _repeated(self, x_BMJ: jax.Array) -> jax.Array:
        """Heads of keys or values, one for each head of queries."""
        if self.group == 1:
            return self._heads(x_BMJ)
        heads = x_BMJ.reshape(*x_BMJ.shape[:2], self.num_heads // self.group, -1)
        return jnp.repeat(heads, self.group, axis=2)


def head_width(model: Any) -> int:
    """The width of the heads of all attention layers of a model.

    Raises:
      ValueError: the model has none, or heads of several widths.
    """
    layers = (node for _, node in nnx.iter_graph(model) if isinstance(node, Attention))
    widths = {layer.query.kernel.shape[-1] // layer.num_heads for layer in layers}
    if len(widths) != 1:
        raise ValueError(f"the heads of this model have {sorted(widths)} as widths, not one width")
    return widths.pop()
