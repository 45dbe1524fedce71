"""Learning-rate schedules: each function returns `step -> learning rate` (float32 scalar)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from t5x_like.core.calls import remember_call

Step = int | jax.Array
Schedule = Callable[[Step], jax.Array]


@remember_call
def constant(learning_rate: float, *, warmup_steps: int = 0) -> Schedule:
    """`learning_rate`, after a linear ramp from 0 over `warmup_steps`."""
    _check(warmup_steps, learning_rate=learning_rate)
    return lambda step: _ramp(step, warmup_steps) * jnp.float32(learning_rate)


@remember_call
def rsqrt(
    scale: float = 1.0,
    *,
    warmup_steps: int = 10_000,
    peak: float | None = None,
    total_steps: int | None = None,
    ramp_down: float = 0.0,
) -> Schedule:
    """`scale / sqrt(max(step, warmup_steps))`: flat, then decaying (T5, section 3.1.2).

    In T5 the warm-up is a plateau and not a ramp: 0.01 for the first 10,000 steps. A `peak` is the
    rate of the plateau, from which the scale then follows: `scale` is not read. Unlike the paper,
    the code of T5 1.0 and 1.1 lowers the rate linearly to 0 over the last tenth of the run:
    `ramp_down` of 0.1, which needs `total_steps`.
    """
    _check(warmup_steps, scale=scale, **({} if peak is None else {"peak": peak}))
    if not isinstance(warmup_steps, jax.Array) and warmup_steps < 1:
        raise ValueError(f"rsqrt needs warmup_steps >= 1, not {warmup_steps}.")
    if not 0.0 <= ramp_down < 1.0 or (ramp_down and total_steps is None):
        raise ValueError(
            "rsqrt: ramp_down is a share of total_steps, from 0 to below 1, and needs them: "
            f"{ramp_down}, {total_steps}"
        )

    if peak is not None:
        scale = peak * warmup_steps**0.5

    def schedule(step: Step) -> jax.Array:
        rate = jnp.float32(scale) / jnp.sqrt(jnp.maximum(_float(step), warmup_steps))
        if not ramp_down or total_steps is None:
            return rate
        left = 1.0 - _float(step) / total_steps
        return rate * jnp.clip(left / ramp_down, 0.0, 1.0)

    return schedule


@remember_call
def linear(
    learning_rate: float, *, total_steps: int, warmup_steps: int = 0, final: float = 0.0
) -> Schedule:
    """A ramp from 0 to `learning_rate`, then a straight line to `final` at `total_steps`."""
    return polynomial(
        learning_rate, total_steps=total_steps, warmup_steps=warmup_steps, final=final
    )


@remember_call
def polynomial(
    learning_rate: float,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    power: float = 1.0,
    final: float = 0.0,
) -> Schedule:
    """A ramp from 0 to `learning_rate`, then `final` + the rest times (share left) ** `power`.

    This is fairseq's polynomial_decay (RoBERTa, BART) and XLNet's schedule, whose `final` is a
    thousandth of the peak. It is continuous: the share left is that of the total - warmup steps
    after the warm-up.
    """
    _check(warmup_steps, total_steps, learning_rate=learning_rate, power=power, final=final)

    def schedule(step: Step) -> jax.Array:
        left = (1.0 - _progress(step, warmup_steps, total_steps)) ** power
        return _ramp(step, warmup_steps) * (final + (learning_rate - final) * left)

    return schedule


@remember_call
def bert_linear(learning_rate: float, *, total_steps: int, warmup_steps: int = 0) -> Schedule:
    """BERT's and ALBERT's schedule: a ramp from 0, then a line from `learning_rate` at step 0 to 0.

    The line is counted from the start, so that the rate drops at the end of the warm-up, from the
    peak to 1 - warmup / total of it (google-research/bert, optimization.py). The first update has
    rate 0. fairseq had the same schedule at the time of SpanBERT, except for the one step at the
    end of the warm-up.
    """
    _check(warmup_steps, total_steps, learning_rate=learning_rate)

    def schedule(step: Step) -> jax.Array:
        left = jnp.where(_float(step) < warmup_steps, 1.0, 1.0 - _progress(step, 0, total_steps))
        return learning_rate * _ramp(step, warmup_steps) * left

    return schedule


@remember_call
def warmup_times_linear(
    learning_rate: float, *, total_steps: int, warmup_steps: int = 0
) -> Schedule:
    """ELECTRA's schedule: a ramp from 0 to 1 times a line from `learning_rate` to 0.

    Both are counted from step 0. The rate is continuous, and never reaches `learning_rate` itself
    (google-research/electra, model/optimization.py).
    """
    _check(warmup_steps, total_steps, learning_rate=learning_rate)
    return lambda step: (
        learning_rate * _ramp(step, warmup_steps) * (1.0 - _progress(step, 0, total_steps))
    )


@remember_call
def slanted_triangle(
    learning_rate: float, *, total_steps: int, cut: float = 0.1, ratio: float = 32.0
) -> Schedule:
    """A line up to `learning_rate` over the share `cut` of the steps, and a longer one down again.

    Both ends are `learning_rate` / `ratio` (ULMFiT, Howard and Ruder, 2018, section 3.2). The line
    up takes a step at least.
    """
    _check(0, total_steps, learning_rate=learning_rate)
    if not 0 < cut < 1 or not ratio >= 1:
        raise ValueError(
            "slanted_triangle: cut is a share of total_steps between 0 and 1, and ratio at least "
            f"1; got {cut} and {ratio}"
        )
    top = jnp.maximum(jnp.floor(_float(total_steps) * cut), 1.0)

    def schedule(step: Step) -> jax.Array:
        up = _float(step) / top
        down = 1.0 - (_float(step) - top) / jnp.maximum(total_steps - top, 1.0)
        share = jnp.clip(jnp.minimum(up, down), 0.0, 1.0)
        return learning_rate * (1.0 + share * (ratio - 1.0)) / ratio

    return schedule


@remember_call
def cosine(
    learning_rate: float, *, total_steps: int, warmup_steps: int = 0, final: float = 0.0
) -> Schedule:
    """A ramp from 0 to `learning_rate`, then half a cosine to `final` at `total_steps`."""
    _check(warmup_steps, total_steps, learning_rate=learning_rate, final=final)

    def schedule(step: Step) -> jax.Array:
        left = 0.5 * (1.0 + jnp.cos(jnp.pi * _progress(step, warmup_steps, total_steps)))
        return _ramp(step, warmup_steps) * (final + (learning_rate - final) * left)

    return schedule


ENDS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda done: 1.0 - done,
    "1-sqrt": lambda done: 1.0 - jnp.sqrt(done),
    "cosine": lambda done: 0.5 * (1.0 + jnp.cos(jnp.pi * done)),
}
"""Ends of `warmup_stable_decay`: from 1 to 0, by the share of the end that is done."""


@remember_call
def warmup_stable_decay(
    learning_rate: float,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    decay_share: float = 0.1,
    decay_steps: int | None = None,
    end: str = "1-sqrt",
    final: float = 0.0,
) -> Schedule:
    """A ramp from 0 to `learning_rate`, which then holds until an end that falls to `final`.

    Until the end begins, a run does not depend on `total_steps`: it can be continued from there for
    as long as one likes (Hägele et al., 2024, which compares ends).

    Args:
      learning_rate: the rate of the plateau.
      total_steps: the steps after which the rate is `final`.
      warmup_steps: the steps of the ramp.
      decay_share: the share of `total_steps` that the end takes; 0 for none.
      decay_steps: in place of the share, the steps of the end.
      end: one of `ENDS`: "linear", "1-sqrt" (1 - sqrt(share done), as ModernBERT has it) or
        "cosine".
      final: the rate after the end.

    Raises:
      ValueError: there is no such end, or the ramp and the end overlap.
    """
    _check(warmup_steps, total_steps, learning_rate=learning_rate, final=final)
    if end not in ENDS:
        raise ValueError(f"end must be one of {', '.join(ENDS)}, not {end!r}")
    if isinstance(decay_share, bool) or not 0 <= decay_share <= 1:
        raise ValueError(f"decay_share is a share of total_steps, from 0 to 1, not {decay_share!r}")
    length = decay_share * total_steps if decay_steps is None else decay_steps
    decays = isinstance(length, jax.Array) or length > 0
    counted = not isinstance(warmup_steps, jax.Array) and not isinstance(total_steps, jax.Array)
    if counted and (length < 0 or warmup_steps > total_steps - length):
        raise ValueError(
            f"of {total_steps} steps, the warm-up of {warmup_steps} and the end of {length:g} "
            "overlap: make one of them shorter"
        )

    def schedule(step: Step) -> jax.Array:
        left = jnp.float32(1)
        if decays:
            left = ENDS[end](_progress(step, total_steps - length, total_steps))
        return _ramp(step, warmup_steps) * (final + (learning_rate - final) * left)

    return schedule


@remember_call
def join(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another, each counted from its own start (SciBERT's two phases).

    Args:
      schedules: the schedules, at least one.
      boundaries: the steps at which the second, third, ... takes over.

    Raises:
      ValueError: the boundaries do not rise from above 0, or are not one fewer than the schedules.
    """
    if len(boundaries) != len(schedules) - 1 or any(
        stop <= start for start, stop in itertools.pairwise([0, *boundaries])
    ):
        raise ValueError(
            f"{len(schedules)} schedules need one boundary fewer, each above 0 and the one before: "
            f"{list(boundaries)}"
        )
    return optax.join_schedules(list(schedules), list(boundaries))


