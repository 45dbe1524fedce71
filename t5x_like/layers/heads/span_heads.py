"""XLNet's head for answers: spans whose end depends on the start, and whether there is one.

Suffixes: B batch, L length, S starts, E ends of each, D d_model.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.modules import Init, LayerNorm, Linear
from t5x_like.layers.heads import label_heads
from t5x_like.layers.heads.outputs import output

_NORMAL = nnx.initializers.normal(0.02)
_NO_ANSWER = -1e30


class Answers(NamedTuple):
    """The likeliest answers of each row: best starts first, and for each start its best ends first.

    Attributes:
      starts: int32 [B, S] positions.
      start_probabilities: float32 [B, S].
      ends: int32 [B, S, E] positions.
      end_probabilities: float32 [B, S, E], given the start.
      unanswerable: float32 [B], the logit that there is no answer.
    """

    starts: jax.Array
    start_probabilities: jax.Array
    ends: jax.Array
    end_probabilities: jax.Array
    unanswerable: jax.Array


class Scores(NamedTuple):
    """Logits where the start is known, float32: [B, L], [B, L] and [B]."""

    start: jax.Array
    end: jax.Array
    unanswerable: jax.Array


class ConditionalSpanHead(nnx.Module):
    """Scores starts, ends given a start, and whether there is no answer.

    The last token of a row stands for the whole row: rows end with <cls>, wherever padding is.
    """

    def __init__(
        self,
        d_model: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        init: Init = _NORMAL,
        epsilon: float = 1e-12,
        num_starts: int = 5,
        num_ends: int = 5,
    ) -> None:
        def dense(size: int, out: int, *, bias: bool = True) -> Linear:
            axes = ("embed", None)
            return Linear((size, out), axes, init=init, dtype=dtype, rngs=rngs, bias=bias)

        self.start = output(dense(d_model, 1))
        self.end_dense = dense(2 * d_model, d_model)
        self.end_norm = LayerNorm(d_model, epsilon=epsilon, dtype=dtype, rngs=rngs)
        self.end = output(dense(d_model, 1))
        self.unanswerable_dense = dense(2 * d_model, d_model)
        self.unanswerable = output(dense(d_model, 1, bias=False))
        self.num_starts = num_starts
        self.num_ends = num_ends
        above(self)

    def given(
        self,
        x_BLD: jax.Array,
        starts_B: jax.Array,
        *,
        counts_BL: jax.Array,
        allowed_BL: jax.Array | None = None,
    ) -> Scores:
        """Scores with the true start of each row, as in training.

        Args:
          x_BLD: states.
          starts_B: int32 positions.
          counts_BL: above 0 for tokens.
          allowed_BL: above 0 where an answer may start and end; None: everywhere.
        """
        states_BD = jnp.take_along_axis(x_BLD, starts_B[:, None, None], axis=1)[:, 0]
        return Scores(
            self._starts(x_BLD, allowed_BL),
            self._ends(x_BLD, states_BD[:, None], allowed_BL)[:, 0],
            self._unanswerable(x_BLD, counts_BL, states_BD),
        )

    def search(
        self, x_BLD: jax.Array, *, counts_BL: jax.Array, allowed_BL: jax.Array | None = None
    ) -> Answers:
        """The likeliest starts, and for each the likeliest ends; arguments as in `given`.

        The score of no answer uses the mean of the states, weighted by their chance to be a start.
        """
        p_BL = jax.nn.softmax(self._starts(x_BLD, allowed_BL), axis=-1)
        start_probabilities, starts_BS = jax.lax.top_k(p_BL, self.num_starts)
        states_BSD = jnp.take_along_axis(x_BLD, starts_BS[..., None], axis=1)
        ends_BSL = self._ends(x_BLD, states_BSD, allowed_BL)
        end_probabilities, ends_BSE = jax.lax.top_k(jax.nn.softmax(ends_BSL), self.num_ends)
        mean_BD = jnp.einsum("bld,bl->bd", x_BLD, p_BL.astype(x_BLD.dtype))
        unanswerable_B = self._unanswerable(x_BLD, counts_BL, mean_BD)
        return Answers(starts_BS, start_probabilities, ends_BSE, end_probabilities, unanswerable_B)

    def _starts(self, x_BLD: jax.Array, allowed_BL: jax.Array | None) -> jax.Array:
        return _where_allowed(self.start(x_BLD)[..., 0], allowed_BL)

    def _ends(
        self, x_BLD: jax.Array, starts_BSD: jax.Array, allowed_BL: jax.Array | None
    ) -> jax.Array:
        """Logits of ends: float32 [B, S, L]."""
        shape = (*starts_BSD.shape[:2], *x_BLD.shape[1:])
        both_BSLD = [
            jnp.broadcast_to(x_BLD[:, None], shape),
            jnp.broadcast_to(starts_BSD[:, :, None], shape),
        ]
        h_BSLD = jnp.tanh(self.end_dense(jnp.concatenate(both_BSLD, axis=-1)))
        logits_BSL = self.end(self.end_norm(h_BSLD))[..., 0]
        return _where_allowed(logits_BSL, None if allowed_BL is None else allowed_BL[:, None])

    def _unanswerable(
        self, x_BLD: jax.Array, counts_BL: jax.Array, start_BD: jax.Array
    ) -> jax.Array:
        last_BD = label_heads.last_that_counts(x_BLD, counts_BL, counts_BL)
        both_BD = jnp.concatenate([start_BD, last_BD], axis=-1)
        h_BD = jnp.tanh(self.unanswerable_dense(both_BD))
        return self.unanswerable(h_BD)[:, 0].astype(jnp.float32)


def _where_allowed(logits: jax.Array, allowed: jax.Array | None) -> jax.Array:
    logits = logits.astype(jnp.float32)
    return logits if allowed is None else jnp.where(allowed > 0, logits, _NO_ANSWER)
