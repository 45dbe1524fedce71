"""The actions of a launcher as objects: a dry run prints the ones that a launch performs."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

HIDDEN = "***"
"""The text that is printed in place of a secret."""

_AT_ONCE = 32
_printing = threading.Lock()


class LaunchError(ValueError):
    """A launch is wrong or failed; the message says what, where, and what to do."""


class WaitedTooLongError(LaunchError):
    """The awaited state was not reached within the hours of the configuration."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file that is written here; the text of a secret one is not printed."""

    path: Path
    text: str
    secret: bool = False


@dataclasses.dataclass(frozen=True)
class Call:
    """A program that is run here.

    Attributes:
      argv: its words.
      stdin: a text, or the path of a file, for its standard input; nothing by default.
      secret: whether the text for its standard input is not printed.
      host: the host that it speaks to, which stands before each line of its output.
    """

    argv: tuple[str, ...]
    stdin: str | Path = ""
    secret: bool = False
    host: str = ""


@dataclasses.dataclass(frozen=True)
class Together:
    """Calls that run at the same time, one for each host."""

    calls: tuple[Call, ...]


@dataclasses.dataclass(frozen=True)
class Wait:
    """A call that is repeated until it prints a word.

    Attributes:
      call: the call.
      until: the word.
      dead: words after which the other one never comes.
      seconds: the pause between two calls.
      hours: the longest wait.
      advice: what to do when it does not come.
    """

    call: Call
    until: str
    dead: frozenset[str]
    seconds: float
    hours: float
    advice: str


@dataclasses.dataclass(frozen=True)
class Note:
    """A line for people."""

    text: str


Action = File | Call | Together | Wait | Note


@dataclasses.dataclass(frozen=True)
class Answer:
    """The exit status of a call and what it printed."""

    status: int
    text: str


class Runner:
    """Performs actions, or prints them as a shell script.

    Attributes:
      dry: whether nothing is written or run.
    """

    def __init__(self, *, dry: bool) -> None:
        self.dry = dry

    def perform(self, actions: Iterable[Action]) -> None:
        """Performs the actions in order.

        Raises:
          LaunchError: one failed; those after it were not performed.
        """
        for action in actions:
            if self.dry:
                print(shell(action), flush=True)
                continue
            match action:
                case File():
                    _write(action)
                case Call():
                    _check(action, _shown(action))
                case Together():
                    _together(action)
                case Wait():
                    _wait(action)
                case Note():
                    _say(action.text)

    def ask(self, call: Call) -> Answer:
        """The answer to a call, which may fail. A dry run prints the call and gets status 1."""
        if self.dry:
            print(shell(call), flush=True)
            return Answer(1, "")
        return _answer(call)

    def ask_all(self, calls: Sequence[Call]) -> list[Answer]:
        """The answers to calls that run at the same time, in the order of the calls."""
        if self.dry:
            return [self.ask(call) for call in calls]
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(_answer, calls))


def shell(action: Action) -> str:
    """An action as lines of a shell script, without secrets."""
    match action:
        case Note():
            return "\n".join(f"# {line}" for line in action.text.splitlines())
        case File():
            mode = 600 if action.secret else 644
            path = shlex.quote(str(action.path))
            folder = shlex.quote(str(action.path.parent))
            text = f"{HIDDEN}\n" if action.secret else action.text
            return f"mkdir -p {folder}\ncat >{path} {_here(text)}\nchmod {mode} {path}"
        case Call():
            line = shlex.join(action.argv)
            if isinstance(action.stdin, Path):
                return f"{line} <{shlex.quote(str(action.stdin))}"
            text = f"{HIDDEN}\n" if action.secret else action.stdin
            return f"{line} {_here(text)}" if text else line
        case Together():
            return "\n".join(map(shell, action.calls))
        case Wait():
            line = shlex.join(action.call.argv)
            return (
                f'until [ "$({line})" = {shlex.quote(action.until)} ]; '
                f"do sleep {action.seconds:g}; done  # at most {action.hours:g} hours"
            )


