"""Paths outside of a run's directory that its configuration names, and who may use them.

The configuration may come from anybody, so it alone opens nothing of the reader's. Text and a
teacher that it names are read where this account has trained with just these paths before, where
the command names them, or where a flag allows it. A cache directory that it names is used in the
first two cases only, since caches are written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from t5x_like.config import gin_text
from t5x_like.core.protocols import members
from t5x_like.core.protocols.completers import BatchCompleter
from t5x_like.data.dataset_names import Withheld, absolute_names

if TYPE_CHECKING:
    import jax

    from t5x_like.runs.run import Run

Paths = Mapping[str, Any]
"""{macro: JSON value} of paths; relative ones are made absolute."""

_MOST = 1 << 24
"""The bytes of the list of known paths that are read."""


class OutsidePathError(ValueError):
    """The configuration of a directory names paths that its reader has not allowed."""


def of_run(run: Run) -> dict[str, Any]:
    """The paths that a run names outside of its directory."""
    named = {
        "CORPUS": run.data.files,
        "CACHE_DIR": run.data.cache_dir,
        **_read_by(run.completer),
    }
    return {macro: _absolute(value) for macro, value in named.items() if value}


def _read_by(completer: BatchCompleter | None) -> Mapping[str, str]:
    """The paths of a completer, by name."""
    if completer is None:
        return {}
    members.check(completer, BatchCompleter)
    return completer.paths


def remember(run: Run) -> None:
    """Notes that this account trains with the paths of a run, so that its directory may name them.

    Where the list cannot be written, opening the run asks for a flag.
    """
    line = json.dumps(of_run(run), sort_keys=True)
    file = known_paths()
    with contextlib.suppress(OSError):
        if line not in _lines(file):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file.open("a", encoding="utf-8") as out:
                out.write(line + "\n")


def known_paths() -> Path:
    """The list of paths with which this account has trained: a JSON object a line."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "t5x_like" / "known_paths.jsonl"


def withhold(
    run: Run,
    directory: str,
    *,
    bindings: Iterable[str] = (),
    allow: bool = False,
    report: Callable[[str], None],
) -> Run:
    """A run of a directory without the paths that it may not name.

    Text that is withheld is an error where it is read. A cache directory is replaced by the
    reader's own.

    Args:
      run: the run, as the directory's configuration and `bindings` make it.
      directory: its directory, for messages.
      bindings: the settings of the command, whose paths count as named by the user.
      allow: whether the user allows to read what the configuration names.
      report: shows a line to the user.
    """
    given_paths = _given(bindings)
    named = {name: paths for name, paths in of_run(run).items() if paths not in given_paths}
    if not named or any(_includes(known, named) for known in _known()):
        return run
    data, completer = run.data, run.completer
    if "CACHE_DIR" in named:
        cache = _shown(named["CACHE_DIR"])
        report(
            f"note: {directory} names CACHE_DIR={cache}, which is not used: this account has not "
            f'trained with it. To use it, add --gin.CACHE_DIR="{cache}"'
        )
        data = dataclasses.replace(data, cache_dir=None)
    reads = {name: paths for name, paths in named.items() if name != "CACHE_DIR"}
    shown = " and ".join(f"{name}={_shown(paths)}" for name, paths in reads.items())
    if reads and allow:
        report(f"note: reads {shown}, as {directory} says (--allow_paths)")
    elif reads:
        reason = (
            f"{directory} names {shown}, outside of it, and this account has not trained with "
            "that: if it may be read, add --allow_paths (allow_paths=True in Python); or name "
            "other text, with --corpus of eval or --gin.CORPUS"
        )
        if "CORPUS" in reads:
            data = dataclasses.replace(data, corpus=Withheld(reason))
        if completer is not None and reads.keys() & completer.paths.keys():
            completer = WithheldCompleter(completer, reason)
    return run.with_parts(data=data, completer=completer)


@dataclasses.dataclass(frozen=True)
class WithheldCompleter:
    """A `protocols.BatchCompleter` whose paths may not be read."""

    completer: BatchCompleter
    reason: str
    paths: ClassVar[Mapping[str, str]] = {}

    def check_model(self, model: Any) -> None:
        self.completer.check_model(model)

    def added(self, row: Mapping[str, Any], model: Any) -> dict[str, jax.ShapeDtypeStruct]:
        return self.completer.added(row, model)

    def _refuse(self, *_: Any) -> NoReturn:
        raise OutsidePathError(self.reason)

    check = identity = open = _refuse


def _shown(value: Any) -> str:
    """A path as a gin file has it: one alone without its list."""
    return repr(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _absolute(value: Any) -> Any:
    """Paths as JSON: a list of absolute ones, or a dict of such lists."""
    if isinstance(value, Mapping):
        return {str(name): _absolute(files) for name, files in value.items()}
    several = [value] if isinstance(value, str | os.PathLike) else value
    return absolute_names([os.fspath(path) for path in several])


def _given(bindings: Iterable[str]) -> list[Any]:
    """The paths among the values that settings of the command have, whatever they set."""
    values = [value for text in bindings for value in gin_text.read(text).values.values()]
    all_paths = []
    for value in values:
        with contextlib.suppress(TypeError):  # a number, or a reference
            all_paths.append(_absolute(value))
    return all_paths


def _known() -> Iterable[Paths]:
    for line in _lines(known_paths()):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(paths := json.loads(line), dict):
                yield paths


def _lines(file: Path) -> Collection[str]:
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            return {*lines.read(_MOST).splitlines()}
    except OSError:
        return ()


def _includes(known: Paths, paths: Paths) -> bool:
    """Whether somebody who trained with `known` trained with all of `paths`."""
    return all(known.get(name) == files for name, files in paths.items())
