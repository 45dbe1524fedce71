"""The steps of a run, which follow from how often its rows are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_like.runs.settings.finetuning import reading


def steps(
    usual: Mapping[str, Any], tasks: Sequence[reading.Rows], average_last: float | None
) -> dict[str, int]:
    """The macros of steps, which follow from the epochs and the rows.

    Args:
      usual: the settings of the run.
      tasks: the rows of each task. An epoch is as many rows as all tasks have.
      average_last: the last epochs after whose steps the parameters are averaged; None for none.

    Raises:
      ValueError: there are not so many epochs, or these have no step.
    """
    batch, share = usual["BATCH_SIZE"], usual["CORPUS_VALIDATION"]
    drawn = sum(int(rows.train * share) for rows in tasks if rows.held_out is None)
    an_epoch = math.ceil((sum(rows.train for rows in tasks) - drawn) / batch)
    held_out = max(rows.held_out or rows.unpacked for rows in tasks)
    steps = max(1, round(an_epoch * usual["EPOCHS"]))
    average = {}
    if average_last is not None:
        last = round(an_epoch * average_last)
        if not 0 < last <= steps:
            raise ValueError(
                f"average_last is above 0 and at most the {usual['EPOCHS']:g} epochs of the run, "
                f"and has a step at least: {average_last:g} epochs have {last} of {steps}"
            )
        average = {"AVERAGE_FROM": steps - last}
    return {
        **average,
        "TRAIN_STEPS": steps,
        "WARMUP_STEPS": int(steps * usual["WARMUP_SHARE"]),
        "EVAL_PERIOD": min(an_epoch, steps),
        "CHECKPOINT_PERIOD": min(an_epoch, steps),
        "EVAL_BATCHES": math.ceil(held_out / batch),
    }
