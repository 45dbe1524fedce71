"""A process that opens damaged files, one folder a request, and says what became of each.

Started with the reading end of requests and the writing end of answers, each a line of JSON. It may
crash, hang or run out of memory: its parent looks after that.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import resource
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from t5x_like.cli.common import errors

ALLOWANCE = 1 << 30
"""Bytes that opening a small file may need, where a reader's tests do not say less."""


def _memory() -> int:
    """The bytes that RLIMIT_DATA limits."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


@functools.cache
def _reader(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _limited(allowance: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_memory() + allowance, resource.RLIM_INFINITY))


def make(reader: ModuleType, folder: Path) -> dict[str, Any]:
    """Writes the valid files, and opens them, so that whatever is loaded once is loaded."""
    _unlimited()
    reader.make(folder)
    opened = shutil.copytree(folder, folder.with_name("opened"))  # a reader may write beside
    for seed in sorted(opened.iterdir()):
        reader.read(seed)
    return {"what": "made"}


def read(reader: ModuleType, folder: Path) -> dict[str, Any]:
    """What a user of the command line sees: nothing, one message, or a traceback."""
    _limited(getattr(reader, "ALLOWANCE", ALLOWANCE))
    try:
        reader.read(folder)
    except BaseException as error:
        what = "raw"
        if isinstance(error, Exception) and errors.is_mendable(error):
            what = "refused" if str(folder) in str(error) else "nameless"
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if "t5x_like" in frame.filename] or where
        at = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return {"what": what, "kind": f"{type(error).__name__} at {at}", "text": str(error)[:300]}
    finally:
        _unlimited()
    return {"what": "accepted"}


def serve() -> None:
    """Answers requests until there are no more."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print
    for line in sys.stdin:
        request = json.loads(line)
        done = {"make": make, "read": read}[request["do"]]
        answer = done(_reader(request["reader"]), Path(request["folder"]))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
