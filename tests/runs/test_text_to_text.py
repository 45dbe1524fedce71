"""Text-to-text: a user's table with flags alone, a user's SeqIO tasks unchanged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tiny_run import Tiny, finish, losses, recorded_rows

from t5x_like.data.cache.format import read_manifest
from t5x_like.data.cache.reader import Cache

MODULE = '''
"""Tasks of a user, in the user's own file."""

import pathlib

import seqio
import tensorflow as tf

HERE = pathlib.Path(__file__).parent
VOCABULARY = seqio.ByteVocabulary()
FEATURES = {
    "inputs": seqio.Feature(VOCABULARY, add_eos=True),
    "targets": seqio.Feature(VOCABULARY, add_eos=True),
}
SOURCE = seqio.TextLineDataSource(
    {"train": str(HERE / "pairs.tsv"), "validation": str(HERE / "pairs.tsv")}, skip_header_lines=1
)


def cells(line):
    return tf.strings.split(line, "\\t")


def parse(dataset):
    return dataset.map(lambda line: {"inputs": cells(line)[0], "targets": cells(line)[1]})


def shout(dataset):
    return dataset.map(lambda x: {**x, "inputs": tf.concat([[70], x["inputs"]], 0)})


@seqio.map_over_dataset(num_seeds=1)
def waver(x, seed):
    noise = tf.random.stateless_uniform([1], seed, 70, 72, tf.int32)
    return {**x, "inputs": tf.concat([noise, x["inputs"]], 0)}


def waver_within(dataset):
    return waver(dataset)


def add(name, *later):
    steps = [parse, seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), *later]
    seqio.TaskRegistry.add(name, SOURCE, preprocessors=steps, output_features=FEATURES)


add("copy", seqio.preprocessors.append_eos)
add("copy_again", seqio.preprocessors.append_eos_after_trim)
add("copy_loudly", shout, seqio.preprocessors.append_eos)
add("copy_unsteadily", waver_within, seqio.preprocessors.append_eos)
seqio.MixtureRegistry.add("copies", [("copy", 3), ("copy_again", 1.5)])
'''


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose targets are their inputs, shortened."""
    draw = random.Random(0)
    rows = [" ".join(draw.choices("one two three four five".split(), k=5)) for _ in range(40)]
    table = "inputs\ttargets\n" + "".join(f"copy: {row}\t{row[:12]}\n" for row in rows)
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text(table)
    return path


@pytest.fixture(scope="module")
def module(pairs: Path) -> str:
    path = pairs.with_name("my_copy_tasks.py")
    path.write_text(MODULE)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
def test_table_trains_by_flags_alone(pack: bool, tiny: Tiny, pairs: Path) -> None:
    run = tiny.trained("run", CORPUS=str(pairs), PACK=pack, TRAIN_STEPS=3, EVAL_PERIOD=3)
    assert len(losses(run)) == 3
    evaluation = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert "eval/pairs/token_loss" in evaluation


@pytest.mark.slow
def test_table_and_a_seqio_task_of_it_read_the_same(tiny: Tiny, pairs: Path, module: str) -> None:
    tiny.trained("table", CORPUS=str(pairs), CORPUS_VALIDATION=0.0, TRAIN_STEPS=1)
    tiny.trained("task", **task("copy", module), TRAIN_STEPS=1)
    table, copy = sorted(
        (Cache.open(path.parent) for path in (tiny.root / "cache").rglob("manifest.json")),
        key=lambda cache: cache.manifest.corpus != "pairs",
    )
    splits = table.split("train"), copy.split("train")
    assert [len(split) for split in splits] == [40, 40]
    for i in range(40):
        for name in ("inputs", "targets"):
            np.testing.assert_array_equal(*(split.record(i)[name] for split in splits))


def task(name: str, module: str | None) -> dict[str, str | None]:
    return {"CORPUS": None, "MIXTURE_OR_TASK_NAME": name, "MIXTURE_OR_TASK_MODULE": module}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param("copy", marks=pytest.mark.matrix), "copies", "copy_loudly"]
)
def test_seqio_task_trains_unchanged_and_again_without_seqio(
    name: str, tiny: Tiny, module: str, environment_without_tensorflow: dict[str, str]
) -> None:
    """The second run has the cache and its record alone: neither SeqIO nor the user's module."""
    first = tiny.flags("first", **task(name, module), VOCABULARY=None, TRAIN_STEPS=4)
    finish(tiny.start(first, driver=["--record"]))
    again = tiny.flags("again", **task(name, None), VOCABULARY=None, TRAIN_STEPS=4)
    finish(tiny.start(again, driver=["--record"], env=environment_without_tensorflow))
    rows = recorded_rows(tiny.root / "first")
    assert recorded_rows(tiny.root / "again") == rows
    assert losses(tiny.root / "again") == losses(tiny.root / "first")
    if name == "copies":
        (record,) = (tiny.root / "cache" / "tasks").glob("copies.json")
        weights = {one["name"]: one["weight"] for one in json.loads(record.read_text())}
        assert weights == {"copy": 2, "copy_again": 1}


@pytest.mark.slow
def test_task_with_a_random_step_is_refused_and_then_materialized(tiny: Tiny, module: str) -> None:
    name = "copy_unsteadily"
    unsteadily = task(name, module)
    refused = tiny.train("run", **unsteadily, TRAIN_STEPS=2)
    assert refused.status == 1
    assert "my_copy_tasks.waver_within, which draws random numbers" in refused.err
    assert f"t5x_like cache {name} --materialize" in refused.err
    plain = tiny.cli("cache", name, "--module", module, f"--cache_dir={tiny.root}/cache")
    assert plain.status == 1
    assert "my_copy_tasks.waver_within" in plain.err

    lengths = "inputs=64,targets=24"
    made = tiny.cli(
        *("cache", name, "--module", module, "--materialize", "--lengths", lengths),
        f"--cache_dir={tiny.root}/cache",
    )
    assert made.status == 0, made.err
    directory = Path(made.out.splitlines()[0])
    assert read_manifest(directory).materialized["lengths"] == {"inputs": 64, "targets": 24}
    by_directory = tiny.train("other", CORPUS=str(directory))
    assert by_directory.status == 1
    assert "set CACHE_DIR" in by_directory.err
    record = Cache.open(directory).split("train").record(0)
    assert record["inputs"][0] in (70, 71)
    assert record["inputs"][-1] == 1
    assert len(losses(tiny.trained("run", **unsteadily, TRAIN_STEPS=2))) == 2
    assert len(losses(tiny.trained("packed", **unsteadily, TRAIN_STEPS=2, PACK=True))) == 2

    other = tiny.train("other", **unsteadily, TASK_FEATURE_LENGTHS={"inputs": 48, "targets": 24})
    assert other.status == 1
    assert "cached for lengths" in other.err


def test_materialize_needs_lengths_and_a_seqio_task(tiny: Tiny, pairs: Path) -> None:
    assert tiny.cli("cache", "--corpus", str(pairs), "--materialize").status == 2
    result = tiny.cli(
        *("cache", "--corpus", str(pairs), "--materialize", "--lengths=inputs=8,targets=8"),
        *("--vocabulary=bytes", f"--cache_dir={tiny.root}/cache"),
    )
    assert result.status == 1
    assert "not a SeqIO task" in result.err
