"""What scripts with many runs share: commands, and results that are kept line by line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.config import gin_config

_JAX = (
    "import jax, json; print(json.dumps({'jax': jax.__version__, 'backend': jax.default_backend(), "
    "'device': jax.devices()[0].device_kind, 'devices': jax.device_count()}))"
)


class CommandError(RuntimeError):
    """A command failed; says where its output is."""


def execute(command: Sequence[str], *, cwd: Path, log: Path) -> None:
    """Runs a command and appends its output to `log`, whose folder exists.

    Raises:
      CommandError: it failed.
    """
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {command_text(command)}\n")
        file.flush()
        ended = subprocess.run(command, cwd=cwd, stdout=file, stderr=subprocess.STDOUT)
    if ended.returncode:
        raise CommandError(f"exit status {ended.returncode}, see {log}")


def command_text(command: Sequence[str]) -> str:
    """A command as a reader would type it in a checkout."""
    words = shlex.join(command).replace(str(Path(__file__).resolve().parent), "benchmarks")
    return words.replace(f"{sys.executable} -m t5x_like", "t5x_like").replace(
        sys.executable, "python"
    )


_LATER = {
    "EARLY_STOPPING = 0",
    "run.Options.early_stopping = %EARLY_STOPPING",
    "AVERAGE_FROM = None",
    "run.Options.average_from = %AVERAGE_FROM",
    "GROUP_BY_LENGTH = False",
    "run.Options.group_by_length = %GROUP_BY_LENGTH",
    "BEST_METRIC = 'loss'",
    "run.Options.best_metric = %BEST_METRIC",
    "RANDOM_NUMBERS = None",
    "run.Options.random_numbers = %RANDOM_NUMBERS",
    "COMPILER_OPTIONS = {}",
    "run.Options.compiler_options = %COMPILER_OPTIONS",
    "BAD_NUMBERS = 'stop'",
    "run.Options.bad_numbers = %BAD_NUMBERS",
    "LOSS_SPIKE = None",
    "run.Options.loss_spike = %LOSS_SPIKE",
    "LOSS_RISE = 1.0",
    "run.Options.loss_rise = %LOSS_RISE",
    "BASELINE_MARGIN = 0.1",
    "run.Options.baseline_margin = %BASELINE_MARGIN",
    "STALL_MINUTES = 10",
    "run.Options.stall_minutes = %STALL_MINUTES",
    "CHECKPOINT_FROZEN = True",
    "CORPUS_HELD_OUT = None",
    "user_corpus.user_corpus.validation_files = %CORPUS_HELD_OUT",
    "CORPUS_COLUMNS = ()",
    "user_corpus.user_corpus.header = %CORPUS_COLUMNS",
    "CORPUS_LABELS = None",
    "user_corpus.user_corpus.labels = %CORPUS_LABELS",
    "run.Options.checkpoint_frozen = %CHECKPOINT_FROZEN",
    "ADAPT = None",
    "run.Run.adapt = %ADAPT",
    "ADD_TOKENS = None",
    "COMPLETER = %TEACHER",
    "run.Run.add_tokens = %ADD_TOKENS",
    *(f"{name}_TOKENS = None" for name in ("TRAIN", "WARMUP", "DECAY", "BATCH_WARMUP")),
    "BATCH_WARMUP_ROWS = None",
    "run.Options.batch_warmup_tokens = %BATCH_WARMUP_TOKENS",
    "run.Options.batch_warmup_rows = %BATCH_WARMUP_ROWS",
    "CORPUS_SHARES = None",
    "dataset.Data.corpus_shares = %CORPUS_SHARES",
    "EXCHANGE_VOCABULARY = False",
    "run.Run.exchange_vocabulary = %EXCHANGE_VOCABULARY",
    "GROW = False",
    "run.Run.grow = %GROW",
    "PEAK_LEARNING_RATE = None",
    "schedules.rsqrt.peak = %PEAK_LEARNING_RATE",
}
_LATER_PART = "feature_converters.Encoder.pack = %PACK\n\n"
_FORMERLY = {
    "run.Run.completer = %COMPLETER": "run.Run.completer = %TEACHER",
    # What a default that follows the device means here, where all runs are a CPU's.
    "ATTENTION_KERNEL = @kernel_choice.automatic": "ATTENTION_KERNEL = @attention_kernels.plain",
    "SCAN_UNROLL = None": "SCAN_UNROLL = 1",
    "MICROBATCHES = None": "MICROBATCHES = 1",
}
"""Lines of a configuration, and what older ones have in their place."""


def settings(
    files: Sequence[str], bindings: Sequence[str] = (), folders: Sequence[str] = ()
) -> str:
    """A digest of the configuration that gin files make: equal digests are repetitions.

    Args:
      files, bindings, folders: as in `gin_config.load`.
    """
    gin_config.load(files, bindings, folders)
    return digest(gin_config.config_text())


def digest(config: str) -> str:
    """A digest of a configuration as gin text, such as a run's `config.gin`.

    Comments and the places of modules (`from a.b import c`) do not count. Nor do settings that came
    later, at the value that means what was so before.
    """
    said = [
        _FORMERLY.get(line, line)
        for line in config.replace(_LATER_PART, "").splitlines()
        if line not in _LATER and not re.match("#|from |import ", line)
    ]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def machine() -> dict[str, Any]:
    """The hardware and JAX of this machine; another process asks JAX and then frees the device."""
    cpu, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"^model name\s*: (.+)$", info.read_text(), re.M)):
        cpu = found[1]
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    jax = subprocess.run([sys.executable, "-c", _JAX], stdout=subprocess.PIPE, check=True)
    return {
        "cpu": cpu,
        "cores": cores,
        "python": platform.python_version(),
        **json.loads(jax.stdout),
    }


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file of results, oldest first; none where there is no file."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # a line that was cut off
            found.append(json.loads(line))
    return found


def append(file: Path, line: Mapping[str, Any]) -> None:
    """Adds a line to a file of results."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")
