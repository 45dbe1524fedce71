"""The weights of a Hugging Face directory: safetensors files, read lazily, written in shards."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from t5x_like.core import whole_files

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
"""The pattern of the names of shards."""
SHARD_BYTES = 1 << 29

_PARTIAL = ".partial"
_FOREIGN = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.ckpt.index")
# Importing jnp.bfloat16 also makes the type known to NumPy, which the library relies on.
_FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": jnp.bfloat16}


class Weights:
    """The tensors of a directory's `model.safetensors`, or of the shards that its index names.

    Files are mapped into memory; a tensor is read when asked for. A tensor that a model shares
    under several names is stored under one of them; the others are absent.

    Raises:
      FileNotFoundError: the directory, readable weights in it, or a shard is missing.
      ValueError: a file is damaged, or the index names a tensor that its shard lacks.
    """

    def __init__(self, directory: str | Path, *, single: str = SINGLE) -> None:
        """Opens the files.

        Args:
          directory: where they are.
          single: the name of the file, where all tensors are in one.
        """
        self._directory = Path(directory)
        self._shard_of = _find(self._directory, single)
        self._opened = {shard: _opened(shard) for shard in sorted(set(self._shard_of.values()))}
        present = {shard: set(file.keys()) for shard, file in self._opened.items()}
        for name, shard in self._shard_of.items():
            if name not in present[shard]:
                raise ValueError(
                    f"{self._directory / INDEX} says that {name} is in {shard.name}, which lacks "
                    "it: the files belong to different models; fetch or save the directory again"
                )

    def __contains__(self, name: object) -> bool:
        return name in self._shard_of

    def names(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        return tuple(sorted(self._shard_of))

    @property
    def elements(self) -> int:
        """The number of elements of all tensors together."""
        return sum(math.prod(self.shape(name)) for name in self._shard_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, without reading the tensor.

        Raises:
          ValueError: there is no such tensor.
        """
        return tuple(self._slice(name).get_shape())

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32: half precisions are widened.

        Raises:
          ValueError: there is no such tensor, or it is not floating point (quantised weights).
        """
        kind = self._slice(name).get_dtype()
        if kind not in _FLOATS:
            raise ValueError(
                f"{name} in {self._shard_of[name]} is of type {kind}; only {', '.join(_FLOATS)} "
                "are read: save the model in float32, not quantised"
            )
        tensor: np.ndarray = self._opened[self._shard_of[name]].get_tensor(name)
        return tensor.astype(np.float32, copy=False)

    def _slice(self, name: str) -> Any:
        if name not in self._shard_of:
            raise ValueError(f"the weights in {self._directory} have no tensor {name}")
        return self._opened[self._shard_of[name]].get_slice(name)


def _find(directory: Path, single: str) -> dict[str, Path]:
    """The file of each tensor."""
    if (path := directory / single).is_file():
        return dict.fromkeys(_opened(path).keys(), path)
    if (directory / INDEX).is_file():
        return _indexed(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no directory {directory}")
    foreign = sorted(path.name for pattern in _FOREIGN for path in directory.glob(pattern))
    if foreign:
        raise FileNotFoundError(
            f"{directory} has no {single}; {', '.join(foreign)} is never read: unpickling runs "
            "whatever code a file holds. Where you trust it, convert it with transformers: "
            f"AutoModel.from_pretrained({str(directory)!r}).save_pretrained(NEW, "
            "safe_serialization=True), with the class of the model's head for AutoModel"
        )
    raise FileNotFoundError(f"{directory} has neither {single} nor {INDEX}")


def _indexed(directory: Path) -> dict[str, Path]:
    index = directory / INDEX
    shards = whole_files.read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise ValueError(f"{index} is not an index of shards: its weight_map names no files")
    paths = {name: directory / shard for name, shard in shards.items()}
    for shard in sorted(set(paths.values())):
        if shard.parent != directory:
            raise ValueError(f"{index} names {shard}, which is outside its directory")
        if not shard.is_file():
            raise FileNotFoundError(f"{index} names {shard.name}, which is not there: fetch it too")
    return paths


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged, or not a safetensors file ({error}): fetch it again"
        ) from error


def check_free(directory: str | Path) -> None:
    """Raises FileExistsError where a directory has weights already."""
    names = [path.name for path in _weights(Path(directory))]
    if names:
        raise FileExistsError(
            f"{directory} has weights already ({', '.join(names[:3])}): name a new directory, or "
            "ask to overwrite them"
        )


def write(
    directory: str | Path,
    tensors: Iterable[tuple[str, np.ndarray]],
    *,
    overwrite: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes `model.safetensors`, or shards and an index where there are more than `shard_bytes`.

    Besides what `tensors` holds, at most one shard and one tensor are in memory. The files get
    their names only once all of them are complete.

    Args:
      directory: created if it does not exist.
      tensors: names and arrays in the order of the shards; each is taken when the one before it
        has been written, and none is taken where the directory is not free.
      overwrite: whether existing weights are replaced.
      shard_bytes: the most bytes in a shard, unless a single tensor is larger.

    Raises:
      FileExistsError: the directory has weights, and `overwrite` is False.
      ValueError: a name comes twice.
      OSError: the directory cannot be written to.
    """
    folder = Path(directory)
    if not overwrite:
        check_free(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _remove(folder.glob(f"*{_PARTIAL}"))
    weight_map: dict[str, int] = {}
    total = 0
    try:
        for number, shard in enumerate(_shards(tensors, shard_bytes)):
            with whole_files.naming(folder):
                save_file(shard, _partial(folder, number), metadata={"format": "pt"})
            weight_map |= dict.fromkeys(shard, number)
            total += sum(tensor.nbytes for tensor in shard.values())
            shard.clear()  # otherwise it is held while the next one is filled
        _publish(folder, weight_map, total)
    finally:
        _remove(folder.glob(f"*{_PARTIAL}"))


def _shards(
    tensors: Iterable[tuple[str, np.ndarray]], shard_bytes: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields at least one shard, which is empty where there are no tensors."""
    shard: dict[str, np.ndarray] = {}
    size, seen = 0, set()
    for name, tensor in tensors:
        if name in seen:
            raise ValueError(f"two tensors have the name {name}")
        if shard and size + tensor.nbytes > shard_bytes:
            yield shard
            shard, size = {}, 0
        seen.add(name)
        # The library writes the memory behind an array, whatever the order of its axes.
        shard[name] = np.ascontiguousarray(tensor).reshape(tensor.shape)
        size += tensor.nbytes
    yield shard


def _publish(folder: Path, weight_map: dict[str, int], total: int) -> None:
    """Gives the complete files their names; the file that readers look for first comes last."""
    count = max(weight_map.values(), default=0) + 1
    readable = 0o666 & ~_umask()  # the library writes files that only their owner may read
    for number in range(count):
        _partial(folder, number).chmod(readable)
    _remove(_weights(folder))
    if count == 1:
        _partial(folder, 0).rename(folder / SINGLE)
        return
    names = [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
    for number, name in enumerate(names):
        _partial(folder, number).rename(folder / name)
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: names[number] for name, number in sorted(weight_map.items())},
    }
    whole_files.write(folder / INDEX, (json.dumps(index, indent=2) + "\n").encode())


def _umask() -> int:
    """The umask of this process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _weights(folder: Path) -> list[Path]:
    """The final files of weights; those that readers look for come first."""
    doors = [path for path in (folder / INDEX, folder / SINGLE) if path.is_file()]
    return doors + sorted(folder.glob(SHARDS))


def _partial(folder: Path, number: int) -> Path:
    return folder / f"model-{number + 1:05}.safetensors{_PARTIAL}"


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()
