"""A layer of an LSTM, in one direction.

Suffixes: B batch, L length, D inputs, C cells, P outputs, G = 4 C gates.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.modules import ZEROS, Init, Linear, param
from t5x_like.layers.recurrent.lstm_scan import (
    NO_CLIPS,
    Clips,
    LstmMatrices,
    LstmState,
    Steps,
    lstm_scan,
)


class Inits(NamedTuple):
    """Initialisers of the matrices from inputs, from the last outputs, and from cells."""

    inputs: Init
    recurrent: Init
    projection: Init

    @classmethod
    def same(cls, init: Init) -> Inits:
        return cls(init, init, init)


class Lstm(nnx.Module):
    """An LSTM whose gates are, in this order: input, forget, candidate, output.

    Its matrices are not split over a mesh but in storage: a product at each step would wait for
    other devices.
    """

    def __init__(
        self,
        d_in: int,
        cells: int,
        *,
        init: Inits,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        d_out: int | None = None,
        clips: Clips = NO_CLIPS,
        recurrent_bias: bool = False,
    ) -> None:
        """Makes the matrices.

        Args:
          d_in: D.
          cells: C.
          init: the initialisers.
          dtype: the dtype of products and of the state.
          rngs: the source of random numbers.
          d_out: P, of a projection without bias (Sak et al., 2014); None: the outputs are those of
            the cells.
          clips: the largest values of cells and of projected outputs.
          recurrent_bias: whether there is a second vector of biases, as in cuDNN.
        """
        width = cells if d_out is None else d_out
        self.input = Linear(
            (d_in, 4 * cells), ("embed", None), init=init.inputs, dtype=dtype, rngs=rngs, bias=True
        )
        self.recurrent = param(
            init.recurrent, (width, 4 * cells), axes=("embed", None), rngs=rngs, compute_dtype=dtype
        )
        self.recurrent_bias = (
            param(ZEROS, (4 * cells,), axes=(None,), rngs=rngs, compute_dtype=dtype)
            if recurrent_bias
            else None
        )
        self.projection = (
            None
            if d_out is None
            else param(
                init.projection,
                (cells, d_out),
                axes=("embed", None),
                rngs=rngs,
                compute_dtype=dtype,
            )
        )
        self.clips = clips
        self.dtype = dtype

    def initial_state(self, rows: int) -> LstmState:
        """Zeros, of the dtype of the products."""
        width, gates = self.recurrent.shape
        return LstmState(*(jnp.zeros((rows, n), self.dtype) for n in (width, gates // 4)))

    def __call__(
        self,
        x_BLD: jax.Array,
        state: LstmState,
        *,
        recurrent_PG: jax.Array | None = None,
        keep_BL: jax.Array | None = None,
        counts_BL: jax.Array | None = None,
    ) -> tuple[jax.Array, LstmState]:
        """Reads rows in order.

        Args:
          x_BLD: the inputs.
          state: what is carried into the first step.
          recurrent_PG: takes the place of the recurrent matrix, such as that matrix with dropout;
            None: that matrix.
          keep_BL: 1 where the state goes on, 0 where it is reset first; None: 1.
          counts_BL: 1 for tokens, 0 for padding, which leaves the state as it is; None: 1.

        Returns:
          [B, L, P] and the state after the last step.
        """
        gates_BLG = self.input(x_BLD)
        if self.recurrent_bias is not None:
            gates_BLG += self.recurrent_bias[...].astype(self.dtype)
        recurrent = self.recurrent[...] if recurrent_PG is None else recurrent_PG
        projection = None if self.projection is None else self.projection[...].astype(self.dtype)
        keep_BL = jnp.ones(gates_BLG.shape[:2]) if keep_BL is None else keep_BL
        counts_TB = None if counts_BL is None else counts_BL.astype(self.dtype).T
        outputs_TBP, state = lstm_scan(
            gates_BLG.swapaxes(0, 1),
            Steps(keep_BL.astype(self.dtype).T, counts_TB),
            LstmState(*(part.astype(self.dtype) for part in state)),
            LstmMatrices(recurrent.astype(self.dtype), projection),
            clips=self.clips,
        )
        return outputs_TBP.swapaxes(0, 1), state
