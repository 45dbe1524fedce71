"""The cases of a part: which are done, what came of them, and how much time is left."""

from __future__ import annotations

import collections
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path

_SECONDS = 18 * 60
"""After this time no case is begun: a part ends within 20 minutes."""


class Cases:
    """Results in `<folder>/results.jsonl`: {part, case, good, text, seconds} a line."""

    def __init__(self, folder: Path, part: str) -> None:
        self.folder = folder / part
        self.folder.mkdir(parents=True, exist_ok=True)
        self._part, self._file = part, folder / "results.jsonl"
        self._begun = time.monotonic()
        self._left = 0
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        found = [json.loads(line) for line in lines]
        self.done = {one["case"]: one for one in found if one["part"] == part}

    @property
    def in_time(self) -> bool:
        """Whether another case may begin."""
        return time.monotonic() - self._begun < _SECONDS

    def run(self, name: str, case: Callable[[], str]) -> None:
        """Runs a case unless it is done; it returns what came of it, or raises if that is bad."""
        if name in self.done:
            return
        if not self.in_time:
            self._left += 1
            return
        start = time.monotonic()
        try:
            good, text = True, case()
        except Exception as error:
            good, text = False, f"{type(error).__name__}: {error}"
            traceback.print_exc()
        result = {
            "part": self._part,
            "case": name,
            "good": good,
            "text": text,
            "seconds": round(time.monotonic() - start, 1),
        }
        self.done[name] = result
        with self._file.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(
            f"{'ok ' if good else 'BAD'}  {self._part}: {name}: {text.splitlines()[0]}", flush=True
        )

    def is_good(self, name: str) -> bool:
        """Whether a case is done, and good."""
        return name in self.done and self.done[name]["good"]

    def show(self) -> None:
        """Prints a table: how often each came of the cases, and what was bad."""
        counts = collections.Counter((one["good"], one["text"]) for one in self.done.values())
        print(f"\n{self._part}: {len(self.done)} cases, {self._left} left for the next call")
        for (good, text), count in counts.most_common(12):
            print(f"  {count:4}  {'ok ' if good else 'BAD'}  {text.splitlines()[0][:110]}")

    def status(self) -> int:
        if any(not one["good"] for one in self.done.values()):
            return 1
        return 3 if self._left else 0
