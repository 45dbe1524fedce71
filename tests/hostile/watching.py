"""What a command does to the world, seen by Python's audit hooks, and by looking afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")
CONNECTIONS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto")
CHANGES = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink", "shutil.move", "shutil.copyfile"), (1,)),
    "shutil.rmtree": (0,),
}
"""Events that change files, and which of their arguments are the changed paths."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclasses.dataclass
class Watch:
    """What a command may touch, and what it did beside that.

    Attributes:
      writable: folders that it may write.
      private: folders of which it may read nothing.
      seen: what it did against this.
      others: threads that ran before, such as those of other tests.
    """

    writable: Sequence[Path]
    private: Sequence[Path]
    seen: list[str] = dataclasses.field(default_factory=list)
    others: frozenset[int | None] = frozenset()

    def event(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "subprocess.Popen" and args[1][:3] == ["git", "-C", str(ROOT)]:
            return  # which commit of ours this is
        if name in PROCESSES or name in CONNECTIONS:
            self.seen.append(f"{name} {args[:2]}")
        elif name == "open":
            path, mode, flags = args
            writes = bool((flags or 0) & _WRITING) or any(c in (mode or "r") for c in "wax+")
            self._look(path, writes=writes)
        elif name in ("os.listdir", "os.scandir"):
            self._look(args[0], writes=False)
        elif name in CHANGES:
            for place in CHANGES[name]:
                self._look(args[place], writes=True)

    def _look(self, path: Any, *, writes: bool) -> None:
        if not isinstance(path, str | bytes | os.PathLike):  # a descriptor
            return
        real = Path(os.path.realpath(os.fsdecode(path)))
        if any(real.is_relative_to(one) for one in self.private):
            self.seen.append(f"{'writes' if writes else 'reads'} {real}")
        elif writes and not any(real.is_relative_to(one) for one in self.writable):
            self.seen.append(f"writes {real}")


_watches: list[Watch] = []


def _hook(name: str, args: tuple[Any, ...]) -> None:
    for watch in _watches:
        if threading.get_ident() not in watch.others:
            watch.event(name, args)


@contextlib.contextmanager
def watched(*, writable: Sequence[Path], private: Sequence[Path]) -> Iterator[Watch]:
    """Watches what this process does in the block; a hook cannot be removed, so it stays idle."""
    if not getattr(sys, "_t5x_like_hook", False):
        sys.addaudithook(_hook)
        sys._t5x_like_hook = True
    scratch = {Path("/dev"), Path("/proc"), Path(os.environ["JAX_COMPILATION_CACHE_DIR"])}
    scratch |= {Path(tempfile.gettempdir()) / "pytest-cache"}
    running = {one.ident for one in threading.enumerate()} - {threading.get_ident()}
    watch = Watch(
        [*writable, *map(_real, scratch)], [*map(_real, private)], others=frozenset(running)
    )
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def memory(*, peak: bool = False) -> int:
    """The resident bytes of this process, or their peak since this was asked for last; on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    Path("/proc/self/clear_refs").write_text("5")
    return int(found["VmHWM" if peak else "VmRSS"]) << 10


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, whatever wrote them; C++ raises no events."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }
