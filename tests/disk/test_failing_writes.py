"""Writes that fail, in Python and in libraries: one sentence, its status, and it works afterwards.

A sample of the table of all errors and writers, which `tests/faults.sh disk` tries.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tiny_run import Tiny, saved_steps

from t5x_like.core import exit_status, whole_files

sys.path.insert(0, str(Path(__file__).parent))
from injector import CALLS, Injector, injector
from warm import Warm, warm
from writers import WRITERS, attempt, prepare

pytestmark = pytest.mark.slow

CELLS = [
    ("vocabulary", errno.ENOSPC, 0),
    ("vocabulary", errno.EMFILE, 0),
    ("vocabulary's folder", errno.EIO, 2),
    ("cache", errno.EDQUOT, 0),
    ("cache", errno.EIO, 0),
    ("cache", errno.ENOSPC, 4),
    ("cache by workers", errno.EFBIG, 3),
    ("cache's index", errno.ENOSPC, 1),
    ("plan of samples", errno.EROFS, 0),
    ("plan of a run", errno.ENOSPC, 1),
    ("run's folder", errno.EIO, 0),
    ("export", errno.ENOSPC, 1),
    ("export", errno.EACCES, 3),
    ("import", errno.EMFILE, 8),
    ("predictions", errno.EFBIG, 2),
    ("vectors", errno.EDQUOT, 4),
    ("predictions of a task", errno.ENOSPC, 0),
    ("metrics", errno.EROFS, 0),
    ("report", errno.ENOSPC, 0),
    ("plot", errno.EIO, 0),
    ("page of examples", errno.EDQUOT, 1),
    ("checkpoint", errno.ENOSPC, 12),
    ("checkpoint", errno.EROFS, 25),
    ("log", errno.ENOSPC, 0),
]
"""Writers, errors, and how many calls work before one fails."""


@pytest.fixture(scope="module")
def injecting(tmp_path_factory: pytest.TempPathFactory) -> Injector:
    found = injector(tmp_path_factory.mktemp("injector"))
    if found is None:
        pytest.skip("no C compiler (cc): writes cannot be made to fail")
    return found


@pytest.fixture(scope="module")
def commands(injecting: Injector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with warm(tmp_path_factory.mktemp("warm"), injecting.environment) as found:
        yield found


@pytest.fixture(scope="module")
def made(commands: Warm, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return prepare(tmp_path_factory.mktemp("made"), commands.run)


def test_every_error_and_every_writer_is_in_the_sample() -> None:
    assert {number for _, number, _ in CELLS} == {*CALLS}
    assert {name for name, _, _ in CELLS} == {*WRITERS} - {"cache by a run"}
    assert {*CALLS} < {*whole_files.ADVICE}


@pytest.mark.parametrize(
    ("name", "number", "spared"), CELLS, ids=[f"{n}-{errno.errorcode[e]}" for n, e, _ in CELLS]
)
def test_a_write_that_fails_is_one_sentence(
    name: str,
    number: int,
    spared: int,
    commands: Warm,
    injecting: Injector,
    made: Mapping[str, Path],
    tmp_path: Path,
) -> None:
    if name == "plan of a run":
        pytest.importorskip("libtpu")
    found = attempt(
        WRITERS[name],
        number,
        run=commands.run,
        injector=injecting,
        made=made,
        out=tmp_path / "out",
        spared=spared,
    )
    assert found != "nothing was left to fail"
    assert WRITERS[name].goes_on == (found == "it goes on")


def test_two_processes_end_when_a_checkpoint_cannot_be_written(
    tiny: Tiny, injecting: Injector
) -> None:
    command = tiny.flags("run", TRAIN_STEPS=3000, CHECKPOINT_PERIOD=8, LOG_PERIOD=100)
    saved = tiny.root / "run" / "checkpoints"
    environment = [injecting.environment] * 2
    with injecting.failing(errno.ENOSPC, f"{saved}/*", since=str(saved / "8"), spared=6):
        both = tiny.start_many(command, env=environment)
        try:
            while not injecting.failed:
                assert all(one.poll() is None for one in both), both[0].communicate()[1]
                time.sleep(0.1)
            ends = [one.communicate(timeout=60)[1] for one in both]
        finally:
            for one in both:
                one.kill()
                one.communicate()
    assert [one.returncode for one in both] == [exit_status.NO_ROOM] * 2, ends
    for said in ends:
        assert "Traceback" not in said
        assert os.strerror(errno.ENOSPC) in said.splitlines()[-1]
    assert 8 in saved_steps(tiny.root / "run")
