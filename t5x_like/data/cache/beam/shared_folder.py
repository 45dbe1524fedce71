"""The folder of a cache that the workers of all machines write: on a shared disk or in a bucket."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.data.cache.format import shard_name
from t5x_like.data.cache.shards import SIDECARS, ShardPlan

WORK = ".beam"
"""The folder of what workers tell each other, in that of the cache until it is complete."""


@dataclasses.dataclass(frozen=True)
class SharedFolder:
    """A folder on a shared disk or in a bucket.

    Attributes:
      place: its absolute path or its address.
    """

    place: str

    @property
    def _in_bucket(self) -> bool:
        return storage.is_url(self.place)

    def _of(self, name: str) -> str:
        return f"{self.place}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which appears whole or not at all."""
        if self._in_bucket:
            storage.write(self._of(name), content)
            return
        path = Path(self._of(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_files.write(path, content)

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
          FileNotFoundError: there is none.
        """
        return (
            storage.read(self._of(name)) if self._in_bucket else Path(self._of(name)).read_bytes()
        )

    def names(self, folder: str = "") -> list[str]:
        """The names of all files below a folder of this one, from there; sorted."""
        place = self._of(folder).rstrip("/")
        if self._in_bucket:
            return sorted(storage.files_below(place))
        files = (path for path in Path(place).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(place)) for path in files)

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with all that it holds; it may be missing."""
        if self._in_bucket:
            storage.remove(self._of(name))
            return
        path = Path(self._of(name))
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def holds(self, plan: ShardPlan, split: str, number: int, *, content: str) -> bool:
        """Whether it has a complete shard of this plan and content."""
        if not self._in_bucket:
            return plan.finished(split, number, content=content)
        name = shard_name(split, number)
        info = storage.info_of(self._of(name))
        try:
            description = self.read(f"{name}.json")
        except FileNotFoundError:
            return False
        return info is not None and plan.is_described(
            description, size=info["size"], content=content
        )

    @contextlib.contextmanager
    def writing(self, plan: ShardPlan) -> Iterator[ShardPlan]:
        """The plan of shards that the block writes here: `.json` last, as on a disk."""
        if not self._in_bucket:
            yield plan
            return
        with tempfile.TemporaryDirectory() as directory:
            yield dataclasses.replace(plan, directory=directory)
            names = [path.name for path in Path(directory).iterdir()]
            for name in sorted(names, key=lambda name: [name.endswith(s) for s in SIDECARS[::-1]]):
                storage.upload(self._of(name), Path(directory) / name)
