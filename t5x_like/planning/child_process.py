"""Processes whose environment names TPUs that are absent, so that libtpu compiles for them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t5x_like.planning.topologies import Topology


class Child:
    """A process that runs, and the folder that it writes to."""

    def __init__(self, process: subprocess.Popen, folder: Path) -> None:
        self.process, self.folder = process, folder

    def wait(self) -> int:
        """Waits for its end; returns its exit status."""
        return self.process.wait()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def failure(self) -> str:
        """Its exit status and its last lines."""
        log = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return "\n".join(
            [f"compiling ended with status {self.process.returncode}; its last lines:", *log[-15:]]
        )


@contextlib.contextmanager
def run_child(
    module: str,
    request: Mapping[str, Any],
    topology: Topology,
    *,
    dump_steps: bool = False,
    dump_kernels: bool = False,
) -> Iterator[Child]:
    """Runs `python -m module` for a topology; it is killed, and its folder removed, at the end.

    Args:
      module: the module; it reads JSON from its standard input.
      request: what it reads, besides `folder`, `topology` and `slices`.
      topology: the chips.
      dump_steps: whether the compiler writes what it knows about a step into the folder.
      dump_kernels: whether it writes the final bundles of all that it compiles there.
    """
    with tempfile.TemporaryDirectory(prefix="t5x_like-plan-") as name:
        folder = Path(name)
        message = {
            **request,
            "folder": name,
            "topology": topology.name,
            "slices": topology.slices,
        }
        environment = {**os.environ, **topology.environment()}
        flags = {}
        if dump_steps:
            flags["XLA_FLAGS"] = (
                f"--xla_dump_to={name} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_step"
            )
        if dump_kernels:
            flags["LIBTPU_INIT_ARGS"] = (
                f"--xla_jf_dump_to={name} --xla_jf_dump_llo_text=true "
                "--xla_jf_dump_llo_pass_label_regex=.*final_bundles"
            )
        for variable, more in flags.items():
            environment[variable] = f"{environment.get(variable, '')} {more}".strip()
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
            )
            try:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(message).encode())
                    process.stdin.close()
                yield Child(process, folder)
            finally:
                process.kill()
                process.wait()
