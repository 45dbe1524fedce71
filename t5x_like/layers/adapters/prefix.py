"""Prefix tuning: keys and values that attention sees besides those of tokens, in each layer.

Li and Liang, 2021, section 4, without the network that they are made of in training, as in P-tuning
v2 (Liu et al., 2022). Suffixes: B batch, L queries, M keys, P virtual tokens, H heads, K d_kv.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.partitioning import constrain
from t5x_like.layers.adapters import places as matrices
from t5x_like.layers.attention.attention_kernels import Attended, KeysValues
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.multi_head import Attention
from t5x_like.layers.attention.relative_attention import RelativeAttention
from t5x_like.layers.attention.view import OPEN, View
from t5x_like.layers.basics.dropout import NO_DROPOUT, Dropouts
from t5x_like.layers.basics.modules import param

TRAINED = ("prefix_keys", "prefix_values")
"""The names of its parameters."""
_NORMAL = nnx.initializers.normal(0.02)


class Prefixed(Attention):
    """Attention that keeps its name, with keys and values before those of tokens.

    Every query sees them, whatever its mask says, and no bias of positions is added for them.
    """

    def __init__(self, old: Attention, *, virtual_tokens: int, rngs: nnx.Rngs) -> None:
        for name, part in vars(old).items():
            if not name.startswith("_"):
                setattr(self, name, part)
        joined = old.query.kernel.shape[-1]
        shape = (virtual_tokens, old.num_heads, joined // old.num_heads)

        def make(rngs: nnx.Rngs) -> list[nnx.Param]:
            new = functools.partial(param, _NORMAL, shape, axes=(None, "heads", "kv"), rngs=rngs)
            return [new(compute_dtype=old.key.dtype, multiplied=False) for _ in TRAINED]

        self.prefix_keys, self.prefix_values = matrices.beside(old.key, make, rngs)

    def __call__(
        self,
        x_BLD: jax.Array,
        memory: KeysValues,
        *,
        view: View = OPEN,
        dropouts: Dropouts = NO_DROPOUT,
        key: jax.Array | None = None,
    ) -> Attended:
        """As in `Attention`; probabilities are those of tokens, and the prefix has the rest."""
        prefix = self.prefix_keys.shape[0]
        before = (self.prefix_keys, self.prefix_values)
        whole = KeysValues(*(_in_front(p[...], x) for p, x in zip(before, memory, strict=True)))
        length, keys = x_BLD.shape[1], memory.keys.shape[1]
        attended = super().__call__(
            x_BLD, whole, view=_seen(view, prefix, length, keys), dropouts=dropouts, key=key
        )
        p_BHLM = attended.probabilities
        return attended if p_BHLM is None else attended._replace(probabilities=p_BHLM[..., prefix:])


def _in_front(prefix_PHK: jax.Array, x_BMHK: jax.Array) -> jax.Array:
    rows = jnp.broadcast_to(prefix_PHK.astype(x_BMHK.dtype), (len(x_BMHK), *prefix_PHK.shape))
    return constrain(jnp.concatenate([rows, x_BMHK], axis=1), "batch", None, "heads", "kv")


def _seen(view: View, prefix: int, queries: int, keys: int) -> View:
    """The view of queries that see `prefix` keys more, in front of the others."""
    in_front = [(0, 0), (0, 0), (0, 0), (prefix, 0)]
    seen = None if view.mask is None else view.mask.dense(queries, keys)
    mask = None if seen is None else Mask(pairs=jnp.pad(seen, in_front, constant_values=True))
    bias = None if view.bias is None else jnp.pad(view.bias, in_front)
    return View(mask=mask, bias=bias, rotary=view.rotary, heads=view.heads)


def adapt(model: nnx.Module, *, rngs: nnx.Rngs, virtual_tokens: int = 20) -> Any:
    """The model with virtual tokens in front of the keys and values of self-attention.

    Args:
      model: the model, which is changed.
      rngs: the source of random numbers.
      virtual_tokens: how many.

    Raises:
      ValueError: there are none, or attention is XLNet's, whose keys have positions.
    """
    if virtual_tokens < 1:
        raise ValueError(f"a prefix has a virtual token at least, not {virtual_tokens}")
    attentions = [
        (path, node) for path, node in nnx.iter_graph(model) if isinstance(node, Attention)
    ]
    if any(isinstance(node, RelativeAttention) for _, node in attentions):
        raise ValueError(
            f"the keys of a {type(model).__name__} have positions relative to queries, which a "
            "prefix has not: take another method, such as lora"
        )
    own = [(path, node) for path, node in attentions if path[-1] != "cross_attention"]
    if not own:
        raise ValueError(f"a {type(model).__name__} has no attention that could see a prefix")
    for path, node in own:
        matrices.put(model, path, Prefixed(node, virtual_tokens=virtual_tokens, rngs=rngs))
    return model
