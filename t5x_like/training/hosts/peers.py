"""The processes of a run watch each other: who is missing, who is lost, who failed first and why.

Process 0 listens, the others connect. A connection that closes, or over which nothing comes for a
while, is a process that is lost. JAX notices most of this later, ends the process by a signal, and
says neither who nor why.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any, NoReturn

from t5x_like.core import exit_status
from t5x_like.training.hosts import aborts

_BEAT_SECONDS = 2.0
_REMIND_SECONDS = 15.0
_TELL_SECONDS = 5.0
"""How long a process that fails waits until the others know."""
_OWN_ERROR_SECONDS = 3.0
"""How long a process that hears of another's failure has to show an error of its own."""
_WELCOME_SECONDS = 15.0
"""How long process 0 may take to answer the first message."""
_RESUMES = "The newest checkpoint is whole: the same command on all hosts resumes it."


class MissingProcessError(RuntimeError):
    """A process did not come in time."""

    exit_status = exit_status.MISSING


@dataclasses.dataclass
class _Member:
    """A process that has connected to process 0."""

    host: str
    writer: asyncio.StreamWriter
    left: bool = False


class Peers:
    """The connections of this process; `join` first, then `fail` or `leave`.

    Args:
      host: the host of process 0, as the others reach it.
      port: the port on which it listens.
      count: the number of processes.
      process: the number of this one.
      start_seconds: how long processes wait for each other at the start.
      lost_seconds: how long nothing may be heard of a process.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        count: int,
        process: int,
        start_seconds: float = 600.0,
        lost_seconds: float = 45.0,
    ) -> None:
        self._host, self._port, self._count, self._process = host, port, count, process
        self._start_seconds, self._lost_seconds = start_seconds, lost_seconds
        self._welcome_seconds = min(_WELCOME_SECONDS, lost_seconds)
        self._members: dict[int, _Member] = {}
        self._first: asyncio.StreamWriter | None = None
        self._complete = threading.Event()
        self._refusal: Exception | None = None
        self._left = self._failing = False
        self._told = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def join(self) -> None:
        """Waits until all processes are here, and says for whom it waits.

        Raises:
          MissingProcessError: they are not, in time; the message names those that are missing.
          OSError: process 0 cannot listen on the port, or another program does; or processes were
            told of different numbers of them.
        """
        self._thread.start()
        self._complete.wait()
        if self._refusal is not None:
            raise self._refusal
        aborts.wait_for_the_reason()

    def fail(self, text: str, status: int) -> None:
        """Tells the others why this process ends; they end with the same status."""
        self._failing = True
        self._call(self._tell(self._named(self._process, f"failed: {text}"), status))
        self._told.wait(_TELL_SECONDS)

    def follow(self, seconds: float) -> None:
        """Waits: if another process is found to have ended meanwhile, this one ends as well."""
        time.sleep(seconds)

    def leave(self) -> None:
        """Says that this process has done its work; its end is not a loss."""
        self._left = True
        self._call(self._say_goodbye())

    # What follows runs in the thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen() if not self._process else self._connect())
            self._loop.run_forever()
        except Exception as error:
            self._refusal = error
            self._complete.set()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(work, self._loop).result(_TELL_SECONDS)

    async def _listen(self) -> None:
        """Process 0: takes connections until all are here, then watches them."""
        try:
            await asyncio.start_server(self._serve, None, self._port)
        except OSError as error:
            raise OSError(
                f"process 0 cannot listen on port {self._port}, over which processes watch each "
                f"other ({os.strerror(error.errno or 0)}): end the program that uses it, or name "
                "another port with --watch_port, the same on all hosts"
            ) from error
        deadline = self._loop.time() + self._start_seconds
        reminded = self._loop.time()
        # Those who are here wait for the rest as well: nobody is lost meanwhile.
        self._beating = self._loop.create_task(self._beat_all())
        while len(self._members) < self._count - 1:
            await asyncio.sleep(0.05)
            if self._refusal is not None:
                await self._tell(str(self._refusal), exit_status.ERROR)
                raise self._refusal
            missing = sorted({*range(1, self._count)} - {*self._members})
            if self._loop.time() > deadline:
                here = ", ".join(
                    f"{n} ({member.host})" for n, member in sorted(self._members.items())
                )
                text = (
                    f"after {self._start_seconds:g} s process(es) {_listed(missing)} of "
                    f"{self._count} are missing; here: 0 ({socket.gethostname()})"
                    f"{here and ', ' + here}. See their logs; they must reach port {self._port} "
                    "of process 0"
                )
                await self._tell(text, exit_status.MISSING)
                raise MissingProcessError(text)
            if missing and self._loop.time() - reminded > _REMIND_SECONDS:
                reminded = self._loop.time()
                left = deadline - reminded
                _say(f"Waits for process(es) {_listed(missing)} of {self._count}, {left:.0f} s.")
        await self._send_all({"complete": True})
        self._complete.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Process 0: one connection, until it ends."""
        try:
            hello = _message(await asyncio.wait_for(reader.readline(), self._lost_seconds))
            n, host, count = int(hello["process"]), str(hello["host"]), int(hello["count"])
            if not 0 < n < count:
                raise ValueError(n)
        except (OSError, ValueError, KeyError, TypeError, TimeoutError):
            writer.close()  # a stranger
            return
        await _send(writer, {"welcome": True})
        if count != self._count:
            text = (
                f"process {n} ({host}) was started with --num_processes {count}, process 0 with "
                f"{self._count}: start all with the same number"
            )
            await _send(writer, {"ended": text, "status": exit_status.ERROR})
            writer.close()
            self._refusal = OSError(text)
            return
        if n in self._members:
            text = f"process {n} is already here, from {self._members[n].host}"
            await _send(writer, {"ended": text, "status": exit_status.ERROR})
            writer.close()
            return
        member = self._members[n] = _Member(host, writer)
        reason = await self._heard(reader, member)
        if not self._complete.is_set():
            self._members.pop(n)  # it may come again
        elif not member.left and not self._failing:
            text = f"{self._named(n)} is lost: {reason}. {_RESUMES}"
            await self._tell(text, exit_status.LOST)
            await self._end(text, exit_status.LOST)
        writer.close()

    async def _heard(self, reader: asyncio.StreamReader, member: _Member) -> str:
        """Reads what a process says until it ends; returns why it is thought to have ended."""
        while True:
            try:
                message = _message(await asyncio.wait_for(reader.readline(), self._lost_seconds))
            except TimeoutError:
                return f"nothing was heard of it for {self._lost_seconds:g} s"
            except (OSError, ValueError):
                return "its connection broke"
            if not message:
                return "its connection closed"
            if message.get("left"):
                member.left = True
            if "ended" in message:
                for told in self._members.values():
                    told.left = True  # all end now, and none is lost by it
                text, status = str(message["ended"]), int(message["status"])
                await self._tell(text, status)
                await self._end(text, status, after=_OWN_ERROR_SECONDS)

    async def _connect(self) -> None:
        """Other processes: finds process 0, and listens to it until it ends."""
        reader, self._first = await self._reached()
        self._beating = self._loop.create_task(self._beat())
        first_left = False
        while True:
            reason = ""
            try:
                message = _message(await asyncio.wait_for(reader.readline(), self._lost_seconds))
                reason = "" if message else "its connection closed"
            except TimeoutError:
                message = {}
                reason = f"nothing was heard of it for {self._lost_seconds:g} s"
            except (OSError, ValueError):
                message, reason = {}, "its connection broke"
            if message.get("complete"):
                self._complete.set()
            first_left = first_left or bool(message.get("left"))
            if "ended" in message:
                self._told.set()
                text, status = str(message["ended"]), int(message["status"])
                is_own_error = status not in (exit_status.LOST, exit_status.MISSING)
                await self._end(text, status, after=_OWN_ERROR_SECONDS if is_own_error else 0)
            if reason:
                if self._failing:
                    return
                if first_left:
                    await asyncio.sleep(_OWN_ERROR_SECONDS)
                    if self._left:  # all work is done, but JAX still waits for process 0
                        self._exit(exit_status.DONE)
                text = f"process 0 ({self._host}) is lost: {reason}. {_RESUMES}"
                await self._end(text, exit_status.LOST)

    async def _reached(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to process 0, which has answered."""
        deadline = self._loop.time() + self._start_seconds
        reminded = self._loop.time()
        closed = 0.0
        while True:
            begun = self._loop.time()
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except OSError as error:
                now = self._loop.time()
                if now > deadline:
                    raise MissingProcessError(
                        f"after {self._start_seconds:g} s process 0 does not answer process "
                        f"{self._process} at {self._host}:{self._port} ({error}). See its log, and "
                        "open that port between the hosts"
                    ) from error
                if now - reminded > _REMIND_SECONDS:
                    reminded = now
                    _say(f"Waits for process 0 at {self._host}:{self._port}.")
                await asyncio.sleep(0.5)
                continue
            if await self._is_welcome(reader, writer):
                return reader, writer
            # An earlier process 0 may be at its end: its port is soon that of this run's.
            await asyncio.sleep(0.5)
            closed += self._loop.time() - begun
            if closed > self._welcome_seconds:
                raise self._unknown()

    async def _is_welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether process 0 answers; False if the connection closes.

        Raises:
          OSError: another program answers, or nothing comes.
        """
        hello = {"process": self._process, "host": socket.gethostname(), "count": self._count}
        await _send(writer, hello)
        try:
            message = _message(await asyncio.wait_for(reader.readline(), self._welcome_seconds))
        except (ValueError, TimeoutError):
            raise self._unknown() from None
        except OSError:
            message = {}
        if message and not message.get("welcome"):
            raise self._unknown()
        return bool(message)

    def _unknown(self) -> OSError:
        return OSError(
            f"what listens at {self._host}:{self._port} is not process 0, whose log says more: end "
            "the program that uses that port, or name another port with --watch_port, the same on "
            "all hosts"
        )

    async def _beat(self) -> None:
        assert self._first is not None
        while await _send(self._first, {"here": True}):
            await asyncio.sleep(_BEAT_SECONDS)

    async def _beat_all(self) -> None:
        while True:
            await self._send_all({"here": True})
            await asyncio.sleep(_BEAT_SECONDS)

    async def _send_all(self, message: dict[str, Any]) -> None:
        await asyncio.gather(
            *(_send(member.writer, message) for member in [*self._members.values()])
        )

    async def _tell(self, text: str, status: int) -> None:
        """Sends the reason of the end to the others, by way of process 0."""
        message = {"ended": text, "status": status}
        if self._process:
            if self._first is not None:
                await _send(self._first, message)
            return
        await self._send_all(message)
        self._told.set()

    async def _say_goodbye(self) -> None:
        if self._process and self._first is not None:
            await _send(self._first, {"left": True})
        else:
            await self._send_all({"left": True})

    async def _end(self, text: str, status: int, *, after: float = 0.0) -> None:
        """Ends this process, unless it shows an error of its own meanwhile."""
        await asyncio.sleep(after)
        if self._failing:
            return
        _say(f"error: {text}")
        self._exit(status)

    def _exit(self, status: int) -> NoReturn:
        """Ends this process at once: its usual end would wait for the others."""
        with contextlib.suppress(OSError):  # nobody may read it any more
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(status)

    def _named(self, n: int, what: str = "") -> str:
        host = self._members[n].host if n in self._members else socket.gethostname()
        return f"process {n} ({host}) {what}".rstrip()


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _message(line: bytes) -> dict[str, Any]:
    """A message; {} at the end of a connection.

    Raises:
      ValueError: it is none.
    """
    if not line:
        return {}
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(line)
    return message


async def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> bool:
    """Sends a message; False if the connection has ended or takes nothing."""
    try:
        writer.write(json.dumps(message).encode() + b"\n")
        await asyncio.wait_for(writer.drain(), _TELL_SECONDS)
    except (OSError, TimeoutError):
        return False
    return True
