"""Several tasks with every family: a batch is learned, on eight devices as on one, by all hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kinds_of_labels import EIGHT, ONE, ROWS, batches_of, losses, rows, untrained

import t5x_like as t5x
from t5x_like.core.partitioning import Layout
from t5x_like.data.streams import stream
from t5x_like.runs.batches import PhaseBatches

KINDS = ("classes", "numbers", "pairs", "several")
SAID = {"pairs": {"second": "sentence2", "text": "sentence1"}}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    return untrained(tmp_path_factory.mktemp("models"))


def opened(
    source: str, folder: Path, layout: Layout, kinds: tuple[str, ...] = KINDS
) -> PhaseBatches:
    tasks = {}
    for kind in kinds:
        file = folder / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows(kind)))
        tasks[kind] = {"train": str(file), "label": "label", **SAID.get(kind, {})}
        if kind == "tags":
            tasks[kind] = {"train": str(file)}
    run = t5x.finetune(
        source,
        task=tasks,
        head=source.endswith("t5"),
        batch_size=ROWS,
        learning_rate=0.1 if source.endswith("t5") else 0.02,
        model_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        gin=["WARMUP_STEPS=0", "TRAIN_STEPS=10000"],
    ).run
    return batches_of(run, source, layout)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_batch_is_learned_on_eight_devices_as_on_one(
    family: str, written: Callable[[str], str], tmp_path: Path
) -> None:
    alone = losses(opened(written(family), tmp_path, ONE), 60)
    assert min(alone) < 0.3 * alone[0], alone
    together = losses(opened(written(family), tmp_path, EIGHT), 3)
    np.testing.assert_allclose(together, alone[:3], rtol=2e-4)


@pytest.mark.slow
def test_two_hosts_and_a_resumed_run_read_the_same_rows(
    written: Callable[[str], str], tmp_path: Path
) -> None:
    kinds = ("classes", "several", "tags")
    examples = opened(written("bert"), tmp_path, ONE, kinds).train

    def read(start: int, some: list[int] | None = None) -> dict[str, np.ndarray]:
        batches = stream.train_stream(
            examples, batch_size=ROWS, rows=some, start_step=start, by_length=True
        )
        batch = next(batches)
        batches.close()
        return batch

    whole = stream.train_stream(examples, batch_size=ROWS, by_length=True)
    straight = [next(whole) for _ in range(6)]
    assert {*np.concatenate([batch["task"] for batch in straight]).tolist()} == {0, 1, 2}
    for step in (1, 5):
        halves = [read(step, [*range(ROWS // 2)]), read(step, [*range(ROWS // 2, ROWS)])]
        for name, values in straight[step].items():
            np.testing.assert_array_equal(read(step)[name], values)
            np.testing.assert_array_equal(np.concatenate([h[name] for h in halves]), values)
    whole.close()


def test_a_t5_that_writes_and_heads_of_other_bodies_are_refused(
    written: Callable[[str], str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="a T5 writes its answers: add --head"):
        t5x.finetune(written("t5"), task=["sst2", "mrpc"], cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="the head of task tags reads other states of a t5"):
        opened(written("t5"), tmp_path, ONE, ("classes", "tags"))