def _here(text: str) -> str:
    """A text as a here-document, whose end is not a line of it."""
    end = "END"
    while end in text.splitlines():
        end += "_"
    return f"<<'{end}'\n{text}{'' if text.endswith(chr(10)) else chr(10)}{end}"


def _say(text: str) -> None:
    with _printing:
        print(text, file=sys.stderr, flush=True)


def _shown(call: Call) -> str:
    return shell(dataclasses.replace(call, stdin=call.stdin if not call.secret else ""))


def _write(file: File) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    partial = file.path.with_name(f".{file.path.name}.partial")
    partial.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(partial, flags, 0o600 if file.secret else 0o644), "w") as out:
        out.write(file.text)
    partial.replace(file.path)


def _start(call: Call, **options: object) -> subprocess.Popen[str]:
    """Starts a call; its standard input is fed by `_feed`."""
    source: int | IO[bytes] = subprocess.DEVNULL
    if isinstance(call.stdin, Path):
        source = call.stdin.open("rb")
    elif call.stdin:
        source = subprocess.PIPE
    try:
        return subprocess.Popen(call.argv, stdin=source, text=True, errors="replace", **options)  # type: ignore[call-overload, no-any-return]
    except FileNotFoundError as error:
        raise LaunchError(
            f"{call.argv[0]} is not on PATH: install it on this machine, then start again"
        ) from error
    finally:
        if not isinstance(source, int):
            source.close()


def _feed(call: Call, process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        try:
            process.stdin.write(str(call.stdin))
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended early: its exit status says so


def _answer(call: Call) -> Answer:
    process = _start(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stdin = None if process.stdin is None else str(call.stdin)
    out, errors = process.communicate(stdin)
    return Answer(process.returncode, out.strip() or ("" if not process.returncode else errors))


def _check(call: Call, shown: str) -> None:
    """Runs a call whose output is this program's own."""
    _say(f"+ {shown.splitlines()[0]}")
    process = _start(call)
    _feed(call, process)
    if status := process.wait():
        raise LaunchError(_failed([(call, status)]))


def _failed(calls: Sequence[tuple[Call, int]]) -> str:
    lines = []
    for call, status in calls:
        on = f"on {call.host}: " if call.host else ""
        lines.append(f"{on}exit status {status} of: {shlex.join(call.argv).splitlines()[0]}")
    return "\n".join([*lines, "the messages above say why; nothing after it was run"])


def _together(action: Together) -> None:
    for call in action.calls:
        _say(f"+ {_shown(call).splitlines()[0]}")
    with concurrent.futures.ThreadPoolExecutor(max(1, len(action.calls))) as pool:
        statuses = list(pool.map(_prefixed, action.calls))
    failed = [pair for pair in zip(action.calls, statuses, strict=True) if pair[1]]
    if failed:
        raise LaunchError(_failed(failed))


def _prefixed(call: Call) -> int:
    """The exit status of a call each of whose lines is printed after the name of its host."""
    process = _start(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    _feed(call, process)
    for line in _lines(process):
        with _printing:
            print(f"[{call.host}] {line}" if call.host else line, flush=True)
    return process.wait()


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            yield line.rstrip("\n")


def _wait(action: Wait) -> None:
    _say(f"+ {_shown(action.call)}")
    deadline = time.monotonic() + 3600 * action.hours
    while True:
        answer = _answer(action.call)
        if answer.text == action.until:
            return
        if answer.status:
            raise LaunchError(f"{answer.text}\n{_failed([(action.call, answer.status)])}")
        if answer.text in action.dead:
            raise LaunchError(f"{answer.text}: {action.advice}")
        if time.monotonic() >= deadline:
            raise WaitedTooLongError(
                f"still {answer.text} after {action.hours:g} hours: {action.advice}"
            )
        _say(f"waiting for {action.until}: {answer.text}")
        time.sleep(action.seconds)
