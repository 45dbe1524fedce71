"""Numbers of tokens in place of TRAIN_STEPS, WARMUP_STEPS and DECAY_STEPS.

They become numbers of steps before the run is built, by the batches that its phases will have. So
schedules and data are functions of the step, whatever measured them.
"""

from __future__ import annotations

import gin

from t5x_like.config import gin_config
from t5x_like.runs.run import Phase
from t5x_like.training import batch_growth

_COUNTED = ("TRAIN", "WARMUP", "DECAY")
"""The numbers of steps or tokens: TRAIN_STEPS or TRAIN_TOKENS, and so on."""


def steps_macro(macro: str) -> str | None:
    """The macro of steps that a macro of tokens sets, such as TRAIN_STEPS; None for others."""
    name, _, unit = macro.rpartition("_")
    return f"{name}_STEPS" if unit == "TOKENS" and name in _COUNTED else None


def usual_total() -> int | None:
    """TRAIN_STEPS of the package's files for this run, where TRAIN_TOKENS says it; or None.

    Raises:
      ValueError: as `follow`.
    """
    tokens = gin_config.default_value("TRAIN_TOKENS")
    return None if tokens is None else batch_growth.steps_of(tokens, _parts())


def estimate_total() -> None:
    """Sets TRAIN_STEPS of a recipe that counts in steps to about the user's TRAIN_TOKENS.

    So the recipe's warm-up and phases can keep their shares (`proportion`). `follow` then sets the
    steps that these phases need.

    Raises:
      ValueError: as `follow`.
    """
    given = {setting.selector for setting, _ in gin_config.given_settings()}
    tokens, usual = _tokens("TRAIN"), gin_config.default_value("TRAIN_STEPS")
    in_tokens = gin_config.default_value("TRAIN_TOKENS") is not None or "TRAIN_STEPS" in given
    if "TRAIN_TOKENS" not in given or tokens is None or in_tokens or not isinstance(usual, int):
        return
    steps = max(1, round(usual * tokens / batch_growth.tokens_of(usual, _parts())))
    gin.bind_parameter("TRAIN_STEPS/gin.macro.value", steps)


def follow() -> list[str]:
    """Sets the numbers of steps in the process's gin configuration that follow from tokens.

    A number of steps of the user's stays, in place of the tokens of a recipe. Whether anything
    reads the steps is seen later (`unread_settings`).

    Returns:
      Lines about them.

    Raises:
      ValueError: a number is not one of tokens, or the user gave steps and tokens of the same; the
        lengths of rows are not set.
    """
    given = {setting.selector for setting, _ in gin_config.given_settings()}
    counted = {name: tokens for name in _COUNTED if (tokens := _tokens(name)) is not None}
    for name in counted:
        if {f"{name}_STEPS", f"{name}_TOKENS"} <= given:
            raise ValueError(f"{name}_STEPS and {name}_TOKENS say the same: give one of them")
    counted = {name: tokens for name, tokens in counted.items() if f"{name}_STEPS" not in given}
    said = _count_phases()
    if not counted:
        return said
    parts = _parts()
    steps = {name: batch_growth.steps_of(tokens, parts) for name, tokens in counted.items()}
    if "DECAY" in counted:
        total = steps.get("TRAIN", gin_config.macro("TRAIN_STEPS"))
        before = batch_growth.tokens_of(total, parts) - counted["DECAY"]
        steps["DECAY"] = total - batch_growth.steps_of(max(before, 0), parts)
    for name, count in steps.items():
        said.append(_bound(f"{name}_STEPS/gin.macro.value", f"{name}_STEPS", count))
    return said


def _bound(parameter: str, name: str, steps: int) -> str:
    """Sets a number of steps, and gives a line about it."""
    gin.bind_parameter(parameter, steps)
    return f"{name} is {steps:,}, by the tokens of the batches."


def _count_phases() -> list[str]:
    """Gives phases of PHASES steps in place of tokens; lines about them."""
    given = gin.config._CONFIG.get(("PHASES", "gin.macro"), {}).get("value")
    phases = gin_config.macro("PHASES") if isinstance(given, list | tuple) else ()
    if not any(isinstance(phase, Phase) and phase.tokens is not None for phase in phases):
        return []
    batch_size, lengths = (gin_config.macro(n) for n in ("BATCH_SIZE", "TASK_FEATURE_LENGTHS"))
    said = []
    for reference, phase in zip(given or (), phases, strict=True):
        if phase.tokens is None:
            continue
        size, of_phase = phase.batch_size or batch_size, phase.lengths or lengths
        steps = batch_growth.in_steps(phase, size, of_phase).steps
        name = str(reference).strip("@()")
        said.append(_bound(f"{name}.steps", f"{name}.steps", steps))
        gin.bind_parameter(f"{name}.tokens", None)
    return said


def _tokens(name: str) -> float | None:
    """The value of `name`_TOKENS; None if it has none, or is not set (by a configuration of old).

    Raises:
      ValueError: it is not a number of tokens.
    """
    if (f"{name}_TOKENS", "gin.macro") not in gin.config._CONFIG:
        return None
    value = gin_config.macro(f"{name}_TOKENS")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and value >= 1):
        raise ValueError(
            f"{name}_TOKENS must be a number of tokens of at least 1, or None, not {value!r}"
        )
    tokens: float | None = value
    return tokens


def _parts() -> list[tuple[int | None, int]]:
    """(steps, tokens of a step) of the phases that the run will have."""
    batch_size, lengths = (gin_config.macro(n) for n in ("BATCH_SIZE", "TASK_FEATURE_LENGTHS"))
    return batch_growth.parts(planned_phases(), batch_size=batch_size, lengths=lengths)


def planned_phases() -> tuple[Phase, ...]:
    """The phases that the configured run will have, with those in which batches grow.

    Raises:
      ValueError: batches cannot grow so, or the lengths of rows are not set.
    """
    batch_size, lengths = (gin_config.macro(n) for n in ("BATCH_SIZE", "TASK_FEATURE_LENGTHS"))
    return batch_growth.planned(
        gin_config.macro("PHASES") or (Phase(),),
        batch_size=batch_size,
        lengths=lengths,
        microbatches=gin_config.macro("MICROBATCHES"),
        tokens=gin_config.macro("BATCH_WARMUP_TOKENS"),
        rows=gin_config.macro("BATCH_WARMUP_ROWS"),
    )
