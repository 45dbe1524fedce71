"""Numbers of tokens as numbers of steps: phases that tokens measure, batches that grow with them.

A token here is a position of a batch, padding included: a row has as many as its features have
together. So the tokens of a step are known before the text is read, and schedules, data and
resumption go on counting steps.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_ADVICE = "set TASK_FEATURE_LENGTHS, such as {'inputs': 512}"


class Growth(NamedTuple):
    """A part of a run in which batches have so many rows.

    Attributes:
      rows: the rows of a batch.
      steps: the number of its steps.
    """

    rows: int
    steps: int


def row_tokens(lengths: Mapping[str, int] | None) -> int:
    """The tokens of a row, of all its features.

    Raises:
      ValueError: the lengths are not set.
    """
    if not lengths:
        raise ValueError(f"a number of tokens needs the lengths of rows: {_ADVICE}")
    return sum(lengths.values())


def growth(tokens: int, *, unit: int, batch_size: int, row_tokens: int) -> list[Growth]:
    """Batches of 1, 2, ... units, until they have `batch_size` rows (ModernBERT's code).

    Size k ends when k (k + 1) / (K (K - 1)) of the tokens are read, K units being a whole batch: so
    all sizes last for the same number of steps, but for rounding up to whole ones.

    Args:
      tokens: those of all steps with smaller batches; a step more is read where this does not
        divide.
      unit: the rows by which batches grow.
      batch_size: the rows of a whole batch, a multiple of `unit`.
      row_tokens: the tokens of a row.

    Returns:
      Each size below `batch_size`; sizes that would have no step are left out.

    Raises:
      ValueError: batches cannot grow by the unit.
    """
    if unit < 1 or batch_size % unit or unit == batch_size:
        raise ValueError(
            f"batches of {batch_size} rows cannot grow by {unit} rows: BATCH_WARMUP_ROWS must be a "
            "part of BATCH_SIZE that divides it"
        )
    count = batch_size // unit
    whole = count * (count - 1) // 2
    sizes, read = [], 0
    for k in range(1, count):
        until = -(-tokens * (k * (k + 1) // 2) // whole)
        of_step = k * unit * row_tokens
        steps = max(0, -(-(until - read) // of_step))
        read += steps * of_step
        if steps:
            sizes.append(Growth(k * unit, steps))
    return sizes


def steps_of(tokens: float, parts: Sequence[tuple[int | None, int]]) -> int:
    """The steps after which at least so many tokens are read.

    Args:
      tokens: their number.
      parts: (steps, tokens of a step) of each part of a run; the last has None steps, for the rest.
    """
    steps = 0
    for length, of_step in parts:
        needed = math.ceil(tokens / of_step)
        if length is None or needed <= length:
            return steps + needed
        steps, tokens = steps + length, tokens - length * of_step
    return steps


def tokens_of(steps: int, parts: Sequence[tuple[int | None, int]]) -> int:
    """The tokens of so many steps; `parts` as in `steps_of`."""
    tokens = 0
    for length, of_step in parts:
        here = steps if length is None else min(steps, length)
        tokens, steps = tokens + here * of_step, steps - here
    return tokens


def planned(
    phases: Sequence[Any],
    *,
    batch_size: int,
    lengths: Mapping[str, int] | None,
    microbatches: int | None,
    tokens: int | None,
    rows: int | None,
) -> tuple[Any, ...]:
    """Phases (`run.Phase`) with steps in place of tokens, whose batches grow at first.

    The first phase becomes several, of which each reads on where the one before it stopped.

    Args:
      phases: those of the run, at least one.
      batch_size: the run's, for phases without their own; so are the others.
      lengths: the tokens of each feature.
      microbatches: the parts of a batch; None if they are not set.
      tokens: those in which batches grow; None for batches of one size.
      rows: the rows by which they grow; None for those of a microbatch.

    Raises:
      ValueError: the lengths are not set, or batches cannot grow so.
    """
    counted = [
        in_steps(phase, phase.batch_size or batch_size, phase.lengths or lengths)
        for phase in phases
    ]
    if tokens is None:
        if rows is not None:
            raise ValueError("BATCH_WARMUP_ROWS has no effect without BATCH_WARMUP_TOKENS")
        return tuple(counted)
    first = counted[0]
    size = first.batch_size or batch_size
    microbatches = first.microbatches or microbatches
    if rows is None and (microbatches is None or size % microbatches):
        raise ValueError(
            "BATCH_WARMUP_TOKENS needs the rows by which batches grow: set BATCH_WARMUP_ROWS (or "
            "MICROBATCHES: batches then grow by whole microbatches)"
        )
    of_row = row_tokens(first.lengths or lengths)
    unit = rows or size // (microbatches or 1)
    grown = growth(tokens, unit=unit, batch_size=size, row_tokens=of_row)
    return (*_divided(first, grown, size, microbatches), *counted[1:])


def _divided(
    phase: Any, grown: Sequence[Growth], batch_size: int, microbatches: int | None
) -> list[Any]:
    """A phase as one for each smaller batch, and one for its whole batches."""
    if phase.steps is not None:
        grown = _fitting(grown, phase.steps - 1)
    smaller = [
        dataclasses.replace(
            phase,
            steps=part.steps,
            batch_size=part.rows,
            microbatches=_fewer(microbatches, part.rows, batch_size),
            continues=phase.continues or n > 0,
        )
        for n, part in enumerate(grown)
    ]
    of_smaller = sum(part.steps for part in grown)
    left = None if phase.steps is None else phase.steps - of_smaller
    if left is not None and left < 1:
        raise ValueError(
            f"batches grow for {of_smaller:,} steps, but the first phase has {phase.steps:,}: "
            "lower BATCH_WARMUP_TOKENS, or let the phase last longer"
        )
    whole = dataclasses.replace(phase, steps=left, continues=phase.continues or bool(grown))
    return [*smaller, whole]


def _fitting(grown: Sequence[Growth], room: int) -> list[Growth]:
    """The sizes without the steps too many that come of rounding each size up, in a short run."""
    over = sum(part.steps for part in grown) - room
    if over > len(grown):
        return [*grown]
    left = [*grown]
    while over > 0 and left:
        last = left.pop()
        kept = max(last.steps - over, 0)
        over -= last.steps - kept
        left += [last._replace(steps=kept)] if kept else []
    return left


def _fewer(microbatches: int | None, rows: int, batch_size: int) -> int | None:
    """Microbatches of a smaller batch, as large as those of the whole one where this divides."""
    if microbatches is None or rows * microbatches % batch_size:
        return microbatches
    return rows * microbatches // batch_size


def in_steps(phase: Any, batch_size: int, lengths: Mapping[str, int] | None) -> Any:
    """A phase with steps in place of tokens.

    Raises:
      ValueError: it has both, or the lengths are not set.
    """
    if phase.tokens is None:
        return phase
    if phase.steps is not None:
        raise ValueError("PHASES: a phase has a number of steps or of tokens, not both")
    of_step = batch_size * row_tokens(lengths)
    return dataclasses.replace(phase, tokens=None, steps=max(1, math.ceil(phase.tokens / of_step)))


def parts(
    phases: Sequence[Any], *, batch_size: int, lengths: Mapping[str, int] | None
) -> list[tuple[int | None, int]]:
    """(steps, tokens of a step) of each phase, as `steps_of` reads them."""
    return [
        (
            phase.steps,
            (phase.batch_size or batch_size) * row_tokens(phase.lengths or lengths),
        )
        for phase in phases
    ]


def rows_before(phases: Sequence[Any], number: int, batch_size: int) -> tuple[int, int]:
    """Where phase `number` begins to read: the phase that drew its rows, and the rows before it.

    A phase that `continues` reads the rows that follow those of the phase before.
    """
    origin = number
    while origin and phases[origin].continues:
        origin -= 1
    earlier = itertools.islice(phases, origin, number)
    return origin, sum((phase.batch_size or batch_size) * phase.steps for phase in earlier)
