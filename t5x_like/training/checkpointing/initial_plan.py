"""A plan of the first parameters of a run: which saved ones fit, grow or are left, which are new.

Parameters are known by their paths, such as `encoder.embedding.tokens.table`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.optimization.layer_patterns import LayerPattern

Shape = tuple[int, ...]

_POSITIONS = "positions"
GROWING = ("vocab", _POSITIONS)
"""Logical axes that may be longer than the saved ones: old rows are kept, new are initialised."""
_OF_HEADS = "joined_kv"
"""The logical axis of all heads, one after another."""

_NAMED = 3


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A parameter of the run that starts, with the name of an axis for each dimension.

    Leading dimensions beyond the names are stacked layers, as in `partitioning`. `numbers` are
    those of its layers, [*stacked]; None where it is in none.
    """

    shape: Shape
    axes: tuple[str | None, ...]
    numbers: np.ndarray | None = dataclasses.field(default=None, compare=False)

    @property
    def stacked(self) -> bool:
        return len(self.shape) > len(self.axes)

    @property
    def vocabulary(self) -> int | None:
        """The dimension that has a row for each id; None for other parameters."""
        if "vocab" not in self.axes:
            return None
        return len(self.shape) - len(self.axes) + self.axes.index("vocab")

    @property
    def dimensions(self) -> tuple[str | None, ...]:
        """The name of each dimension; None for stacked layers."""
        return (None,) * (len(self.shape) - len(self.axes)) + self.axes

    def grows_from(self, saved: Shape, *, exchanged: bool = False) -> bool:
        """Whether the saved shape fits, except that this one may have more rows.

        Where the vocabulary is `exchanged`, it may have fewer of those too.
        """
        return len(saved) == len(self.shape) and all(
            old == new or (name in GROWING and old < new) or (exchanged and name == "vocab")
            for name, old, new in zip(self.dimensions, saved, self.shape, strict=True)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The choice of the saved parameters to take.

    Attributes:
      rename: {regular expression: replacement} on the saved paths, in order; several replacements
        for a parameter that goes to several places.
      skip: patterns on paths of the run (`LayerPattern`); a parameter that matches one is
        initialised, or those of its layers that the pattern chooses.
      layers: the layers to take from each saved stack, counted from 0: one for each layer of the
        run; None for all.
      head_width: the width of a head, where larger parameters are tiled with the saved ones and
        deeper stacks repeat layers (`InitFrom.grow`); None where they are not.
      exchanged: whether the ids of the saved tables are those of another vocabulary.
      repeated: as `InitFrom.repeat_positions`; None: rows of positions that are added are
        initialised.
    """

    rename: Mapping[str, str | Sequence[str]] = dataclasses.field(default_factory=dict)
    skip: Sequence[str] = ()
    layers: Sequence[int] | None = None
    head_width: int | None = None
    exchanged: bool = False
    repeated: Sequence[int] | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """The source of a parameter.

    Attributes:
      path, shape: those of the saved parameter.
      layers: its layers to take; None for all.
      tiled: {dimension: the saved index that each of the run's has}, where they are repeated.
      exchanged: whether its rows are those of other ids.
      fresh: which layers of the run's parameter are initialised, bool [*stacked]; None for none.
    """

    path: str
    shape: Shape
    layers: Sequence[int] | None
    tiled: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict, compare=False)
    exchanged: bool = False
    fresh: np.ndarray | None = dataclasses.field(default=None, compare=False)

    @property
    def whole(self) -> bool:
        """Whether the saved values are taken as they are, with rows to spare at most."""
        return self.layers is None and not self.tiled and not self.exchanged and self.fresh is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The source of each parameter of a run, by paths.

    Attributes:
      wanted: all parameters of the run.
      sources: the sources of those that are taken.
      left_over: the paths of saved parameters that are not taken.
    """

    wanted: Mapping[str, Wanted]
    sources: Mapping[str, Source]
    left_over: Sequence[str]

    def report(self) -> list[str]:
        """Lines about the parameters that are taken, have new rows, are fresh or are left over."""
        fresh = [path for path in self.wanted if path not in self.sources]
        grown = [
            f"{path} {source.shape} -> {self.wanted[path].shape}"
            for path, source in self.sources.items()
            if source.whole and source.shape != self.wanted[path].shape
        ]
        tiled = [
            f"{path} {source.shape} -> {self.wanted[path].shape}"
            for path, source in self.sources.items()
            if source.tiled
        ]
        in_part = [
            f"{path}@{','.join(map(str, np.flatnonzero(source.fresh)))}"
            for path, source in self.sources.items()
            if source.fresh is not None
        ]
        lines = [f"{len(self.sources)} of {len(self.wanted)} parameters taken"]
        kinds = {
            "with new rows": grown,
            "tiled": [_some(tiled)] if tiled else [],
            "fresh": fresh,
            "fresh in some layers": in_part,
            "left over": self.left_over,
        }
        return lines + [f"{kind}: {', '.join(paths)}" for kind, paths in kinds.items() if paths]


def make_plan(
    wanted: Mapping[str, Wanted], saved: Mapping[str, Shape], selection: Selection
) -> Plan:
    """The plan for a run and a checkpoint.

    Args:
      wanted: the parameters of the run.
      saved: the shapes in the checkpoint.
      selection: the saved parameters to take, and their new names.

    Raises:
      CheckpointError: shapes differ by more than rows to add, nothing at all fits, or a pattern
        matches nothing.
    """
    origins = _rename_paths(saved, selection.rename)
    skipped = _paths_to_skip(wanted, selection.skip)
    sources: dict[str, Source] = {}
    different = []
    for path, leaf in wanted.items():
        fresh = skipped.get(path, np.array(False))
        if fresh.all() or path not in origins:
            continue
        origin = origins[path]
        layers = _layers(leaf, saved[origin], selection)
        tiled = _tiled(leaf, saved[origin], selection.head_width)
        tiled |= _repeated(leaf, saved[origin], selection.repeated)
        exchanged = selection.exchanged and leaf.vocabulary is not None
        grown = tuple(leaf.shape[n] if n in tiled else x for n, x in enumerate(saved[origin]))
        if problem := _problem(leaf, grown, layers, exchanged=exchanged):
            different.append(f"{path}: {saved[origin]} saved, {leaf.shape} in this run{problem}")
        sources[path] = Source(
            origin, saved[origin], layers, tiled, exchanged, fresh if fresh.any() else None
        )
    if different:
        raise CheckpointError(
            f"parameters of other shapes: {_some(different, '; ')}. Change the model, or leave "
            "them out with `skip`"
        )
    if not sources:
        raise CheckpointError(
            f"no parameter of the checkpoint fits: it has {_some(list(origins))}; this run has "
            f"{_some(list(wanted))}. `rename` maps the former to the latter"
        )
    used = {source.path for source in sources.values()}
    return Plan(
        wanted=wanted, sources=sources, left_over=[path for path in saved if path not in used]
    )


def _rename_paths(
    saved: Iterable[str], rename: Mapping[str, str | Sequence[str]]
) -> dict[str, str]:
    """{new path: saved path}."""
    names = [(path, path) for path in saved]
    for pattern, replacement in rename.items():
        several = [replacement] if isinstance(replacement, str) else replacement
        changed = [
            (path, new)
            for path, name in names
            for new in dict.fromkeys(re.sub(pattern, each, name) for each in several)
        ]
        if changed == names:
            raise CheckpointError(
                f"`rename` has {pattern!r}, which changes no path of the checkpoint: "
                f"{_some([name for _, name in names])}"
            )
        names = changed
    origins: dict[str, str] = {}
    for path, name in names:
        if name in origins:
            raise CheckpointError(f"`rename` makes {name} of both {origins[name]} and {path}")
        origins[name] = path
    return origins


def _paths_to_skip(wanted: Mapping[str, Wanted], skip: Sequence[str]) -> dict[str, np.ndarray]:
    """Which layers of each parameter are initialised: bool [*stacked], or [] for the whole."""
    skipped: dict[str, np.ndarray] = {}
    for text in skip:
        pattern = LayerPattern.read(text)
        matching = {path: x for path, x in wanted.items() if re.search(pattern.expression, path)}
        if not matching:
            raise CheckpointError(
                f"`skip` has {text!r}, which is in no path of this run: {_some([*wanted])}"
            )
        in_layers = [leaf.numbers for leaf in matching.values() if leaf.numbers is not None]
        if problem := pattern.problem(in_layers):
            raise CheckpointError(f"`skip` has {text!r}, but {problem}")
        for path, leaf in matching.items():
            skipped[path] = skipped.get(path, np.array(False)) | pattern.chosen(leaf.numbers)
    return skipped


def _layers(leaf: Wanted, saved: Shape, selection: Selection) -> Sequence[int] | None:
    """The saved layers to take, in the order of the run's; None for all as they are.

    A deeper stack that grows repeats layers and keeps their order: number i of m starts from the
    one nearest to i * n / m of n (Rae et al., 2021, appendix G3.3). Layers are numbered as in the
    model, of which a stack may lack the first ones.
    """
    if not leaf.stacked:
        return None
    lacking = 0 if leaf.numbers is None else int(leaf.numbers.flat[0])
    if selection.layers is not None:
        later = [max(layer - lacking, 0) for layer in selection.layers[lacking:]]
        return later if lacking else selection.layers
    if selection.head_width is None:
        return None
    if len(saved) != len(leaf.shape) or saved[0] >= leaf.shape[0]:
        return None
    depth, saved_depth = leaf.shape[0] + lacking, saved[0] + lacking
    numbers = np.rint(np.arange(lacking, depth) * saved_depth / depth) - lacking
    return [*map(int, np.clip(numbers, 0, saved[0] - 1))]


def _tiled(leaf: Wanted, saved: Shape, head_width: int | None) -> dict[int, np.ndarray]:
    """{dimension that is longer than the saved one: the saved index that each of its has}.

    The saved values are in the middle; before and after them they are repeated. Heads stay whole.
    """
    if head_width is None or len(saved) != len(leaf.shape):
        return {}
    tiled = {}
    first = len(leaf.shape) - len(leaf.axes)
    for n, name in enumerate(leaf.dimensions):
        if n >= first and saved[n] < leaf.shape[n] and name not in GROWING:
            unit = head_width if name == _OF_HEADS else 1
            start = (leaf.shape[n] - saved[n]) // (2 * unit) * unit
            tiled[n] = (np.arange(leaf.shape[n]) - start) % saved[n]
    return tiled


def _repeated(leaf: Wanted, saved: Shape, repeated: Sequence[int] | None) -> dict[int, np.ndarray]:
    """The same for a table of positions; raises CheckpointError if it has no such rows."""
    if repeated is None or _POSITIONS not in leaf.axes or len(saved) != len(leaf.shape):
        return {}
    first, count, kept = (*repeated, repeated[0])[:3]
    n = len(leaf.shape) - len(leaf.axes) + leaf.axes.index(_POSITIONS)
    if first + count > saved[n]:
        raise CheckpointError(
            f"`repeat_positions` has {count} rows from {first} on, but the saved table of "
            f"positions has {saved[n]}"
        )
    rows = np.arange(leaf.shape[n])
    return {n: np.where(rows < kept, rows, first + (rows - kept) % count)}


def _problem(
    leaf: Wanted, saved: Shape, layers: Sequence[int] | None, *, exchanged: bool = False
) -> str:
    """Why `leaf` cannot start from the saved shape, and the remedy; "" if it can."""
    if len(saved) != len(leaf.shape):
        return ", which cannot be made to fit"
    chosen = saved
    if layers is not None:
        if not all(0 <= layer < saved[0] for layer in layers):
            return f", which has no `layers` {list(layers)}, counted from 0"
        chosen = (len(layers), *saved[1:])
    if leaf.grows_from(chosen, exchanged=exchanged):
        return ""
    if leaf.stacked and saved[1:] == leaf.shape[1:]:
        return f", of which `layers` must name {leaf.shape[0]}"
    if dataclasses.replace(leaf, shape=chosen).grows_from(leaf.shape):
        return ", which cannot have fewer rows"
    return ", which cannot be made to fit"


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return between.join(names[:_NAMED]) + more
