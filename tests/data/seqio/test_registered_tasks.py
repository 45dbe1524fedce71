"""Tasks of SeqIO's registry, and the vocabulary in which they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import seqio
import tensorflow as tf

from t5x_like.data.dataset import Data
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.seqio import adapter, registered_tasks
from t5x_like.data.streams import mixtures
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary

BYTES = seqio.Feature(seqio.ByteVocabulary(extra_ids=0))
MORE_BYTES = seqio.Feature(seqio.ByteVocabulary(extra_ids=100))
IDS = seqio.Feature(seqio.PassThroughVocabulary(1000))
FEWER_IDS = seqio.Feature(seqio.PassThroughVocabulary(50))
WEIGHTS = seqio.ContinuousFeature(dtype=tf.float32)


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    monkeypatch.setattr(seqio.MixtureRegistry, "_REGISTRY", {})


def source(features: Mapping[str, seqio.Feature]) -> registered_tasks.SeqioText:
    seqio.TaskRegistry.add(
        "task",
        source=seqio.FunctionDataSource(lambda split, shuffle_files: None, splits=["train"]),
        preprocessors=[seqio.CacheDatasetPlaceholder()],
        output_features=features,
    )
    (found,) = registered_tasks.find_tasks("task") or ()
    return found.text


@pytest.mark.parametrize(
    "features",
    [
        {"inputs": BYTES, "targets": MORE_BYTES},
        {"inputs": IDS, "targets": BYTES},
        {"inputs": IDS, "targets": FEWER_IDS},
        {"inputs": BYTES, "masked_targets": MORE_BYTES, "masked_positions": IDS},
    ],
)
def test_tokens_in_two_vocabularies_are_refused(features: dict[str, seqio.Feature]) -> None:
    with pytest.raises(ValueError, match=r"'task': inputs and .*targets are in different vocab"):
        _ = source(features).vocabulary


@pytest.mark.parametrize(
    ("features", "vocabulary"),
    [
        (
            {"inputs": BYTES, "targets": BYTES, "positions": IDS, "weights": WEIGHTS},
            ByteVocabulary(),
        ),
        ({"targets": BYTES}, ByteVocabulary()),
        ({"inputs": IDS, "targets": IDS, "labels": FEWER_IDS}, PassThroughVocabulary(1000)),
        ({"inputs": WEIGHTS, "targets": BYTES}, ByteVocabulary()),
    ],
)
def test_numbers_that_pass_through_are_no_tokens(
    features: dict[str, seqio.Feature], vocabulary: object
) -> None:
    assert source(features).vocabulary == vocabulary


def test_every_objective_of_ours_is_in_one_vocabulary(make_corpus: type) -> None:
    for task in adapter.register_all(make_corpus(["text"], ["text"]), ByteVocabulary(100)):
        (found,) = registered_tasks.find_tasks(task.name) or ()
        assert found.text.vocabulary == ByteVocabulary(100)


steps = seqio.preprocessors
MARK = seqio.CacheDatasetPlaceholder()


def pairs(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
    numbers = [str(n) for n in range(8, 12)]
    return tf.data.Dataset.from_tensor_slices(
        {"inputs": [f"question {n}" for n in numbers], "targets": numbers}
    )


def register(name: str, *preprocessors: Callable, splits: tuple[str, ...] = ("train",)) -> Data:
    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(pairs, splits),
        preprocessors=preprocessors,
        output_features={"inputs": BYTES, "targets": BYTES},
    )
    return Data(mixture_or_task_name=name)


def with_lengths(data: Data, folder: Path, inputs: int) -> Data:
    return dataclasses.replace(
        data, lengths={"inputs": inputs, "targets": 8}, cache_dir=str(folder)
    )


def noisy(ds: tf.data.Dataset) -> tf.data.Dataset:
    return seqio.map_over_dataset(lambda x, seed: x, num_seeds=1)(ds)


@pytest.mark.parametrize("mark", [[MARK], []])
def test_a_late_step_runs_for_the_lengths_of_a_cache(
    tmp_path: Path, mark: list, capsys: pytest.CaptureFixture
) -> None:
    data = register("late", steps.tokenize, *mark, steps.append_eos, steps.truncate_inputs_left)
    for inputs in (4, 6):
        given = with_lengths(data, tmp_path, inputs)
        (task,) = given.open()
        assert (
            f"truncate_inputs_left runs now, for lengths {given.lengths}" in capsys.readouterr().out
        )
        (ours,) = mixtures.examples([task], "train", converter=EncoderDecoder(), seed=0)
        expected = seqio.TaskRegistry.get("late").get_dataset(given.lengths, "train", shuffle=False)
        for n, row in enumerate(expected.as_numpy_iterator()):
            assert {k: v.tolist() for k, v in ours.features(n)[0].items()} == {
                name: row[name].tolist() for name in given.lengths
            }
    assert len([*(tmp_path / "tokens").iterdir()]) == 2
    seqio.TaskRegistry.reset()
    assert with_lengths(data, tmp_path, 6).open()[0].tokens() == task.tokens()
    with pytest.raises(ValueError, match=r"cached for lengths .*6.* not .*4.* cache it again with"):
        with_lengths(data, tmp_path, 4).open()


def test_a_cache_for_lengths_is_not_made_without_them(tmp_path: Path) -> None:
    data = register("late", steps.tokenize, MARK, steps.truncate_inputs_left)
    with pytest.raises(ValueError, match=r"'late' has a step .* certain lengths: add them"):
        dataclasses.replace(data, cache_dir=str(tmp_path), lengths={}).make_caches()
    (cache,) = with_lengths(data, tmp_path, 6).make_caches()
    assert cache.manifest.materialized["lengths"] == {"inputs": 6, "targets": 8}


def test_a_placeholder_in_first_place_changes_nothing(tmp_path: Path) -> None:
    data = register("first", MARK, steps.tokenize, steps.append_eos_after_trim)
    (task,) = with_lengths(data, tmp_path, 6).open()
    assert task.steps == ("append_eos_after_trim",)
    assert task.cache.split("train").record(0)["targets"].tolist() == [ord("8") + 3]


@pytest.mark.parametrize("mark", [[MARK], []])
def test_a_step_that_draws_within_is_refused_and_can_be_materialized(
    tmp_path: Path, mark: list
) -> None:
    given = with_lengths(register("draws", steps.tokenize, *mark, noisy), tmp_path, 6)
    with pytest.raises(ValueError, match=r"noisy, which draws .* Run `t5x_like cache draws --mate"):
        given.open()
    given.materialize(seed=0, epochs=2)
    (task,) = given.open()
    assert task.cache.manifest.splits["train"].records == 8


def test_a_mixture_asks_for_no_rate_of_a_task_that_is_only_evaluated() -> None:
    register("both", steps.tokenize, MARK, splits=("train", "validation"))
    register("held", steps.tokenize, MARK, splits=("validation",))
    register("tests", steps.tokenize, MARK, splits=("test",))
    sizes = {"both": 12.0}
    names = ["both", "held", "tests"]
    seqio.MixtureRegistry.add("all", [(name, lambda task: sizes[task.name]) for name in names])
    assert [task.name for task in registered_tasks.find_tasks("all") or ()] == ["both", "held"]
