"""The loop of an LSTM over time (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

Its projections and clips are those of Sak et al. (2014) and of ELMo (Peters et al., 2018). Its
gradient is written down: of a loop, JAX would add up the gradient of each matrix step by step,
which reads and writes the matrix at each. Here it is one product over all steps.

Suffixes: T steps, B batch, C cells, P outputs (C without a projection), G = 4 C gates.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class LstmState(NamedTuple):
    """What an LSTM carries from step to step: the last outputs [B, P] and cells [B, C]."""

    outputs: jax.Array
    cells: jax.Array


class LstmMatrices(NamedTuple):
    """The matrices that are read at each step.

    Attributes:
      recurrent: [P, G], from the last outputs to the gates: input, forget, candidate, output.
      projection: [C, P], from cells to outputs; None: there is none.
    """

    recurrent: jax.Array
    projection: jax.Array | None = None


class Clips(NamedTuple):
    """The largest absolute values of cells and of projected outputs; None: any."""

    cells: float | None = None
    outputs: float | None = None


NO_CLIPS = Clips()


class Steps(NamedTuple):
    """What happens to the state at each step, [T, B], of the dtype of the gates.

    Attributes:
      keep: 1 where the state goes on, 0 where it is reset before the step.
      counts: 1 for steps that count; others leave the state, and repeat its outputs. None: all do.
    """

    keep: jax.Array
    counts: jax.Array | None = None


def lstm_scan(
    gates_TBG: jax.Array,
    steps: Steps,
    state: LstmState,
    matrices: LstmMatrices,
    *,
    clips: Clips = NO_CLIPS,
) -> tuple[jax.Array, LstmState]:
    """Runs the cells over time.

    Args:
      gates_TBG: what inputs and biases add to the gates, before their functions.
      steps: where the state is reset or left.
      state: the state before the first step.
      matrices: the matrices.
      clips: the largest values.

    Returns:
      The outputs, [T, B, P], and the state after the last step.
    """
    outputs_TBP, cells_BC = _scan(clips, gates_TBG, steps, state, matrices)
    return outputs_TBP, LstmState(outputs_TBP[-1], cells_BC)


class _Kept(NamedTuple):
    """What the backward pass reads of each step [T, B, ...]: gates, after their functions, ..."""

    gates: jax.Array
    cells: jax.Array
    outputs: jax.Array


def _clipped(x: jax.Array, most: float | None) -> jax.Array:
    return x if most is None else jnp.clip(x, -most, most)


def _of_clipped(grad: jax.Array, x: jax.Array, most: float | None) -> jax.Array:
    """The gradient before `_clipped`, from its result."""
    return grad if most is None else jnp.where(jnp.abs(x) < most, grad, 0)


def _before(first: jax.Array, later: jax.Array, keep_TB: jax.Array) -> jax.Array:
    """What each step read of the one before."""
    return jnp.concatenate([first[None], later[:-1]]) * keep_TB[:, :, None]


def _forward(
    clips: Clips,
    gates_TBG: jax.Array,
    steps: Steps,
    state: LstmState,
    matrices: LstmMatrices,
) -> _Kept:
    def step(before: LstmState, x: tuple[jax.Array, Steps]) -> tuple[LstmState, _Kept]:
        gates_BG, here = x
        outputs_BP, cells_BC = (part * here.keep[:, None] for part in before)
        gates_BG = gates_BG + outputs_BP @ matrices.recurrent
        i, f, g, o = jnp.split(gates_BG, 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        cells_BC = _clipped(f * cells_BC + i * g, clips.cells)
        outputs_BP = o * jnp.tanh(cells_BC)
        if matrices.projection is not None:
            outputs_BP = _clipped(outputs_BP @ matrices.projection, clips.outputs)
        state = LstmState(outputs_BP, cells_BC)
        if here.counts is not None:
            counts_B1 = here.counts[:, None] > 0
            state = jax.tree.map(functools.partial(jnp.where, counts_B1), state, before)
        gates_BG = jnp.concatenate([i, f, g, o], axis=-1)
        return state, _Kept(gates_BG, state.cells, state.outputs)

    return jax.lax.scan(step, state, (gates_TBG, steps))[1]


def _scan_forward(
    clips: Clips,
    gates_TBG: jax.Array,
    steps: Steps,
    state: LstmState,
    matrices: LstmMatrices,
) -> tuple[tuple[jax.Array, jax.Array], Any]:
    kept = _forward(clips, gates_TBG, steps, state, matrices)
    result = kept.outputs, kept.cells[-1]
    return result, (kept, steps, state, matrices)


def _scan_backward(clips: Clips, read: Any, grads: tuple[jax.Array, jax.Array]) -> tuple[Any, ...]:
    kept, steps, first, matrices = read
    of_outputs_TBP, of_cells_BC = grads
    before_TBC = _before(first.cells, kept.cells, steps.keep)
    projection = matrices.projection

    def step(state: LstmState, x: Any) -> tuple[LstmState, tuple[jax.Array, jax.Array]]:
        of_output_BP, gates_BG, cells_BC, outputs_BP, before_BC, here = x
        i, f, g, o = jnp.split(gates_BG, 4, axis=-1)
        squashed_BC = jnp.tanh(cells_BC)
        state = LstmState(state.outputs + of_output_BP, state.cells)
        left = None
        if here.counts is not None:
            counts_B1 = here.counts[:, None]
            left = jax.tree.map(lambda part: part * (1 - counts_B1), state)
            state = jax.tree.map(lambda part: part * counts_B1, state)
        of_projected_BP = state.outputs
        if projection is None:
            of_output_BC = of_projected_BP
        else:
            of_projected_BP = _of_clipped(of_projected_BP, outputs_BP, clips.outputs)
            of_output_BC = of_projected_BP @ projection.T
        of_cells_BC = state.cells + of_output_BC * o * (1 - squashed_BC**2)
        of_cells_BC = _of_clipped(of_cells_BC, cells_BC, clips.cells)
        of_gates_BG = jnp.concatenate(
            [
                of_cells_BC * g * i * (1 - i),
                of_cells_BC * before_BC * f * (1 - f),
                of_cells_BC * i * (1 - g**2),
                of_output_BC * squashed_BC * o * (1 - o),
            ],
            axis=-1,
        )
        before = LstmState(of_gates_BG @ matrices.recurrent.T, of_cells_BC * f)
        before = jax.tree.map(lambda part: part * here.keep[:, None], before)
        if left is not None:
            before = jax.tree.map(jnp.add, before, left)
        return before, (of_gates_BG, of_projected_BP)

    last = LstmState(jnp.zeros_like(first.outputs), of_cells_BC)
    xs = (of_outputs_TBP, kept.gates, kept.cells, kept.outputs, before_TBC, steps)
    of_state, (of_gates_TBG, of_projected_TBP) = jax.lax.scan(step, last, xs, reverse=True)
    outputs_before_TBP = _before(first.outputs, kept.outputs, steps.keep)
    of_recurrent = jnp.einsum("tbp,tbg->pg", outputs_before_TBP, of_gates_TBG)
    of_projection = None
    if projection is not None:
        o_TBC = kept.gates[..., -kept.cells.shape[-1] :]
        cell_outputs_TBC = o_TBC * jnp.tanh(kept.cells)
        of_projection = jnp.einsum("tbc,tbp->cp", cell_outputs_TBC, of_projected_TBP)
    return (
        of_gates_TBG,
        jax.tree.map(jnp.zeros_like, steps),
        of_state,
        LstmMatrices(of_recurrent, of_projection),
    )


def _plain(
    clips: Clips,
    gates_TBG: jax.Array,
    steps: Steps,
    state: LstmState,
    matrices: LstmMatrices,
) -> tuple[jax.Array, jax.Array]:
    return _scan_forward(clips, gates_TBG, steps, state, matrices)[0]


_scan = jax.custom_vjp(_plain, nondiff_argnums=(0,))
_scan.defvjp(_scan_forward, _scan_backward)
