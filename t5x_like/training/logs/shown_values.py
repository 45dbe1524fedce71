"""Values of steps and evaluations as the lines that the user of a run sees."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

_WIDTH = 80


def of_steps(values: Mapping[str, float]) -> list[str]:
    """The main values of steps, without their pace."""
    shown = [f"loss {values['loss']:.4f}"] if "loss" in values else []
    if "tokens_per_second" in values:
        shown.append(f"{values['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in values:
        shown.append(f"MFU {values['mfu']:.1%}")
    return shown


def of_evaluation(values: Mapping[str, float], *, compared: Collection[str]) -> Iterator[str]:
    """The values of an evaluation: all of one task, or for each of several the main ones.

    A line of one of several tasks has its loss, then what the task measures itself, then as much of
    the rest as there is room for.

    Args:
      values: {"<task>/<metric>": value}.
      compared: the names of values that have baselines, as those of a task's own metrics have not.
    """
    tasks: dict[str, dict[str, str]] = {}
    for name, value in values.items():
        task, _, metric = name.rpartition("/")
        loss = values.get(f"{task}/loss", math.nan)
        tasks.setdefault(task, {})[metric] = f"{metric} {number(value, loss, '.4g')}"
    if len(tasks) < 2:
        values_shown = (
            f"{task}/{text}" for task, metrics in tasks.items() for text in metrics.values()
        )
        yield "evaluation: " + "  ".join(values_shown)
        return
    yield f"evaluation of {len(tasks)} tasks (metrics.jsonl has all metrics)"
    width = max(map(len, tasks))
    for task, shown in tasks.items():
        line = f"  {task:{width}}"
        for metric in sorted(
            shown, key=lambda shown_name: _place(shown_name, f"{task}/{shown_name}" in compared)
        ):
            if len(line) + 2 + len(shown[metric]) > _WIDTH:
                break
            line += f"  {shown[metric]}"
        yield line


def _place(metric: str, compared: bool) -> int:
    if metric in ("loss", "token_loss"):
        return 0
    return 3 if metric == "z_loss" else 1 + compared


def number(value: float, loss: float, form: str) -> str:
    """A metric as text; "-" for a share of nothing, which is nan where the `loss` is not."""
    return "-" if math.isnan(value) and not math.isnan(loss) else format(value, form)
