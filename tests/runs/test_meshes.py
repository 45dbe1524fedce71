"""The same losses on every mesh, and in one process as in two."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny_run import Tiny, finish, losses, recorded_rows, saved_steps

MESH = "--gin.partitioning.make_layout.mesh="
MESHES = [{"data": 8}, {"data": 4, "tensor": 2}, {"data": 2, "fsdp": 2, "tensor": 2}]


@pytest.mark.slow
def test_losses_do_not_depend_on_the_mesh(tiny: Tiny) -> None:
    finish(tiny.start(tiny.flags("one", TRAIN_STEPS=3), devices=1))
    want = losses(tiny.root / "one")
    assert list(want) == [1, 2, 3]
    assert len(set(want.values())) == 3
    for mesh in MESHES:
        run = tiny.trained("x".join(map(str, mesh.values())), f"{MESH}{mesh}", TRAIN_STEPS=3)
        assert losses(run) == pytest.approx(want, rel=2e-5), mesh


@pytest.mark.slow
def test_run_continues_on_another_mesh(tiny: Tiny) -> None:
    straight = losses(tiny.trained("straight", f"{MESH}{MESHES[0]}", TRAIN_STEPS=8))
    tiny.trained("moved", f"{MESH}{MESHES[0]}", TRAIN_STEPS=3)
    moved = losses(tiny.trained("moved", f"{MESH}{MESHES[2]}", TRAIN_STEPS=8))
    assert moved == pytest.approx(straight, rel=1e-4)


@pytest.mark.slow
def test_two_processes_train_and_one_goes_on(tiny: Tiny) -> None:
    """Each has two devices; the cache is missing at first, and process 0 alone makes it."""
    argv = tiny.flags("run", f"{MESH}{ {'data': 2, 'tensor': 2} }", TRAIN_STEPS=4)
    first, second = finish(*tiny.start_many(argv, driver=["--record"]))
    assert "caching text" in first.out
    assert "caching" not in second.out
    assert "step 4/4" in first.err
    assert "step 4/4" not in second.err
    run = tiny.root / "run"
    assert saved_steps(run) == [4]
    shares = [
        [json.loads(line)["rows"] for line in (run / f"rows-{i}of2.jsonl").read_text().splitlines()]
        for i in range(2)
    ]
    assert shares == [[[0, 1, 2, 3]] * 4, [[4, 5, 6, 7]] * 4]

    filled = tiny.cli("predict", str(run), "the ___ of", "--max_new_tokens=4", f"{MESH}{MESHES[0]}")
    assert filled.status == 0, filled.err
    alone = finish(tiny.start(tiny.flags("run", TRAIN_STEPS=7), driver=["--record"]))
    assert "Resuming from step 4" in alone[0].err
    finish(tiny.start(tiny.flags("straight", TRAIN_STEPS=7), driver=["--record"]))
    straight = tiny.root / "straight"
    assert recorded_rows(run) == recorded_rows(straight)
    np.testing.assert_allclose(
        list(losses(run).values()), list(losses(straight).values()), rtol=1e-4
    )
