"""Groups of an optimizer's state by the phases that trained them, and their state in a new phase.

Averages of a parameter that begins to train start at zero, and so do the counts that correct them;
those of the others go on. So parameters with different histories of being frozen are in different
groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from t5x_like.core.spelling import some
from t5x_like.training.optimization.parameter_paths import by_path, path_name


class Group(NamedTuple):
    """A group of parameters with one history.

    Attributes:
      name: its name in the state of the optimizer.
      before: its name in the phase before; None if it did not train then.
      starts: the layers that begin to train, bool []; or [*stacked] where layers differ.
    """

    name: str
    before: str | None
    starts: np.ndarray


def groups(sizes: Any, masks: Sequence[Any]) -> dict[str, Group]:
    """The group of each parameter that trains, by its path.

    Args:
      sizes: the sizes of the stacked layers of each parameter, as a name; a plain dict.
      masks: `freezing.trainable_mask` of each phase so far, that of this one last, same tree.
    """
    by_paths = [by_path(mask) for mask in masks]
    group_of = {}
    for path, size in by_path(sizes).items():
        history = [mask[path] for mask in by_paths]
        now, earlier = history[-1], history[:-1]
        if not now.any():
            continue
        before = earlier[-1] if earlier else now
        name = size + _label(history)
        known = size + _label(earlier or history) if before.any() else None
        group_of[path] = Group(name, known, np.asarray(now & ~before))
    return group_of


def _label(history: Sequence[np.ndarray]) -> str:
    """A part of a group's name; "" for parameters that have always been trained."""
    words = [name for name, _ in itertools.groupby(map(_said, history))]
    return "" if words == ["all"] else "_" + "_".join(words)


def _said(mask: np.ndarray) -> str:
    if mask.ndim:
        return "layers" + "-".join(map(str, np.flatnonzero(mask)))
    return "all" if mask else "none"


def continued(
    old: Any, fresh: Any, grouped: Mapping[str, Group], *, step: jax.Array
) -> tuple[Any, set[str]]:
    """The state of the optimizer in a new phase, and the names of the groups that go on.

    A group goes on if the optimizer keeps the same of it, in the same shapes and dtypes. Schedules
    count the steps of the run, also in what is new.

    Args:
      old: the state at the end of the phase before, of `layerwise.layerwise`.
      fresh: the state that the optimizer of this phase begins with.
      grouped: the groups of this phase, by paths of parameters.
      step: the steps of the run so far, int32 [].
    """
    fresh = _counting_from(step, fresh)
    states, going_on = {}, set()
    for group in dict.fromkeys((member.name, member.before) for member in grouped.values()):
        name, before = group
        new = fresh.inner_states[name]
        same = old.inner_states.get(before)
        if same is None or not _same_kind(same, new):
            states[name] = new
            continue
        going_on.add(name)
        starts = next(member.starts for member in grouped.values() if member.name == name)
        known = dict(jax.tree_util.tree_leaves_with_path(same))
        states[name] = jax.tree_util.tree_map_with_path(
            lambda path, leaf, known=known, starts=starts: _restarted(known[path], leaf, starts),
            new,
        )
    return fresh._replace(inner_states=states), going_on


def _restarted(old: jax.Array, fresh: jax.Array, starts: np.ndarray) -> jax.Array:
    """The old values, and fresh ones in the layers that begin to train."""
    if not starts.any():
        return old
    return jnp.where(starts.reshape(*starts.shape, *[1] * (fresh.ndim - starts.ndim)), fresh, old)


def _same_kind(old: Any, new: Any) -> bool:
    """Whether all of `new` is in `old`, which has nothing else but other parameters' parts."""
    known = {path: (x.shape, x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(old)}
    wanted = {path: (x.shape, x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(new)}
    return _parts(known) == _parts(wanted) and wanted.items() <= known.items()


def _parts(paths: Any) -> set[str]:
    """The fields of an optimizer's state, without the paths of parameters in them."""
    return {
        path_name(tuple(key for key in path if not isinstance(key, jax.tree_util.DictKey)))
        for path in paths
    }


_SCHEDULED = (
    optax.ScaleByScheduleState,
    optax.InjectHyperparamsState,
    optax.InjectStatefulHyperparamsState,
)


def _counting_from(step: jax.Array, state: Any) -> Any:
    """A new state whose schedules count the steps of the run."""

    def one(part: Any) -> Any:
        if not isinstance(part, _SCHEDULED):
            return part
        changed: dict[str, Any] = {"count": jnp.full_like(part.count, step)}
        if not isinstance(part, optax.ScaleByScheduleState):
            changed["inner_state"] = _counting_from(step, part.inner_state)
        return part._replace(**changed)

    return jax.tree.map(one, state, is_leaf=lambda part: isinstance(part, _SCHEDULED))


def report(grouped: Mapping[str, Group], kept: set[str]) -> str:
    """A line about the state of the optimizer in a new phase."""
    new = [path for path, group in grouped.items() if group.name not in kept]
    partly = [path for path, group in grouped.items() if group.name in kept and group.starts.any()]
    lines = [f"The optimizer keeps its state of {len(grouped) - len(new)} parameters"]
    if partly:
        lines.append(f"begins anew with layers of {some(partly)}")
    if new:
        lines.append(f"begins anew with {some(new)}")
    return ", ".join(lines) + "."