def _float(step: Step) -> jax.Array:
    return jnp.asarray(step, jnp.float32)


def _ramp(step: Step, warmup_steps: int) -> jax.Array:
    """A line from 0 at step 0 to 1 at `warmup_steps`, then 1."""
    line = jnp.minimum(1.0, _float(step) / jnp.maximum(warmup_steps, 1))
    return jnp.where(jnp.asarray(warmup_steps) > 0, line, jnp.float32(1.0))


def _progress(step: Step, warmup_steps: float, total_steps: int) -> jax.Array:
    """A line from 0 at the end of the warm-up to 1 at `total_steps`."""
    return jnp.clip((_float(step) - warmup_steps) / (total_steps - warmup_steps), 0.0, 1.0)


def check_rate(name: str, value: float) -> None:
    """Raises ValueError unless `value` is a number of at least 0: below 0 the loss would rise.

    An array is an argument of a program (`schedule_numbers`), and its number was checked before.
    """
    if isinstance(value, jax.Array):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")


def _check(warmup_steps: int, total_steps: float = np.inf, **rates: float) -> None:
    if isinstance(warmup_steps, jax.Array) or isinstance(total_steps, jax.Array):
        return  # as in `check_rate`
    for name, value in (("warmup_steps", warmup_steps), ("total_steps", total_steps)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} must be a number of steps, not {value!r}")
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            "warmup_steps (WARMUP_STEPS) must be at least 0 and below total_steps (TRAIN_STEPS, or "
            f"the steps of a phase): {warmup_steps} and {total_steps}"
        )
    for name, value in rates.items():
        check_rate(name, value)
