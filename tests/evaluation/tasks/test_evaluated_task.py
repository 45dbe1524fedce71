"""The metrics of SeqIO tasks: those of `seqio.Evaluator`, and the same where SeqIO is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import capital_tasks
import numpy as np
import pytest
import seqio
import tensorflow_datasets as tfds

from t5x_like.core.protocols.answers import Answers
from t5x_like.data.dataset import Data
from t5x_like.data.task_files.evaluation_files import NoExamplesError
from t5x_like.evaluation.task_metrics import ask, measure
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask, open_task

LENGTHS = {"inputs": 24, "targets": 8}
KINDS = {*Answers._fields} - {"labels"}


class Parrot:
    """An `Answerer` that says fixed things: every answer in lower case but one, and noise."""

    def predict(self, examples: Any) -> list[np.ndarray]:
        draw = np.random.default_rng(0)
        found = []
        for n, one in enumerate(examples):
            text = one["targets_pretokenized"].decode()
            said = (text if n % 2 else text.lower()).encode() + b"\xff\xc3 !"
            ids = [byte + 3 for byte in said] + [1] * (n % 3 > 0) + [*draw.integers(0, 259, 3)]
            found.append(np.array([*ids, *[0] * (40 - len(ids))], np.int32))
        return found

    def score(self, examples: Any) -> list[float]:
        return [-float(np.sum(one["targets"], dtype=np.float64)) / 7 for one in examples]


def opened(
    name: str, root: Path, *, split: str = "validation", **options: Any
) -> tuple[EvaluatedTask, list[str]]:
    data = Data(mixture_or_task_name=name, lengths=LENGTHS, cache_dir=str(root))
    (task,) = data.find_tasks()
    return open_task(
        data,
        task,
        split=split,
        vocabulary=data.open_vocabulary([task]),
        kinds=KINDS,
        **options,
    )


def of_evaluator(name: str, split: str) -> tuple[seqio.Evaluator, dict[str, float]]:
    """SeqIO's own evaluator, with the answers of the parrot."""
    evaluator = seqio.Evaluator(
        name,
        seqio.EncDecFeatureConverter(pack=False),
        eval_split=split,
        sequence_length=LENGTHS,
        async_compute_metrics=False,
    )
    examples = [*tfds.as_numpy(evaluator.cached_task_datasets[name])]
    answers = ask(KINDS, examples, Parrot())
    metrics, _ = evaluator.evaluate(
        compute_metrics=True,
        predict_fn=lambda ds: [*enumerate(answers.predictions)],
        score_fn=lambda ds: [*enumerate(answers.scores)],
        predict_with_aux_fn=lambda ds: (
            [*enumerate(answers.predictions)],
            {"scores": [*answers.prediction_scores]},
        ),
    )
    return evaluator, metrics.result()[name]


