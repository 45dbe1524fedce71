"""Rows of several tasks are those of each task, and say nothing of the others."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.core.protocols.tasks import own
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.data.rows.task_rows import TaskRows, apart, bound
from t5x_like.objectives.supervised.classes import Classes
from t5x_like.objectives.supervised.numbers import Numbers
from t5x_like.objectives.supervised.several import Several
from t5x_like.objectives.supervised.tags import Tags

TASKS = {
    "names": Tags(pieces="mean"),
    "sentiment": Classes(weighed=True),
    "stars": Numbers(),
    "topics": Several(num_labels=3),
}
IDS = TokenIds(vocab_size=50, pad=0, cls=1, sep=2)
TOKENS = np.arange(10, 14)
SAMPLES = {
    "names": {"words": TOKENS, "tags": np.array([1, -1, 0, 2])},
    "sentiment": {"inputs": TOKENS, "label": np.int32(4), "weight": np.float32(0.5)},
    "stars": {"inputs": TOKENS, "label": np.float32(2.5)},
    "topics": {"inputs": TOKENS, "label": np.array([0, 2])},
}
BODY = {"encoder_input_tokens", "encoder_token_type_ids", "encoder_attention_mask"}


@pytest.mark.parametrize("length", [6, 9])
@pytest.mark.parametrize("task", TASKS)
def test_a_row_has_what_its_task_has_alone(task: str, length: int) -> None:
    objective = TASKS[task]
    features = objective.features({"inputs": length})
    example = objective(SAMPLES[task], np.random.default_rng(0), IDS)
    converter = TaskRows(TASKS)
    row = bound(converter, task).convert([example], features=features, ids=IDS)
    alone = apart(converter).convert([example], features=features, ids=IDS)
    assert alone.keys() == {*BODY, *own(row, task)}
    for name, value in {**{name: row[name] for name in BODY}, **own(row, task)}.items():
        np.testing.assert_array_equal(value, alone[name], strict=True)
    assert row["task"] == [*TASKS].index(task)
    assert not any(
        value.any() for other in TASKS.keys() - {task} for value in own(row, other).values()
    )


def test_rows_of_all_tasks_and_of_none_have_the_same_arrays() -> None:
    rows = [TaskRows(TASKS).convert([], features=TASKS["stars"].features({"inputs": 8}), ids=IDS)]
    assert rows[0]["task"] == -1
    for task, objective in TASKS.items():
        features = objective.features({"inputs": 8})
        example = objective(SAMPLES[task], np.random.default_rng(0), IDS)
        rows.append(bound(TaskRows(TASKS), task).convert([example], features=features, ids=IDS))
        rows.append(bound(TaskRows(TASKS), task).convert([], features=features, ids=IDS))
    shapes = [{name: (x.shape, x.dtype) for name, x in row.items()} for row in rows]
    assert all(of_row == shapes[0] for of_row in shapes)


def test_other_converters_are_the_same_for_every_task() -> None:
    assert bound(Encoder(), "stars") == apart(Encoder()) == Encoder()
