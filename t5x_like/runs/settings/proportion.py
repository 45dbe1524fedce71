"""Scales the numbers of steps in a recipe with TRAIN_STEPS: its warm-up, its phases.

`--recipe bert-mini --gin.TRAIN_STEPS=60` is a short form of the run: each number of steps in the
recipe keeps its share of the total, unless the user sets it. A run that is resumed keeps the
numbers that it began with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gin

from t5x_like.config import gin_config, gin_text
from t5x_like.core.buckets import storage
from t5x_like.runs import run_directory

_TOTAL = "TRAIN_STEPS"
_TOTALS = (_TOTAL, "TRAIN_TOKENS")
_OF_PHASES = ("steps", "tokens")

Key = tuple[str, str, str]
"""(scope, selector, parameter) of a binding; a macro is ("NAME", "gin.macro", "value")."""


def follow(usual: int | None = None) -> list[str]:
    """Scales the numbers of steps in the process's gin configuration.

    Args:
      usual: TRAIN_STEPS of the recipe; None for the value in its file.

    Returns:
      Lines about the changes.

    Raises:
      ValueError: TRAIN_STEPS is not a number of steps.
    """
    total, usual = gin_config.macro(_TOTAL), usual or gin_config.default_value(_TOTAL)
    if not isinstance(total, int) or total < 1:
        raise ValueError(f"{_TOTAL} must be a whole number of at least 1, not {total!r}")
    saved = _saved_steps()
    given_settings = {binding.setting for binding in gin_config.given_settings()}
    asked = any(setting.selector in _TOTALS for setting in given_settings)
    if not saved and not (asked and isinstance(usual, int)):
        return []
    changed = []
    for key, steps in _steps():
        name = _name(key)
        if name in map(str, given_settings):
            continue
        if saved:
            new = saved.get(name, steps)
        else:
            least = 0 if "warmup" in name.lower() else 1
            new = max(steps * total // usual, least)
        if new != steps:
            gin.bind_parameter(key, new)
            changed.append(f"{name} {steps:,} -> {new:,}")
    if not changed:
        return []
    why = "as the run began" if saved else f"in proportion to {_TOTAL} {usual:,} -> {total:,}"
    return [f"Steps {why}: {', '.join(changed)}. Set them yourself to change them."]


def _steps() -> Iterator[tuple[Key, int]]:
    """The numbers of steps and tokens in a configuration, without totals and T5's plateau.

    The plateau of `schedules.rsqrt` decides how high the learning rate is, so it is not scaled.
    """
    in_phases = bool(gin_config.macro("PHASES"))
    for (scope, selector), values in [*gin.config._CONFIG.items()]:
        for parameter, value in values.items():
            counts = scope.endswith(("_STEPS", "_TOKENS")) and scope not in _TOTALS
            macro = selector == "gin.macro" and counts and not _is_in_tokens(scope)
            phase = in_phases and selector.endswith("run.Phase") and parameter in _OF_PHASES
            schedule = ".schedules." in selector and parameter.endswith("_steps")
            rsqrt = selector.endswith(".rsqrt")
            if (macro or phase or (schedule and not rsqrt)) and isinstance(value, int):
                yield (scope, selector, parameter), value


def _is_in_tokens(macro: str) -> bool:
    """Whether a macro of steps follows from one of tokens (`token_counts`)."""
    tokens = gin.config._CONFIG.get((macro.replace("_STEPS", "_TOKENS"), "gin.macro"), {})
    return macro.endswith("_STEPS") and tokens.get("value") is not None


def _name(key: Key) -> str:
    """The name as `gin_text.Binding` writes it."""
    scope, selector, parameter = key
    if selector == "gin.macro":
        return scope
    short = ".".join(selector.split(".")[-2:])
    return f"{scope}/{short}.{parameter}" if scope else f"{short}.{parameter}"


def _saved_steps() -> dict[str, int]:
    """The steps of the run in MODEL_DIR, by the names of this configuration; empty if it has none.

    The text of a run made in Python does not have these names. There a macro is the value of a
    parameter that it sets, and the phases stand in the same order.
    """
    directory = gin_config.macro("MODEL_DIR")
    if not directory or not run_directory.has_config(path := storage.path(directory)):
        return {}
    try:
        saved = gin_text.read(run_directory.read_config(path))
    except SyntaxError:  # a damaged configuration is not needed to resume
        return {}
    current = gin_text.read(gin_config.config_text())
    steps = {str(name): value for name, value in saved.values.items() if isinstance(value, int)}
    for name, value in current.values.items():
        if isinstance(value, gin_text.Macro) and str(name) in steps:
            steps.setdefault(str(value), steps[str(name)])
    for here, there in zip(_phases(current), _phases(saved), strict=False):
        if f"{there}.steps" in steps:
            steps.setdefault(f"{here}.steps", steps[f"{there}.steps"])
    return steps


def _phases(text: gin_text.GinText) -> Sequence[str]:
    """The names of the phases in their order."""
    phases = text.values.get(gin_text.Binding("", "PHASES", ""))
    return phases if isinstance(phases, list | tuple) else ()