@pytest.mark.parametrize("name", ["capitals", "capitals_by_name"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_metrics_are_those_of_seqios_evaluator(name: str, split: str, tmp_path: Path) -> None:
    task, missing = opened(name, tmp_path, split=split)
    answers = ask(KINDS, task.examples, Parrot())
    values, failures = measure(task.metrics, task.examples, answers)
    _, theirs = of_evaluator(name, split)
    theirs = {key: getattr(value, "value", value) for key, value in theirs.items()}
    assert (missing, failures) == ([], [])
    assert values == pytest.approx(theirs, rel=1e-12)
    assert {"accuracy", "longest", "likelihood", "confidence"} <= values.keys()
    # The second folds the case of predictions alone, by an argument of its postprocess_fn.
    assert (values["accuracy"] > 0) == (name == "capitals")


def test_examples_are_those_of_seqios_evaluator(tmp_path: Path) -> None:
    task, _ = opened("capitals", tmp_path, split="test")
    evaluator, _ = of_evaluator("capitals", "test")
    theirs = [*tfds.as_numpy(evaluator.cached_task_datasets["capitals"])]
    assert len(task.examples) == len(theirs) == task.total == 7
    for mine, wanted in zip(task.examples, theirs, strict=True):
        assert mine.keys() == wanted.keys()
        for name, value in wanted.items():
            assert type(mine[name]) is type(value), name
            np.testing.assert_array_equal(mine[name], value, err_msg=name)
            if isinstance(value, np.ndarray):
                assert (mine[name].dtype, mine[name].shape) == (value.dtype, value.shape), name


WITHOUT_SEQIO = """
import json, sys
sys.path[:0] = sys.argv[2:]
import numpy as np
from t5x_like.data.dataset import Data
from t5x_like.data.user_modules import import_module
from t5x_like.evaluation.task_metrics import measure
from t5x_like.core.protocols.answers import Answers
from t5x_like.evaluation.tasks.evaluated_task import open_task
from t5x_like.vocabularies.byte import ByteVocabulary

import_module("capital_metrics")  # as --module does
given = json.load(sys.stdin)
name, root = "capitals_by_name", sys.argv[1]
data = Data(mixture_or_task_name=name, lengths=given["lengths"], cache_dir=root)
(task,) = data.recorded()
found, missing = open_task(
    data, task, split="test", vocabulary=ByteVocabulary(), kinds=Answers._fields
)
answers = Answers([np.array(ids, np.int32) for ids in given["predictions"]], *given["scores"])
print(json.dumps([*measure(found.metrics, found.examples, answers), missing]))
"""


def test_metrics_are_the_same_from_a_file_without_seqio(
    tmp_path: Path, environment_without_tensorflow: dict[str, str]
) -> None:
    data = Data(
        mixture_or_task_name="capitals_by_name", lengths=LENGTHS, cache_dir=str(tmp_path), workers=1
    )
    data.make_caches()
    task, _ = opened("capitals_by_name", tmp_path, split="test")
    answers = ask(KINDS, task.examples, Parrot())
    given = {
        "lengths": LENGTHS,
        "predictions": [ids.tolist() for ids in answers.predictions],
        "scores": [answers.scores, answers.prediction_scores],
    }
    folder = str(Path(capital_tasks.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SEQIO, str(tmp_path), folder],
        input=json.dumps(given),
        env=environment_without_tensorflow,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    values, failures, missing = json.loads(done.stdout)
    assert (failures, missing) == ([], [])
    assert values == measure(task.metrics, task.examples, answers)[0]


def test_a_file_is_made_again_when_its_task_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Data(mixture_or_task_name="capitals", lengths=LENGTHS, cache_dir=str(tmp_path))
    (task,) = data.find_tasks()
    vocabulary = data.open_vocabulary([task])

    def file() -> Path:
        return data.evaluation_file("capitals", "test", vocabulary=vocabulary)

    first = file().stat().st_mtime_ns
    assert file().stat().st_mtime_ns == first
    steps = seqio.TaskRegistry.get("capitals").preprocessors[:-1]
    changed = seqio.TaskRegistry.get("capitals").replace(
        preprocessors=[*steps, seqio.preprocessors.append_eos]
    )
    monkeypatch.setitem(seqio.TaskRegistry._REGISTRY, "capitals", changed)
    assert file().stat().st_mtime_ns > first


def test_a_split_or_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no split 'dev'; its splits are train, validation, test"):
        opened("capitals", tmp_path, split="dev")
    data = Data(lengths=LENGTHS, cache_dir=str(tmp_path))
    vocabulary = Data(mixture_or_task_name="capitals").open_vocabulary(
        Data(mixture_or_task_name="capitals").find_tasks()
    )
    with pytest.raises(NoExamplesError, match="cache gone --module M --lengths inputs=24"):
        data.evaluation_file("gone", "test", vocabulary=vocabulary)


def test_features_that_fill_their_length_are_counted(tmp_path: Path) -> None:
    task, _ = opened("capitals", tmp_path, split="test")
    inputs, targets = task.cut()
    assert "1 of 7 examples fill all 24 tokens of inputs" in inputs
    assert "2 of 7 examples fill all 8 tokens of targets" in targets
