"""The NumPy twins give the same features as SeqIO's own steps, with and without limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like.data.rows import late_steps
from t5x_like.data.seqio.task_steps import TWINS

EOS = {"inputs": 1, "targets": 9}
LENGTHS = [
    {},
    {"inputs": 5, "targets": 4},
    {"inputs": 1, "targets": 100},
    {"inputs": None, "targets": 3},
]
RECORDS = [
    {"inputs": np.arange(2, 2 + n, dtype=np.int32), "targets": np.arange(3, 3 + m, dtype=np.int32)}
    for n, m in itertools.product([0, 1, 4, 5, 6, 12], [0, 3, 4])
]


def seqio_features(with_eos: tuple[str, ...]) -> dict[str, seqio.Feature]:
    return {
        name: seqio.Feature(
            seqio.PassThroughVocabulary(50, eos_id=EOS[name]), add_eos=name in with_eos
        )
        for name in EOS
    }


def dataset() -> tf.data.Dataset:
    spec = {name: tf.TensorSpec([None], tf.int32) for name in EOS}
    return tf.data.Dataset.from_generator(lambda: iter(RECORDS), output_signature=spec)


def assert_equal(ours: list[dict], theirs: tf.data.Dataset) -> None:
    expected = list(theirs.as_numpy_iterator())
    assert len(ours) == len(expected)
    for mine, reference in zip(ours, expected, strict=True):
        assert mine.keys() == reference.keys()
        for name, value in reference.items():
            assert mine[name].dtype == value.dtype
            assert mine[name].tolist() == value.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("with_eos", [("inputs", "targets"), ("targets",), ()])
@pytest.mark.parametrize("function", [function for function, _ in TWINS])
def test_each_twin(function, with_eos: tuple[str, ...], lengths: dict[str, int | None]):
    step = late_steps.STEPS[dict(TWINS)[function]]
    eos = {name: EOS[name] for name in with_eos}
    transform = seqio.utils.add_kwargs_to_transform(
        function, sequence_length=lengths, output_features=seqio_features(with_eos)
    )
    assert_equal([step(record, lengths, eos=eos) for record in RECORDS], transform(dataset()))


@pytest.mark.slow
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "names",
    [(), ("append_eos",), ("append_eos_after_trim",), ("append_eos", "append_eos_after_trim")],
)
def test_whole_path_of_a_task(names: tuple[str, ...], lengths: dict[str, int | None]):
    functions = {name: function for function, name in TWINS}
    task = seqio.Task(
        "late_steps_parity",
        source=seqio.FunctionDataSource(lambda split, shuffle_files: dataset(), ["train"]),
        preprocessors=[functions[name] for name in names],
        output_features=seqio_features(("inputs", "targets")),
    )
    ours = [late_steps.apply(names, record, lengths=lengths, eos=EOS) for record in RECORDS]
    assert_equal(ours, task.get_dataset(lengths, "train", shuffle=False))


def test_records_are_left_as_they_were():
    record = {"targets": np.array([5, 6], np.uint16)}
    out = late_steps.apply(["append_eos"], record, lengths={"targets": 9}, eos={"targets": 1})
    assert out["targets"].tolist() == [5, 6, 1]
    assert out["targets"].dtype == np.uint16
    assert record["targets"].tolist() == [5, 6]


def test_what_nobody_limits_is_left_alone():
    features = {
        "inputs": np.arange(2, 9),
        "label": np.array(1, np.int32),
        "weights": np.ones(9, np.float32),
    }
    limits = {"inputs": 4, "label": None}
    steps = ["append_eos_after_trim", "append_eos", "trim"]
    out = late_steps.apply(steps, features, lengths=limits, eos={"inputs": 1})
    assert out["inputs"].tolist() == [2, 3, 4, 1]
    assert (out["label"].shape, out["label"].item()) == ((), 1)
    assert len(out["weights"]) == 9


def test_an_unknown_step_is_refused():
    with pytest.raises(ValueError, match=r"no post-cache step 'pack'.*append_eos_after_trim"):
        late_steps.apply(["pack"], {}, lengths={}, eos={})
