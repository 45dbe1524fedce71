"""Compiles a step in a process of its own, whose environment names the TPUs that are absent."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.data.extras import require
from t5x_like.planning.child_process import Child, run_child
from t5x_like.planning.topologies import Topology

_PAGE = 4096
_POLL_SECONDS = 0.5
_ASSIGNED = "*jit_step*after_optimizations_after_buffer_assignment.txt"
_MEMORY = "*jit_step*memory-usage-report.txt"


class PlanError(ValueError):
    """The step cannot be planned: the run or the compiler refuses it."""


class InvalidRunError(PlanError):
    """The run is not valid, for example on so many chips."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A run, and what to compile it for.

    Attributes:
      files: gin files, as `t5x_like train --gin_file` takes them.
      bindings: `NAME=value`, as after `--gin.`.
      folders: searched for gin files as well.
      topology: the chips.
      phase: the number of the phase of the run, from 0.
      memory_only: whether to stop once the compiler has placed every array. No time is known then.
      largest_estimate: bytes; where the estimate without the compiler is more, it is not asked.
    """

    files: Sequence[str]
    bindings: Sequence[str] = ()
    folders: Sequence[str] = ()
    topology: Topology
    phase: int = 0
    memory_only: bool = False
    largest_estimate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """The result of compiling a step.

    Attributes:
      known: what `child` writes before it compiles.
      needed: bytes of HBM that the step needs on a device.
      available: bytes that the compiler has there; None if the step fits.
      text: the optimized program; None if the step does not fit.
      final: whether the program has estimated cycles: it was compiled to the end.
    """

    known: Mapping[str, Any]
    needed: float
    available: float | None = None
    text: str | None = None
    final: bool = False


def compile_step(request: Request) -> Compiled:
    """Compiles a step of a phase, on this machine's CPUs.

    Raises:
      MissingExtraError: the compiler is not installed.
      InvalidRunError: the run is not valid.
      PlanError: the compiler fails for another reason than memory.
    """
    require("libtpu", "plan", purpose="compiling for TPUs")
    message = {
        "files": list(request.files),
        "bindings": list(request.bindings),
        "folders": list(request.folders),
        "phase": request.phase,
        "largest_estimate": request.largest_estimate,
    }
    with run_child("t5x_like.planning.child", message, request.topology, dump_steps=True) as child:
        while not child.ended and not (request.memory_only and _placed(child.folder)):
            time.sleep(_POLL_SECONDS)
        return _result(request, child)


def _failure(child: Child) -> PlanError:
    """Why a child has ended without a result.

    Raises:
      OSError: the disk of its folder fails, where its last lines may have had no room either.
    """
    message = child.failure()
    with whole_files.naming(child.folder):
        whole_files.write(child.folder / "room", bytes(_PAGE))
        if whole_files.error_number(RuntimeError(message)):
            raise RuntimeError(message)
    return PlanError(message)


def _placed(folder: Path) -> bool:
    """Whether the compiler has written where every array is."""
    file = next(folder.glob(_ASSIGNED), None)
    if file is None or not file.stat().st_size:
        return False
    return time.time() - file.stat().st_mtime > _POLL_SECONDS


def _result(request: Request, child: Child) -> Compiled:
    folder = child.folder
    if (error := folder / "error.json").exists():
        raise InvalidRunError(json.loads(error.read_text()))
    if not (folder / "program.json").exists():
        raise _failure(child)
    known = json.loads((folder / "program.json").read_text())
    if (memory := folder / "memory.json").exists():
        needed, available = out_of_memory(json.loads(memory.read_text()))
        return Compiled(known=known, needed=needed, available=available)
    if (large := folder / "estimate.json").exists():
        guess = json.loads(large.read_text())
        return Compiled(known=known, needed=guess, available=request.topology.chip.hbm_bytes)
    final = (folder / "step.hlo").exists()
    text = folder / "step.hlo" if final else next(folder.glob(_ASSIGNED), None)
    if text is None:
        raise _failure(child)
    needed = max(_bytes_in_hbm(report.read_text()) for report in folder.glob(_MEMORY))
    capacity = request.topology.chip.hbm_bytes
    return Compiled(
        known=known,
        needed=needed,
        available=capacity if needed > capacity and not final else None,
        text=text.read_text(),
        final=final,
    )


def out_of_memory(message: str) -> tuple[float, float]:
    """(bytes needed, bytes available) from the compiler's error.

    Raises:
      PlanError: the error is another one.
    """
    patterns = (
        r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)",
        r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm",
    )
    for pattern in patterns:
        if match := re.search(pattern, message):
            return _bytes(match[1], match[2]), _bytes(match[3], match[4])
    raise PlanError(f"the compiler fails: {message.strip()}")


def _bytes(number: str, unit: str) -> float:
    return float(number) * 1024 ** (" KMGT".index(unit))


def _bytes_in_hbm(report: str) -> float:
    """The bytes in the compiler's report of its memory spaces, of which HBM is the default one."""
    sizes = re.findall(r"\(color=0\)\s*Total bytes: (\d+)", report)
    return float(sum(map(int, sizes)))
