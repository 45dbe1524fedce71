"""The limit of restarts without progress."""

from __future__ import annotations

import json

import pytest
from etils import epath

from t5x_like.launching import attempts


@pytest.fixture
def start(tmp_path):
    def start(launch="a", process=0, limit=2):
        words = [str(tmp_path), f"--launch={launch}", f"--limit={limit}", f"--process={process}"]
        return attempts.main(words)

    return start


def test_a_run_without_a_new_checkpoint_is_given_up(start, capsys):
    assert [start() for _ in range(4)] == [0, 0, 0, attempts.GAVE_UP]
    assert "started 3 times at step 0 and made no new checkpoint" in capsys.readouterr().err


def test_progress_and_a_new_launch_count_anew(start, tmp_path):
    for step in (10, 20, 30):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
        assert [start(), start()] == [0, 0]
    assert [start(), start()] == [0, attempts.GAVE_UP]
    assert start(launch="b") == 0


def test_other_hosts_read_and_do_not_write(start, tmp_path):
    assert start(process=3) == 0
    assert not (tmp_path / attempts.RECORD).exists()
    while start() == 0:
        pass
    before = (tmp_path / attempts.RECORD).read_text()
    assert start(process=3) == attempts.GAVE_UP
    assert start(process=3, launch="b") == 0
    assert (tmp_path / attempts.RECORD).read_text() == before
    assert json.loads(before)["gave_up"]


def test_names_that_are_no_steps_are_no_checkpoints(tmp_path):
    for name in ("7", "9.orbax-checkpoint-tmp", "damaged"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert attempts.newest_step(epath.Path(tmp_path)) == 7
