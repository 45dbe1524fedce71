"""Muon for the matrices of the layers, and AdamW for all other parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import optax

from t5x_like.core.calls import remember_call
from t5x_like.training.optimization.methods.hidden_matrices import hidden_matrices
from t5x_like.training.optimization.optimizers import Optimizer, with_rate
from t5x_like.training.optimization.schedules import Schedule, check_rate
from t5x_like.training.optimization.weight_decay import decay_mask


@remember_call
def muon(
    learning_rate: float | Schedule,
    *,
    beta: float = 0.95,
    nesterov: bool = True,
    iterations: int = 5,
    eps: float = 1e-8,
    consistent_rms: float | None = 0.2,
    weight_decay: float = 0.1,
    not_decayed: Sequence[str] | None = None,
    adam_share: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.95,
) -> Optimizer:
    """Muon (Jordan et al., 2024) by `optax.contrib.muon`, and AdamW.

    The average of the gradients of each matrix is made nearly orthogonal by Newton-Schulz
    iterations, in float32. `hidden_matrices` says which parameters are such matrices; AdamW updates
    the others.

    Args:
      learning_rate: the rate of the matrices, a number or a schedule.
      beta: the decay of the average of their gradients.
      nesterov: whether the update looks one step ahead, in both methods.
      iterations: the Newton-Schulz iterations of an update.
      eps: a number that is added to norms, and in AdamW to the root of the second moment.
      consistent_rms: updates of a matrix [in, out] are multiplied by this number and
        sqrt(max(in, out)), so that their root mean square is about this number, as AdamW's is about
        0.2 (Liu et al., 2025, section 2.2). Rates and decays of AdamW then suit. None multiplies by
        sqrt(max(1, out / in)) instead, as the authors' code does, whose rate is 0.02.
      weight_decay: the decay of a parameter in a step at learning rate 1.
      not_decayed: names of parameters without decay, as in `optimizers.adamw`.
      adam_share: the rate of AdamW as a share of `learning_rate`; the authors' code has 0.015.
      b1: the decay of AdamW's average of gradients.
      b2: the decay of its average of their squares.

    Raises:
      ValueError: a rate is below 0.
    """
    check_rate("weight_decay", weight_decay)
    check_rate("adam_share", adam_share)
    mask = functools.partial(decay_mask, not_decayed=not_decayed)
    matrices = optax.contrib.muon(
        learning_rate,
        ns_steps=iterations,
        beta=beta,
        eps=eps,
        nesterov=nesterov,
        consistent_rms=consistent_rms,
        weight_decay=weight_decay,
        weight_decay_mask=mask,
    )
    others = optax.chain(
        optax.scale_by_adam(b1=b1, b2=b2, eps=eps, nesterov=nesterov),
        optax.add_decayed_weights(weight_decay, mask),
        optax.scale_by_learning_rate(learning_rate),
        optax.scale(adam_share),
    )
    tx = optax.partition({"matrices": matrices, "others": others}, _kinds)
    return with_rate(tx, learning_rate)


def _kinds(params: Any) -> Any:
    names = {True: "matrices", False: "others"}
    return jax.tree.map(names.__getitem__, hidden_matrices(params))
