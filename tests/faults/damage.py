"""Files of each kind that a run writes are cut, flipped in one bit, or deleted, before it goes on.

The run goes on exactly as without the damage, or says in a sentence which file is damaged.
"""

from __future__ import annotations

import collections
import random
import re
import shutil
import signal
from pathlib import Path

from cases import Cases
from documents import write_documents
from kills import RUNS, command
from tiny_run import Tiny, assert_same_state, finish, losses

from t5x_like.core import exit_status

HOW = ("flipped", "cut", "deleted")
AS_WITHOUT = "exactly as without the damage"
OF_A_KIND = 2
"""How many files whose names differ in numbers alone are damaged: the newest."""


def run(cases: Cases) -> None:
    folder = cases.folder
    tiny = Tiny(folder, None, {})
    if not (folder / "text.txt").exists():
        write_documents(folder / "text.txt")

    def undisturbed() -> str:
        finish(tiny.start(command(folder, "straight", RUNS["bert"])))
        stopped = ("--kill_at=20", f"--signal={int(signal.SIGTERM)}")
        half = tiny.start(command(folder, "half", RUNS["bert"]), driver=stopped)
        finish(half, status=exit_status.SAVED)
        _copy(folder)
        assert _goes_on(tiny, folder) == AS_WITHOUT
        return "undisturbed"

    cases.run("undisturbed", undisturbed)
    if not cases.is_good("undisturbed"):
        return
    for path in _newest(folder):
        for how in HOW:
            cases.run(f"{path} {how}", lambda path=path, how=how: _damaged(tiny, folder, path, how))


def _newest(folder: Path) -> list[Path]:
    """The newest files of each kind in a stopped run and its cache, relative to `folder`."""
    kinds = collections.defaultdict(list)
    paths = [path for part in ("half", "half-cache") for path in (folder / part).rglob("*")]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime, path)):
        if path.is_file() and "tensorboard" not in path.parts and path.suffix != ".lock":
            name = path.relative_to(folder)
            kinds[re.sub(r"[0-9a-f]{8,}|\d+", "#", str(name))].append(name)
    return sorted(name for names in kinds.values() for name in names[:OF_A_KIND])


def _damaged(tiny: Tiny, folder: Path, name: Path, how: str) -> str:
    _copy(folder)
    path = folder / str(name).replace("half", "tried", 1)
    content = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif content:
        place = random.Random(str(name)).randrange(len(content))
        content[place] ^= 1 << random.Random(how).randrange(8)
        path.write_bytes(content)
    return _goes_on(tiny, folder)


def _copy(folder: Path) -> None:
    for part in ("", "-cache"):
        shutil.rmtree(folder / f"tried{part}", ignore_errors=True)
        shutil.copytree(folder / f"half{part}", folder / f"tried{part}")


def _goes_on(tiny: Tiny, folder: Path) -> str:
    process = tiny.start(command(folder, "tried", RUNS["bert"]))
    _, err = process.communicate(timeout=300)
    if process.returncode == 0:
        assert_same_state(folder / "tried", folder / "straight")
        one, other = losses(folder / "tried"), losses(folder / "straight")
        assert {step: other[step] for step in one} == one
        return AS_WITHOUT
    assert process.returncode == 1, f"{process.returncode}: {err[-2000:]}"
    assert "Traceback" not in err, err[-2000:]
    said = err.splitlines()[-1]
    assert said.startswith("error: "), err[-2000:]
    assert str(folder / "tried") in said, err[-2000:]
    return "refused with a sentence"
