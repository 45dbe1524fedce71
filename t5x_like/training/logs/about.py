"""The facts about a run that each of its starts writes down in `starts.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]


def known(value: Any) -> dict[str, Any]:
    """The facts of a line that have the types they should have: anybody may have written it.

    - `hosts`: one for each process, with the fields of `inventory.Host`.
    - `versions`, `code`: of packages, and of our own files (`code_version`); text, or null.
    - `phases`: each with its `start`, the steps before it; its `batch_size`; and its `texts` by
      name: `tokens`, `rows` in an epoch, `share` of the rows.
    - `parameters`, `train_steps`: numbers.
    - `best_metric`: the name of the metric by which a checkpoint is best.
    """
    facts = value if isinstance(value, dict) else {}
    return {name: facts[name] for name, check in _FACTS.items() if check(facts.get(name))}


def _has(fields: Mapping[str, Check]) -> Check:
    return lambda value: (
        isinstance(value, dict) and all(check(value.get(name)) for name, check in fields.items())
    )


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _each_value(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**80


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < 2.0**200


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_detail(value: Any) -> bool:
    return value is None or isinstance(value, str | bool)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


_HOST = _has(
    {
        "name": _is_text,
        "device_kind": _is_text,
        "devices": _is_count,
        "device_bytes": _is_count,
        "host_bytes": _is_count,
        "cores": _is_count,
    }
)
_TEXT = _has({"tokens": _or_none(_is_count), "rows": _or_none(_is_count), "share": _is_number})
_PHASE = _has({"start": _is_count, "batch_size": _is_count, "texts": _each_value(_TEXT)})
_FACTS: Mapping[str, Check] = {
    "hosts": _each(_HOST),
    "versions": _each_value(_is_detail),
    "code": _each_value(_is_detail),
    "phases": _each(_PHASE),
    "parameters": _is_count,
    "train_steps": _is_count,
    "best_metric": _is_text,
}
