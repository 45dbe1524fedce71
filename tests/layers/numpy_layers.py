"""Layers in NumPy and float64, with our layers' parameters, and what tests make our layers of."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.attention.multi_head import Attention, Inits
from t5x_like.layers.attention.positions import RelativeBias
from t5x_like.layers.basics.dropout import NO_DROPOUT
from t5x_like.layers.basics.mlp import Mlp
from t5x_like.layers.basics.modules import LayerNorm
from t5x_like.layers.stacks.blocks import Parts

WIDTH, HEADS = 8, 2
NORMAL = nnx.initializers.normal(0.4)


def parts(placement, *, relative=False, dropouts=NO_DROPOUT, **options):
    """Parts of a small layer with bias vectors everywhere; `options` go to its attention."""

    def bias(rngs):
        return RelativeBias(HEADS, bidirectional=False, rngs=rngs, num_buckets=4, max_distance=6)

    def attention(rngs):
        size = {"d_kv": 3, "dtype": "float32", "bias": True} | options
        return Attention(WIDTH, HEADS, inits=Inits.same(NORMAL), rngs=rngs, **size)

    return Parts(
        norm=lambda rngs: LayerNorm(WIDTH, dtype="float32", rngs=rngs, epsilon=1e-5),
        attention=attention,
        mlp=lambda rngs: Mlp(
            WIDTH, 16, dtype="float32", rngs=rngs, bias=True, inits=(NORMAL, NORMAL)
        ),
        dropouts=dropouts,
        placement=placement,
        relative=bias if relative else None,
    )


def built(make):
    """`make()` with noise on all parameters: biases of 0 and scales of 1 hide mistakes."""

    def noisy(path, x):
        key = jax.random.key(sum(map(ord, jax.tree_util.keystr(path))))
        return x + 0.2 * jax.random.normal(key, x.shape)

    def parameters():
        return jax.tree_util.tree_map_with_path(noisy, nnx.to_pure_dict(nnx.state(make())))

    # Compiled as one program: faster than one operation at a time.
    return nnx.merge(nnx.graphdef(nnx.eval_shape(make)), jax.jit(parameters)())


def exact(module):
    """A module's parameters, a dict of float64 arrays."""
    pure = nnx.to_pure_dict(nnx.state(module))
    return jax.tree.map(lambda x: np.asarray(x, np.float64), pure)


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def mlp(p, x):
    return dense(p["wo"], np.maximum(dense(p["wi"], x), 0))


def attention(p, x, memory, *, mask, bias=0.0):
    """The output [B, L, D] and the probabilities [B, H, L, M]."""

    def split(x):
        return x.reshape(*x.shape[:2], HEADS, -1)

    q, k = split(dense(p["query"], x)), split(dense(p["key"], memory))
    logits = np.where(mask, np.einsum("blhk,bmhk->bhlm", q, k) + bias, -1e10)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("bhlm,bmhk->blhk", weights, split(dense(p["value"], memory)))
    return dense(p["out"], mixed.reshape(*x.shape[:2], -1)), weights


def arrays(*lengths, batch=2):
    """States [B, L, D] of each length."""
    keys = jax.random.split(jax.random.key(5), len(lengths))
    return [
        jax.random.normal(key, (batch, length, WIDTH), jnp.float32)
        for key, length in zip(keys, lengths, strict=True)
    ]
