"""A layer of gated recurrent units (Cho et al., 2014), in one direction.

Suffixes: T steps, B batch, L length, D inputs, C units, G = 3 C gates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.modules import ZEROS, Init, Linear, param


class GruMatrices(NamedTuple):
    """What is read at each step.

    Attributes:
      recurrent: [C, G], from the last state to the gates: reset, update, candidate.
      bias: [G], added to that product: the reset gate multiplies that of the candidate, too.
    """

    recurrent: jax.Array
    bias: jax.Array


def _forward(
    gates_TBG: jax.Array, keep_TB: jax.Array, first_BC: jax.Array, matrices: GruMatrices
) -> tuple[jax.Array, Any]:
    """The states [T, B, C], and what the backward pass reads."""

    def step(state_BC: jax.Array, x: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        gates_BG, keep_B = x
        before_BC = state_BC * keep_B[:, None]
        again_BG = before_BC @ matrices.recurrent + matrices.bias
        (r, z, n), (again_r, again_z, again_n) = (
            jnp.split(part, 3, axis=-1) for part in (gates_BG, again_BG)
        )
        r, z = jax.nn.sigmoid(r + again_r), jax.nn.sigmoid(z + again_z)
        n = jnp.tanh(n + r * again_n)
        state_BC = (1 - z) * n + z * before_BC
        return state_BC, (state_BC, r, z, n, again_n)

    states_TBC, *gates = jax.lax.scan(step, first_BC, (gates_TBG, keep_TB))[1]
    return states_TBC, (states_TBC, *gates, keep_TB, first_BC, matrices)


def _backward(read: Any, of_states_TBC: jax.Array) -> tuple[Any, ...]:
    states_TBC, r_TBC, z_TBC, n_TBC, again_n_TBC, keep_TB, first_BC, matrices = read
    before_TBC = jnp.concatenate([first_BC[None], states_TBC[:-1]]) * keep_TB[:, :, None]

    def step(of_later_BC: jax.Array, x: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        of_state_BC, r, z, n, again_n, before_BC, keep_B = x
        of_state_BC = of_state_BC + of_later_BC
        of_n = of_state_BC * (1 - z) * (1 - n**2)
        of_z = of_state_BC * (before_BC - n) * z * (1 - z)
        of_r = of_n * again_n * r * (1 - r)
        of_gates_BG = jnp.concatenate([of_r, of_z, of_n], axis=-1)
        of_again_BG = jnp.concatenate([of_r, of_z, of_n * r], axis=-1)
        of_before_BC = of_state_BC * z + of_again_BG @ matrices.recurrent.T
        return of_before_BC * keep_B[:, None], (of_gates_BG, of_again_BG)

    xs = (of_states_TBC, r_TBC, z_TBC, n_TBC, again_n_TBC, before_TBC, keep_TB)
    of_first_BC, (of_gates_TBG, of_again_TBG) = jax.lax.scan(
        step, jnp.zeros_like(first_BC), xs, reverse=True
    )
    of_recurrent = jnp.einsum("tbc,tbg->cg", before_TBC, of_again_TBG)
    of_matrices = GruMatrices(of_recurrent, of_again_TBG.sum(axis=(0, 1)))
    return of_gates_TBG, jnp.zeros_like(keep_TB), of_first_BC, of_matrices


@jax.custom_vjp
def gru_scan(
    gates_TBG: jax.Array, keep_TB: jax.Array, first_BC: jax.Array, matrices: GruMatrices
) -> jax.Array:
    """The states [T, B, C] of a GRU; its gradient is written down as that of `lstm_scan` is.

    Args:
      gates_TBG: what inputs and their biases add to the gates.
      keep_TB: 1 where the state goes on, 0 where it is reset before the step; of the dtype of the
        gates.
      first_BC: the state before the first step.
      matrices: what is read at each step.
    """
    return _forward(gates_TBG, keep_TB, first_BC, matrices)[0]


gru_scan.defvjp(_forward, _backward)


class Gru(nnx.Module):
    """A GRU whose gates are, in this order: reset, update, candidate.

    The reset gate multiplies the product of the last state with its matrix, as in cuDNN.
    """

    def __init__(
        self,
        d_in: int,
        units: int,
        *,
        init: Init,
        recurrent_init: Init,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.input = Linear(
            (d_in, 3 * units), ("embed", None), init=init, dtype=dtype, rngs=rngs, bias=True
        )
        self.recurrent = param(
            recurrent_init,
            (units, 3 * units),
            axes=("embed", None),
            rngs=rngs,
            compute_dtype=dtype,
        )
        self.recurrent_bias = param(
            ZEROS, (3 * units,), axes=(None,), rngs=rngs, compute_dtype=dtype
        )
        self.dtype = dtype

    def __call__(
        self, x_BLD: jax.Array, first_BC: jax.Array, *, keep_BL: jax.Array | None = None
    ) -> jax.Array:
        """The states [B, L, C]; `keep_BL` is 0 where the state is reset first, None: nowhere."""
        gates_TBG = self.input(x_BLD).swapaxes(0, 1)
        keep_TB = (
            jnp.ones(gates_TBG.shape[:2], self.dtype)
            if keep_BL is None
            else keep_BL.astype(self.dtype).T
        )
        matrices = GruMatrices(
            *(part[...].astype(self.dtype) for part in (self.recurrent, self.recurrent_bias))
        )
        states_TBC = gru_scan(gates_TBG, keep_TB, first_BC.astype(self.dtype), matrices)
        return states_TBC.swapaxes(0, 1)
