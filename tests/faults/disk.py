"""Every errno that a write can return, in every writer: one sentence, its status, and it goes on.

Calls fail at once, or after some have worked.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from cases import Cases

sys.path.append(str(Path(__file__).parent.parent / "disk"))
from injector import CALLS, injector
from warm import warm
from writers import WRITERS, attempt, prepare

SPARED = (0, 3, 10, 30)
"""How many calls work before one fails."""


def run(cases: Cases) -> None:
    injecting = injector(cases.folder)
    if injecting is None:
        raise SystemExit("no C compiler (cc): writes cannot be made to fail")
    with warm(cases.folder, injecting.environment) as commands:
        made = prepare(cases.folder, commands.run)
        for spared in SPARED:
            for name, writer in WRITERS.items():
                for number in CALLS:
                    cases.run(
                        f"{name} {errno.errorcode[number]} {spared}",
                        lambda writer=writer, number=number, spared=spared: attempt(
                            writer,
                            number,
                            run=commands.run,
                            injector=injecting,
                            made=made,
                            out=cases.folder / "out",
                            spared=spared,
                        ),
                    )
