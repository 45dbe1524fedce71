"""The arrays of T5X's checkpoints: zarr folders beside a msgpack file, or what Orbax wrote."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import serialization

ROOT = "target."
"""The prefix of the names of parameters here."""

_ROOTS = (ROOT, "params.", "_optimizer.target.")
"""Their prefixes in checkpoints of different versions."""

_STATE = "checkpoint"
_ITEMS = ("", "state", "default")
"""Folders of a step that may hold its arrays; Orbax has one for each thing that it saves."""

_DATABASE = "manifest.ocdbt"
_OF_ORBAX = ("_METADATA", "_CHECKPOINT_METADATA", _DATABASE)
_KINDS = {".zarray": "zarr", "zarr.json": "zarr3"}
"""The file that describes an array, and the driver of TensorStore that reads it."""

_Stored = Mapping[str, Callable[[], np.ndarray]]


class Arrays:
    """The parameters of a checkpoint by their dotted names, read when asked for.

    Raises:
      FileNotFoundError: the directory is not a checkpoint of T5X, or one without parameters.
      ValueError: it is damaged, holds several steps, or was written by TensorFlow.
    """

    def __init__(self, directory: Path) -> None:
        if _is_of_tensorflow(directory):
            raise ValueError(
                f"{directory} was written by TensorFlow, as the first public T5s were by Mesh "
                "TensorFlow: it is not read. T5X's conversions of those are in "
                "gs://t5-data/pretrained_models/t5x/, such as t5_base/checkpoint_999900: copy one "
                "(`gsutil -m cp -r`) and import it with --model t5_base. Or `t5x_like import "
                "--from google-t5/t5-base`, which needs no --model"
            )
        if steps := _steps(directory):
            raise ValueError(
                f"{directory} holds T5X's checkpoints by their steps: name one, such as {steps[-1]}"
            )
        arrays: dict[str, Callable[[], np.ndarray]] = {}
        for item in _ITEMS:
            arrays |= _stored(directory / item)
        self._parameters = _parameters(arrays)
        if not self._parameters:
            roots = ", ".join(f"{root}*" for root in _ROOTS)
            names = ", ".join(sorted(arrays)[:4]) or "no array at all"
            raise FileNotFoundError(
                f"{directory} is not a checkpoint of T5X with parameters: it has none of {roots}, "
                f"but {names}; name the directory of one step, such as checkpoint_1000000"
            )

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._parameters))

    def read(self, name: str) -> np.ndarray:
        """The array as float32, whatever its stored type.

        Raises:
          ValueError: it is damaged, or no floating-point number.
        """
        array = self._parameters[name]()
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"{name} is of type {array.dtype}: early versions of T5X stored bfloat16 in this "
                "way; save the checkpoint again with a later one"
            )
        return array.astype(np.float32, copy=False)


def is_checkpoint(directory: Path) -> bool:
    """Whether a directory looks like T5X's, or like a checkpoint of Orbax or TensorFlow."""
    zarr = any(directory.glob(f"{ROOT}*/.zarray"))
    known = (directory / _STATE).is_file() or zarr or _steps(directory)
    return bool(known) or _is_of_orbax(directory) or _is_of_tensorflow(directory)


def advice(file: Path) -> str:
    """Advice on the path to give in place of a file, which may be T5X's file `checkpoint`."""
    with file.open("rb") as opened:
        first = opened.read(1)
    if not first or not 0x80 < first[0] < 0x90:  # msgpack: a map of a few names
        return f"name the directory that holds it, {file.parent}"
    if file.name == _STATE:
        return f"it is a part of a checkpoint of T5X: name its folder, {file.parent}"
    return (
        "it may be a whole checkpoint of T5X: move it into a folder of its own, under the name "
        f"{_STATE}, and name the folder"
    )


def _is_of_tensorflow(directory: Path) -> bool:
    """Whether TensorFlow wrote it: pairs of files, and a text file that names the newest."""
    state = directory / _STATE
    if state.is_file() and state.read_bytes()[:22] == b"model_checkpoint_path:":
        return True
    return any(directory.glob("*.ckpt*.index"))


def _is_of_orbax(directory: Path) -> bool:
    """Whether it has metadata of Orbax, or is of its first releases, which wrote a msgpack file."""
    parts = [path for path in directory.glob("*") if path.is_dir()]
    if any((part / _STATE).is_file() for part in parts):
        return True
    return any((folder / name).exists() for folder in (directory, *parts) for name in _OF_ORBAX)


def _steps(directory: Path) -> list[Path]:
    """The checkpoints in a folder of several, by their steps."""
    folders = [path for path in directory.glob(f"{_STATE}_*") if path.is_dir()]
    numbered = {path.name.rpartition("_")[2]: path for path in folders}
    return [numbered[step] for step in sorted(filter(str.isdigit, numbered), key=int)]


def _parameters(arrays: _Stored) -> _Stored:
    """Those arrays that are parameters, under the names of `ROOT`."""
    for root in _ROOTS:
        parameters = {
            ROOT + n.removeprefix(root): x for n, x in arrays.items() if n.startswith(root)
        }
        if parameters:
            return parameters
    return {}


def _stored(folder: Path) -> _Stored:
    """All arrays of a folder by their names: in its msgpack file, in zarr, in its database."""
    arrays: dict[str, Callable[[], np.ndarray]] = {}
    for name, array in _inline(folder / _STATE).items():
        arrays[name] = functools.partial(np.asarray, array)
    for description, driver in _KINDS.items():
        for path in folder.glob(f"*/{description}"):
            store = {"driver": "file", "path": str(path.parent)}
            arrays[path.parent.name] = functools.partial(_read, driver, store)
    if (folder / _DATABASE).is_file():
        arrays |= _in_database(folder)
    return arrays


def _in_database(folder: Path) -> _Stored:
    """The arrays of a database of TensorStore, which holds the files of all of them."""
    import tensorstore  # orbax brings it

    database = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder}/"}}
    try:
        keys = tensorstore.KvStore.open(database).result().list().result()
    except ValueError as error:
        raise ValueError(f"{folder} is damaged, or no database of arrays ({error})") from error
    arrays = {}
    for key in keys:
        name, _, file = key.decode().rpartition("/")
        if file in _KINDS:
            arrays[name] = functools.partial(_read, _KINDS[file], {**database, "path": f"{name}/"})
    return arrays


def _read(driver: str, store: Mapping[str, Any]) -> np.ndarray:
    import tensorstore

    try:
        opened = tensorstore.open({"driver": driver, "kvstore": dict(store)}, open=True).result()
        return np.asarray(opened.read().result())
    except ValueError as error:
        where = store["base"]["path"] + store["path"] if "base" in store else store["path"]
        raise ValueError(f"{where} is damaged, or not an array of T5X ({error})") from error


def _inline(state: Path) -> dict[str, np.ndarray]:
    """Arrays that are small enough to be stored in the msgpack file itself."""
    if not state.is_file():
        return {}
    try:
        tree = serialization.msgpack_restore(state.read_bytes())
    except Exception as error:  # the library raises whatever its parser raised
        raise ValueError(f"{state} is damaged, or not a state of T5X: {error!r}") from error
    tree = tree.get("optimizer", tree) if isinstance(tree, dict) else {}
    arrays: dict[str, np.ndarray] = {}

    def visit(node: Any, name: str) -> None:
        if isinstance(node, np.ndarray):
            arrays[name] = node
        elif isinstance(node, dict):
            for key, value in node.items():
                visit(value, f"{name}.{key}" if name else key)

    visit(tree, "")
    return arrays
