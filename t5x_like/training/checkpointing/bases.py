"""Parameters that a checkpoint leaves to another one: where they are, and by what it is known."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
from etils import epath

from t5x_like.training.checkpointing import checksums, damage, reading
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.checkpointing.lazy_arrays import LazyArray, read_lazy
from t5x_like.training.optimization.parameter_paths import by_path

PARAMETER_ITEMS = ("params", "ema")
"""The items whose parameters may be left out; an average of what does not train is equal to it."""


@dataclasses.dataclass(frozen=True)
class Base:
    """Parameters of another checkpoint.

    Attributes:
      step: the directory of its step.
      item: its item that has them.
      digest: the digest of the files of the item (`checksums.digest`).
      parameters: {path in this run: path in the other checkpoint}.
    """

    step: str
    item: str
    digest: str
    parameters: Mapping[str, str]

    @classmethod
    def at(cls, step: epath.Path, item: str, parameters: Mapping[str, str]) -> Base:
        """Those of a step.

        Raises:
          CheckpointError: its files have no checksums.
        """
        return cls(str(step), item, _digest(step, item), dict(parameters))

    def check(self) -> None:
        """Raises CheckpointError if the other checkpoint is missing or is another one now."""
        step = epath.Path(self.step)
        if not (step / self.item).exists():
            raise CheckpointError(
                f"{len(self.parameters)} parameters of this run do not train and are in {step}, "
                "which is missing: put it back there, or a link to where it is now"
            )
        if (digest := _digest(step, self.item)) != self.digest:
            raise CheckpointError(
                f"{len(self.parameters)} parameters of this run do not train and are in {step}, "
                f"which has other files now: its digest is {digest[:12]}, not {self.digest[:12]}. "
                "Put the checkpoint back that the run started from"
            )
        if not damage.is_whole(step, f"{self.item}/"):
            raise CheckpointError(
                f"{step}, which has parameters of this run that do not train, is damaged: restore "
                "it from a copy"
            )

    def array(self, path: str, like: jax.ShapeDtypeStruct) -> LazyArray:
        """A parameter of this run, which is read when it is needed."""
        keys = tuple(self.parameters[path].split("."))
        return LazyArray(epath.Path(self.step) / self.item, keys, like)


def of_document(document: Mapping[str, Any]) -> list[Base]:
    """The bases that the JSON of a step names.

    Raises:
      CheckpointError: they are damaged.
    """
    try:
        bases = [Base(**base) for base in document.get("bases", [])]
        texts = [
            text
            for base in bases
            for text in (
                base.step,
                base.item,
                base.digest,
                *itertools.chain(*base.parameters.items()),
            )
        ]
    except (TypeError, AttributeError) as error:
        raise CheckpointError(f"damaged checkpoint: its bases: {error}") from error
    if not all(isinstance(text, str) for text in texts) or any(
        base.item not in PARAMETER_ITEMS for base in bases
    ):
        raise CheckpointError(
            "damaged checkpoint: a part of its bases is not text, or no parameters"
        )
    return bases


def bases_of(
    step: epath.Path, item: str, document: Mapping[str, Any], parameters: Mapping[str, str]
) -> list[Base]:
    """Where parameters of a step are: in itself, or where its JSON says that it left them.

    Args:
      step: the directory of the step.
      item: its item of parameters.
      document: its JSON.
      parameters: {path in another run: path in this one}.

    Raises:
      CheckpointError: the step, or one that has parameters of it, has no checksums or is damaged.
    """
    bases: list[Base] = []
    left = dict(parameters)
    for base in of_document(document):
        paths_there = {
            name: base.parameters[path] for name, path in left.items() if path in base.parameters
        }
        if paths_there:
            base.check()
            bases.append(dataclasses.replace(base, parameters=paths_there))
        left = {name: path for name, path in left.items() if name not in paths_there}
    if left:
        bases.append(Base.at(step, item, left))
        bases[-1].check()
    return bases


def still(bases: Iterable[Base], paths: Collection[str]) -> list[Base]:
    """The bases with these of their parameters alone; none without any."""
    parts = [
        dataclasses.replace(
            base, parameters={path: x for path, x in base.parameters.items() if path in paths}
        )
        for base in bases
    ]
    return [base for base in parts if base.parameters]


def without(item: str, tree: Any, bases: Sequence[Base]) -> Any:
    """A tree of an item without the parameters that are left to bases; without empty parts."""
    if item not in PARAMETER_ITEMS or not bases:
        return tree
    return _pruned(tree, "", {path for base in bases for path in base.parameters})


def completed(
    items: Mapping[str, Any], wanted: Mapping[str, Any], bases: Iterable[Base]
) -> dict[str, Any]:
    """The items that a step has itself, with `LazyArray`s for what is left to bases.

    Args:
      items: {item: tree} of what was read.
      wanted: {item: abstract tree} of all.
      bases: the bases of the step, checked.
    """
    source = {path: base for base in bases for path in base.parameters}

    def filled(item: str, tree: Any) -> Any:
        known = by_path(items[item])
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: (
                source[name].array(name, leaf)
                if (name := jax.tree_util.keystr(path, simple=True, separator=".")) in source
                else known[name]
            ),
            tree,
        )

    return {
        item: filled(item, tree) if item in PARAMETER_ITEMS else items[item]
        for item, tree in wanted.items()
    }


def read_completed(
    read: Callable[[epath.Path, Mapping[str, Any]], dict[str, Any] | None],
    directory: epath.Path,
    wanted: Mapping[str, Any],
    document: Mapping[str, Any],
) -> dict[str, Any] | None:
    """The wanted items of a step, with what it left to bases; None if the step is damaged.

    Args:
      read: `reading.items`, or `reading.lazy_items` for lazy arrays.
      directory: the directory of the step.
      wanted: {item: abstract tree}.
      document: the JSON of the step.

    Raises:
      CheckpointError: a base is missing, is another one now or is damaged; or as `read` does.
    """
    bases = of_document(document)
    for base in bases:
        base.check()
    items = read(directory, {name: without(name, tree, bases) for name, tree in wanted.items()})
    if items is None or not bases:
        return items
    whole = completed(items, wanted, bases)
    return read_lazy(whole) if read is reading.items else whole


def _pruned(tree: Any, above: str, paths: set[str]) -> Any:
    pruned = {}
    for name, part in tree.items():
        path = f"{above}{name}"
        if isinstance(part, dict):
            part = _pruned(part, f"{path}.", paths)
        if path not in paths and not (isinstance(part, dict) and not part):
            pruned[name] = part
    return pruned


def _digest(step: epath.Path, item: str) -> str:
    digest = checksums.digest(step, under=f"{item}/")
    if digest is None:
        raise CheckpointError(
            f"{step} has no checksums, by which a run could know it again: let the run that wrote "
            "it save once more, or keep all parameters in the checkpoints (CHECKPOINT_FROZEN=True)"
        )
    return digest
