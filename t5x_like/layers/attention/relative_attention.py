"""Attention by content, relative position and segment; all positions of a row ask, or a few.

Suffixes: B batch, L positions of a row, P of them that are queries, Q queries (L or P), M memory,
T = M + L keys, C = T + L rows of relative positions, F directions, D d_model, H heads, K d_kv,
J = H * K joined heads.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.attention.attention_kernels import Attended, Kernel, KeysValues
from t5x_like.layers.attention.kernel_choice import runs_on_tpu
from t5x_like.layers.attention.multi_head import Attention, Inits, dropping
from t5x_like.layers.attention.relative_tpu import (
    Relative,
    copies,
    pairs_of,
    relative_tpu,
    unsuited,
)
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts, Dropping
from t5x_like.layers.basics.modules import Init, Linear, param


class Positions(NamedTuple):
    """Vectors of relative positions; row c stands for a key T - c positions before the query.

    Attributes:
      vectors: [F, C, D], for text from left to right and, where rows may be backward, reversed.
      backward: bool [B], true for rows that hold reversed text; None: there are none.
    """

    vectors: jax.Array
    backward: jax.Array | None = None


def relative_positions(
    length: int,
    num_keys: int,
    *,
    width: int,
    backward_B: jax.Array | None = None,
    clamp: int | None = None,
) -> Positions:
    """Sines, then cosines of distances from `num_keys` down to 1 - `length`: float32.

    Transformer-XL, appendix B. `clamp`: larger distances count as this one. In a backward row, a
    key on the left is read later.
    """
    distance_C = jnp.arange(num_keys, -length, -1, dtype=jnp.float32)
    if clamp is not None:
        distance_C = jnp.clip(distance_C, -clamp, clamp)
    frequency = (10000.0 ** (-np.arange(0, width, 2) / width)).astype(np.float32)
    sign_F = jnp.ones(1) if backward_B is None else jnp.array([1.0, -1.0])
    angle_FCD = sign_F[:, None, None] * distance_C[:, None] * frequency
    vectors_FCD = jnp.concatenate([jnp.sin(angle_FCD), jnp.cos(angle_FCD)], axis=-1)
    return Positions(vectors_FCD, backward_B)


def of_row(x_BHLC: jax.Array, num_keys: int) -> jax.Array:
    """out[..., i, j] = x[..., i, L - i + j], [B, H, L, T]: from relative to absolute positions.

    It only reshapes (Transformer-XL, appendix B): in the flat array, each query's numbers start
    one earlier than a row later.
    """
    *leading, length, columns = x_BHLC.shape
    flat = x_BHLC.reshape(*leading, length * columns)
    skewed = flat[..., length:].reshape(*leading, length, columns - 1)
    return skewed[..., :num_keys]


def of_positions(x_BHPC: jax.Array, positions_BP: jax.Array, num_keys: int) -> jax.Array:
    """out[b, h, p, j] = x[b, h, p, L - positions[b, p] + j], [B, H, P, T]: one window a query."""

    def window(x_HC: jax.Array, start: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(x_HC, start, num_keys, axis=1)

    starts_BP = x_BHPC.shape[-1] - num_keys - positions_BP
    return jax.vmap(jax.vmap(window, in_axes=(1, 0), out_axes=1))(x_BHPC, starts_BP)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeView(View):
    """A view of a stream's queries on a row and, before it, a memory; it has no bias.

    Attributes:
      relative: the vectors of relative positions, which all layers share.
      biases: of the queries, where layers have none of their own.
      types: int32 [B, Q] and [B, T], segments of queries and keys; None: all are equal.
      asking: int32 [B, Q], the queries' positions in the row; None: they are the whole row.
      pairs: mask and types as a kernel reads them (`relative_tpu.pairs_of`), for all layers; None:
        each forms its own.
    """

    relative: Positions
    biases: Biases | None = None
    types: tuple[jax.Array, jax.Array] | None = None
    asking: jax.Array | None = None
    pairs: jax.Array | None = None

    def seen(self, num_queries: int, num_keys: int) -> jax.Array | None:
        """Bool [B|1, 1, Q, T], true where a query sees a key; None: all."""
        return None if self.mask is None else self.mask.dense(num_queries, num_keys)

    @property
    def differs(self) -> jax.Array | None:
        """Bool [B, 1, Q, T], true where segments differ; None: all are equal."""
        if self.types is None:
            return None
        of_queries, of_keys = self.types
        return of_queries[:, None, :, None] != of_keys[:, None, None]

    def with_pairs(self, num_queries: int, num_keys: int) -> RelativeView:
        """The view with `pairs`; where nothing reads it, it is not computed."""
        pairs = pairs_of(self.seen(num_queries, num_keys), self.differs)
        return dataclasses.replace(self, pairs=pairs)


class PositionKeys(NamedTuple):
    """Projected vectors of relative positions, which queries are multiplied with.

    Attributes:
      of_rows: each row's own, [B, H, C, K].
      joined: for a kernel, those of both directions, [N, F, C, J] (`relative_tpu.copies`), and
      backward: which rows read the second; None where they are not known apart (decoding).
    """

    of_rows: jax.Array
    joined: jax.Array | None = None
    backward: jax.Array | None = None


class Biases(nnx.Module):
    """Added to a query that looks at content, at positions and at segments: [H, K] each.

    They are r_w, r_r and r_s of the published code.
    """

    def __init__(self, num_heads: int, d_kv: int, *, init: Init, rngs: nnx.Rngs) -> None:
        shape, axes = (num_heads, d_kv), ("heads", "kv")
        make = functools.partial(param, init, shape, axes=axes, multiplied=False, rngs=rngs)
        self.content, self.position, self.segment = make(), make(), make()


class RelativeAttention(Attention):
    """Attention whose logits sum a query's products with a key's content, position and segment.

    XLNet, sections 2.2 and 2.4, and appendix A.2. Where all segments are equal, they add nothing.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        init: Init,
        dtype: DTypeLike,
        kernel: Kernel,
        rngs: nnx.Rngs,
    ) -> None:
        d_kv = d_model // num_heads
        super().__init__(
            d_model,
            num_heads,
            d_kv=d_kv,
            inits=Inits.same(init),
            scale=d_kv**-0.5,
            kernel=kernel,
            dtype=dtype,
            rngs=rngs,
        )
        joined = (d_model, num_heads * d_kv)
        self.relative = Linear(joined, ("embed", "joined_kv"), init=init, dtype=dtype, rngs=rngs)
        # For a key of the same segment, and for one of another.
        shape, axes = (2, num_heads, d_kv), (None, "heads", "kv")
        self.segments = param(init, shape, axes=axes, multiplied=False, rngs=rngs)

    def queries(self, x_BQD: jax.Array) -> jax.Array:
        """Queries of all heads, joined: [B, Q, J], not scaled."""
        return checkpoint_name(self.query(x_BQD), "query")

    def position_keys(self, positions: Positions, batch_size: int) -> PositionKeys:
        """Projected position vectors, for the whole batch."""
        r_FCJ = self.relative(positions.vectors)
        # Heads come first, as products need them: cheaper before each row has its own copy.
        r_FHCK = self._heads(r_FCJ).swapaxes(1, 2)
        if positions.backward is None:
            r_BHCK = jnp.broadcast_to(r_FHCK, (batch_size, *r_FHCK.shape[1:]))
        else:
            backward = positions.backward[:, None, None, None]
            r_BHCK = jnp.where(backward, r_FHCK[1], r_FHCK[0])
        of_rows = constrain(r_BHCK, "batch", "heads", None, "kv")
        copied = copies(r_FCJ, batch_size=batch_size) if runs_on_tpu(self.kernel) else None
        return PositionKeys(of_rows, copied, positions.backward)

    def look(
        self,
        q_BSJ: jax.Array,
        memory: KeysValues,
        *,
        part: slice = slice(None),
        position_keys: PositionKeys,
        biases: Biases,
        view: RelativeView,
        dropouts: Dropouts,
        key: jax.Array | None,
    ) -> Attended:
        """Looks up what a part of the queries sees.

        Values are [B, Q, J]; there are probabilities where the kernel forms them.
        """
        begin, end, _ = part.indices(q_BSJ.shape[1])
        drop = dropping(dropouts, key)
        if position_keys.joined is not None and unsuited(end - begin, memory, drop) is None:
            attended = self._by_kernel(
                q_BSJ[:, begin:],
                memory,
                queries=end - begin,
                position_keys=position_keys,
                vectors=self._vectors(biases),
                view=view,
                drop=drop,
            )
        else:
            q_BQHK = constrain(self._heads(q_BSJ[:, part]), "batch", "length", "heads", "kv")
            content = self._asking(q_BQHK, biases.content)
            num_keys = memory.keys.shape[1]
            bias = self._bias(q_BQHK, position_keys.of_rows, num_keys, biases=biases, view=view)
            attended = self.kernel(content, memory, mask=view.mask, bias=bias, drop=drop)
            values = attended.values.reshape(len(q_BSJ), end - begin, -1)
            attended = attended._replace(values=values)
        if view.heads is None:
            return attended
        factors_BJ = jnp.repeat(view.heads, memory.values.shape[-1], axis=-1)
        values = attended.values * factors_BJ[:, None].astype(attended.values.dtype)
        return attended._replace(values=values)

    def _by_kernel(
        self,
        q_BSJ: jax.Array,
        memory: KeysValues,
        *,
        queries: int,
        position_keys: PositionKeys,
        vectors: jax.Array,
        view: RelativeView,
        drop: Dropping | None,
    ) -> Attended:
        """The values of the first queries by our kernel for TPUs."""
        assert position_keys.joined is not None
        seen = view.seen(queries, memory.keys.shape[1])
        relative = Relative(
            position_keys.joined,
            position_keys.backward,
            vectors,
            seen,
            view.differs,
            view.asking,
            view.pairs,
        )
        values = relative_tpu(
            q_BSJ, memory, relative, queries=queries, factor=self.scale, drop=drop
        )
        return Attended(values, None)

    def _asking(self, q_BQHK: jax.Array, bias: nnx.Param) -> jax.Array:
        """Queries with a bias, scaled."""
        return (q_BQHK + bias[...].astype(q_BQHK.dtype)) * self.scale

    def _vectors(self, biases: Biases) -> jax.Array:
        """`Relative.vectors`."""
        other_HK = (self.segments[1] - self.segments[0]) * self.scale
        four = biases.content[...], biases.position[...], biases.segment[...], other_HK
        return jnp.stack([x.reshape(-1) for x in four])

    def _bias(
        self,
        q_BQHK: jax.Array,
        r_BHCK: jax.Array,
        num_keys: int,
        *,
        biases: Biases,
        view: RelativeView,
    ) -> jax.Array:
        """The terms of positions and segments in the logits, float32 [B, H, Q, T]."""
        bias_BHQC = jnp.einsum(
            "bqhk,bhck->bhqc",
            self._asking(q_BQHK, biases.position),
            r_BHCK,
            preferred_element_type=jnp.float32,
        )
        if view.asking is None:
            bias_BHQT = of_row(bias_BHQC, num_keys)
        else:
            bias_BHQT = of_positions(bias_BHQC, view.asking, num_keys)
        if (differs := view.differs) is not None:
            # Relative to the query's segment: a constant for all keys does not change a softmax.
            other_HK = (self.segments[1] - self.segments[0]) * self.scale
            segment_BHQ = jnp.einsum(
                "bqhk,hk->bhq",
                q_BQHK,
                other_HK.astype(q_BQHK.dtype),
                preferred_element_type=jnp.float32,
            )
            segment_BHQ += (biases.segment[...] * other_HK).sum(axis=-1)[:, None]
            bias_BHQT += jnp.where(differs, segment_BHQ[..., None], 0.0)
        return bias_BHQT

    def project(self, y_BQJ: jax.Array) -> jax.Array:
        """[B, Q, D] from the values of all heads, joined."""
        return self.out(constrain(y_BQJ, "batch", "length", "joined_kv"), kept="attended")
