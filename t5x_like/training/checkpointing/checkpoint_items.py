"""The items of a training state in a checkpoint, and a check that a saved one fits this run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from t5x_like.core.protocols.completers import Kept
from t5x_like.core.spelling import differences
from t5x_like.training.step import TrainState

_FILE_BYTES = 64 * 2**20


Metadata = Mapping[str, Any]


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or none can be used; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class RestoredState:
    """A saved state (or parameters alone), with the metadata and the step of its checkpoint.

    `kept` is what a completer keeps; {} beside parameters alone.
    """

    state: Any
    metadata: Metadata
    step: int
    kept: Kept = dataclasses.field(default_factory=dict)


COMPLETER = "completer"
"""The item of what a completer keeps."""


def items_of(state: TrainState, kept: Kept) -> dict[str, Any]:
    """{name: tree} of the Orbax items to save; empty trees are left out."""
    training = {"step": state.step, "opt_state": state.opt_state}
    if jax.tree.leaves(state.carry):
        training["carry"] = state.carry
    items = {"params": state.params, "training": training}
    if jax.tree.leaves(kept):
        items[COMPLETER] = kept
    return items if state.ema is None else items | {"ema": state.ema}


def save_arguments(tree: Any) -> ocp.args.PyTreeSave:
    """Arguments to save a tree file by file; memory holds the content of a file once more."""
    return ocp.args.PyTreeSave(tree, ocdbt_target_data_file_size=_FILE_BYTES)


def describe(items: Mapping[str, Any]) -> dict[str, list]:
    """{path: [shape, dtype]} of every leaf, to recognise another model without reading weights."""
    return {
        f"{name}/{jax.tree_util.keystr(path, simple=True, separator='/')}": [
            list(leaf.shape),
            str(leaf.dtype),
        ]
        for name, tree in items.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def checked_document(document: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a step, which has the run's `metadata` and the result of `describe` as `leaves`.

    Raises:
      ValueError: it has not.
    """
    metadata, leaves = document.get("metadata"), document.get("leaves")
    if not isinstance(metadata, dict) or not isinstance(leaves, dict):
        raise ValueError("it has no metadata, or names no arrays")
    for path, leaf in leaves.items():
        try:
            shape, dtype = leaf
            if not all(type(length) is int and length >= 0 for length in shape):
                raise ValueError("lengths are whole numbers from 0 on")
            jax.ShapeDtypeStruct(tuple(shape), dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is not an array: {error}") from error
    if {str(above) for path in leaves for above in PurePosixPath(path).parents} & leaves.keys():
        raise ValueError("an array is inside another")
    return document


def abstract_arrays(leaves: Mapping[str, Any], *, item: str) -> dict[str, Any]:
    """The abstract arrays of one item, a nested dict, from the result of `describe`."""
    nested: dict[str, Any] = {}
    for path, (shape, dtype) in leaves.items():
        first, *parents, name = path.split("/")
        if first == item:
            node = nested
            for parent in parents:
                node = node.setdefault(parent, {})
            node[name] = jax.ShapeDtypeStruct(tuple(shape), dtype)
    return nested


def check_number(directory: epath.Path, number: int) -> None:
    """Raises CheckpointError if a step's folder was given another number than it was saved with."""
    if directory.name != str(number):
        raise CheckpointError(
            f"checkpoint {directory}: its state is that of step {number}, whose number a folder "
            "needs"
        )


def check_leaves(where: str, saved: Mapping[str, Any], *, leaves: Mapping[str, Any]) -> None:
    """Raises CheckpointError unless the items of the wanted leaves hold exactly these leaves."""
    items = {name.partition("/")[0] for name in leaves}
    saved = {name: leaf for name, leaf in saved.items() if name.partition("/")[0] in items}
    text = "{name}: {first} saved, {second} in this run"
    if different := differences(saved, leaves, text):
        raise CheckpointError(
            f"{where} was saved by another model, optimizer or batch size: "
            f"{different}. Use the configuration saved with it, or start in "
            "another directory."
        )
