"""Every kind of label with every family: a batch is learned, and eight devices learn as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kinds_of_labels import ONE, ROWS, losses, opened, untrained

from t5x_like.data.streams import stream

KINDS = ("classes", "pairs", "several", "ordered", "numbers", "tags", "spans", "choices")
STEPS = 60
FAMILIES = ("bert", "electra", "xlnet", "gpt2", "bart", "t5")
NO_HEAD = {("bart", "choices"), ("t5", "choices"), ("bart", "tags")}
"""Those that transformers' classes do not know."""
ON_EIGHT = {("bert", kind) for kind in KINDS if kind != "pairs"} | {
    (family, "classes") for family in FAMILIES
}
"""A body is sharded alike for every head, and a head for every body."""
CASES = [
    pytest.param(family, kind, marks=[] if family == "bert" or alone else [pytest.mark.matrix])
    for family in FAMILIES
    for kind in KINDS
    for alone in [(family, kind) in ON_EIGHT | NO_HEAD]
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    return untrained(tmp_path_factory.mktemp("models"))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_batch_is_learned_on_eight_devices_as_on_one(
    family: str, kind: str, written: Callable[[str], str], tmp_path: Path
) -> None:
    if (family, kind) in NO_HEAD:
        with pytest.raises(ValueError, match=r"is not (read|supported)"):
            opened(written(family), kind, tmp_path)
        return
    alone = losses(opened(written(family), kind, tmp_path, ONE), STEPS)
    assert min(alone) < 0.3 * alone[0], alone
    if (family, kind) not in ON_EIGHT:
        return
    together = losses(opened(written(family), kind, tmp_path), 3)
    np.testing.assert_allclose(together, alone[:3], rtol=2e-4)


@pytest.mark.slow
def test_searched_answers_are_learned_on_eight_devices_as_on_one(
    written: Callable[[str], str], tmp_path: Path
) -> None:
    alone = losses(opened(written("xlnet"), "spans", tmp_path, ONE, search=True), STEPS)
    assert min(alone) < 0.3 * alone[0], alone
    together = losses(opened(written("xlnet"), "spans", tmp_path, search=True), 3)
    np.testing.assert_allclose(together, alone[:3], rtol=2e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_two_hosts_and_a_resumed_run_read_the_same_rows(
    kind: str, written: Callable[[str], str], tmp_path: Path
) -> None:
    examples = opened(written("bert"), kind, tmp_path).train

    def read(start: int, rows: list[int] | None = None) -> dict[str, np.ndarray]:
        batches = stream.train_stream(examples, batch_size=ROWS, rows=rows, start_step=start)
        batch = next(batches)
        batches.close()
        return batch

    whole = stream.train_stream(examples, batch_size=ROWS)
    straight = [next(whole) for _ in range(6)]
    for step in (1, 5):
        halves = [read(step, [*range(ROWS // 2)]), read(step, [*range(ROWS // 2, ROWS)])]
        for name, values in straight[step].items():
            np.testing.assert_array_equal(read(step)[name], values)
            np.testing.assert_array_equal(np.concatenate([h[name] for h in halves]), values)
