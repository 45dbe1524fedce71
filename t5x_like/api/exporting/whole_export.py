"""An export in the making, on a disk or in a bucket: nobody opens it before it is whole."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.core.buckets.sending import Sender
from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.hugging_face.files import safetensors_files

_WEIGHTS = (safetensors_files.INDEX, safetensors_files.SINGLE, safetensors_files.SHARDS)


@contextlib.contextmanager
def appearing(target: str | Path) -> Iterator[Path]:
    """A folder to write, whose files are at `target` once the block has ended without an error.

    A folder that is not there appears whole. In one that is, and in a bucket, the files arrive one
    by one. There each earlier `config.json`, without which nobody opens a model, is removed before
    the first file arrives, and the new ones arrive last. Earlier weights are removed, and files of
    other names stay.

    Raises:
      OSError: the target cannot be written.
    """
    if storage.is_url(target):
        with tempfile.TemporaryDirectory(prefix="t5x_like-export-") as folder:
            directory = Path(folder)
            yield directory
            _send(directory, str(target).rstrip("/"))
    elif not (place := Path(target)).exists():
        with whole_files.writing_folder(place) as directory:
            yield directory
    else:
        with whole_files.temporary_folder(place / ".export") as directory:
            yield directory
            _move(directory, place)


def _send(folder: Path, url: str) -> None:
    doors = _doors(_names(folder))
    for name in _earlier([*storage.files_below(url)], doors):
        storage.remove(f"{url}/{name}")
    Sender(folder, url, last=doors).send()


def _move(folder: Path, place: Path) -> None:
    names = _names(folder)
    doors = _doors(names)
    for name in _earlier(_names(place), doors):
        (place / name).unlink()
    for name in [*sorted({*names} - {*doors}), *doors]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / name, place / name)


def _names(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]


def _doors(names: Sequence[str]) -> list[str]:
    """The files without which a reader opens none of the others."""
    return sorted(name for name in names if PurePosixPath(name).name == model_directory.CONFIG)


def _earlier(names: Sequence[str], doors: Sequence[str]) -> list[str]:
    """The doors and weights among files that are there already, the doors first."""
    folders = [PurePosixPath(door).parent for door in doors]
    weights = {str(folder / pattern) for folder in folders for pattern in _WEIGHTS}
    old = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in weights)]
    return [*[name for name in doors if name in names], *sorted(old)]
