"""`t5x_like eval --task` and `--corpus`: metrics, predictions, and what cannot be evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import capital_metrics
import capital_tasks
import numpy as np
import pytest
import seqio
from tiny_run import Result, Tiny, write_text

import t5x_like as t5x
from t5x_like.evaluation.tasks.answers import ModelAnswers

Cli = Callable[..., Result]
MODULE = str(Path(capital_tasks.__file__))
MACROS = {
    "CORPUS": None,
    "MIXTURE_OR_TASK_NAME": "capitals",
    "MIXTURE_OR_TASK_MODULE": MODULE,
    "VOCABULARY": None,
    "TASK_FEATURE_LENGTHS": {"inputs": 24, "targets": 8},
    "TRAIN_STEPS": 4,
    "EVAL_PERIOD": 2,
    "CHECKPOINT_PERIOD": 2,
    "BEST_METRIC": "-likelihood",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the capitals whose second step counts as the best, because it is less likely."""
    from t5x_like.cli import main

    folder = tmp_path_factory.mktemp("runs")
    cli = lambda *argv: Result(main.main(list(argv)), "", "")  # noqa: E731
    return Tiny(folder, cli, {}).trained("capitals", **MACROS)


def evaluated(cli: Cli, run: Path, *flags: str) -> dict[str, dict[str, float]]:
    output = run / "eval.json"
    done = cli("eval", str(run), "--batch_size=8", f"--output={output}", *flags)
    assert done.status == 0, done.err
    tasks = json.loads(output.read_text())["tasks"]
    return {name: columns["trained"] for name, columns in tasks.items()}


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_a_split_of_a_task_has_metrics_and_predictions(run: Path, cli: Cli) -> None:
    flags = ("--task=capitals", "--split=test", f"--module={MODULE}")
    metrics = evaluated(cli, run, *flags)["capitals"]
    assert {"accuracy", "likelihood", "confidence", "rows", "token_loss", "token_accuracy"} <= {
        *metrics
    }
    rows = lines(run / "predictions" / "capitals-test-4.jsonl")
    assert [row["idx"] for row in rows] == [*range(7)]
    assert [row["target"] for row in rows] == [one[0] for one in capital_tasks.CAPITALS.values()]
    assert rows[3]["inputs"] == rows[3]["question"] == "Capital of Japan?"
    assert rows[3]["answers"] == ["Tokio", "Tokyo"]
    # The predictions in the file are those that the metrics have read.
    examples = [{"answers": [a.encode() for a in row["answers"]]} for row in rows]
    words = [
        [capital_metrics.first_word(row[name], one, name == "target") for name in row_names]
        for row, one in zip(rows, examples, strict=True)
        for row_names in (("target", "prediction"),)
    ]
    assert metrics["accuracy"] == capital_metrics.accuracy(*zip(*words, strict=True))["accuracy"]
    assert metrics["likelihood"] == pytest.approx(np.mean([row["score"] for row in rows]))
    # From Python: the same.
    model = t5x.load(run, modules=[MODULE], rows=8)
    again = model.evaluate(task="capitals", split="test", predictions=run / "again.jsonl")
    assert again["capitals"]["trained"] == pytest.approx(metrics, nan_ok=True)
    assert lines(run / "again.jsonl") == rows


@pytest.mark.slow
def test_a_killed_evaluation_goes_on(
    run: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    countries = {f"Land {n}": [f"Stadt {n}"] for n in range(20)}
    monkeypatch.setattr(capital_tasks, "CAPITALS", countries)
    monkeypatch.setitem(capital_tasks.SPLITS, "many", 20)
    many = seqio.TaskRegistry.get("capitals").replace(
        name="capitals_many",
        source=seqio.FunctionDataSource(capital_tasks.capitals, splits=["many"]),
    )
    monkeypatch.setitem(seqio.TaskRegistry._REGISTRY, "capitals_many", many)
    flags = ("--task=capitals_many", "--split=many", f"--module={MODULE}")
    whole = evaluated(cli, run, *flags, f"--predictions={tmp_path / 'whole.jsonl'}")
    asked: list[int] = []
    predict = ModelAnswers.predict

    def killed(self: ModelAnswers, examples: Any) -> list[np.ndarray]:
        asked.extend(int(one["idx"]) for one in examples)
        if 8 in asked:
            raise KeyboardInterrupt
        return predict(self, examples)

    monkeypatch.setattr(ModelAnswers, "predict", killed)
    file = tmp_path / "killed.jsonl"
    command = ("eval", str(run), "--batch_size=8", *flags, f"--predictions={file}")
    assert cli(*command).status == 130
    assert not file.exists()
    # A line that was cut off is answered again.
    (unfinished,) = tmp_path.glob("killed.jsonl.*")
    unfinished.write_bytes(unfinished.read_bytes()[:-5])
    asked.clear()

    def counting(self: ModelAnswers, examples: Any) -> list[np.ndarray]:
        asked.extend(int(one["idx"]) for one in examples)
        return predict(self, examples)

    monkeypatch.setattr(ModelAnswers, "predict", counting)
    again = evaluated(cli, run, *flags, f"--predictions={file}")
    assert asked == [*range(7, 20)]
    assert again == whole
    assert lines(file) == lines(tmp_path / "whole.jsonl")
    assert [*tmp_path.glob("killed.jsonl.*")] == []


@pytest.mark.slow
def test_best_step_and_own_metrics_of_the_run(run: Path, cli: Cli, tmp_path: Path) -> None:
    done = cli("eval", str(run), "--batch_size=8", "--step=best", f"--module={MODULE}")
    assert "step 2, " in done.out
    assert any(line.split()[:1] == ["likelihood"] for line in done.out.splitlines()), done.err
    assert t5x.load(run, step="best", modules=[MODULE]).step == 2
    command = ("export", f"--from={run}", "--step=best", f"--to={tmp_path}", f"--module={MODULE}")
    assert "step 2" in cli(*command).out


@pytest.mark.slow
def test_a_mixture_and_files_of_pairs(run: Path, cli: Cli, tmp_path: Path) -> None:
    both = evaluated(cli, run, "--task=all_capitals", f"--module={MODULE}")
    assert [*both] == ["capitals", "capitals_by_name"]
    assert {"accuracy", "longest"} <= both["capitals_by_name"].keys()
    assert (run / "predictions" / "capitals_by_name-validation-4.jsonl").exists()
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("inputs\ttargets\n" + "Capital of Peru?\tLima\n" * 3 + "x\tand\n")
    found = evaluated(cli, run, f"--corpus={pairs}", f"--module={MODULE}")["pairs"]
    assert found["exact_match"] == 0
    assert {"token_loss", "token_accuracy"} <= found.keys()
    assert len(lines(run / "predictions" / "pairs-all-4.jsonl")) == 4


@pytest.mark.slow
def test_plain_text_is_read_as_the_run_reads_it(tiny: Tiny, tmp_path: Path, cli: Cli) -> None:
    run = tiny.trained("run", TRAIN_STEPS=1, OBJECTIVE="span_corruption")
    other = write_text(tmp_path / "other.txt", 50)
    found = evaluated(cli, run, f"--corpus={other}")["other"]
    assert {"loss", "accuracy", "perplexity"} <= found.keys()
    # All of its documents are read, and the same file still has a held-out part in training.
    assert tiny.train("second", CORPUS=str(other), TRAIN_STEPS=1).status == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--task=capital"], "nearest: capitals"),
        (["--task=capitals", "--split=dev"], "no split 'dev'; its splits are train, validation"),
        (["--corpus={tmp}/none.tsv"], "none.tsv"),
        (["--corpus={tmp}/empty.tsv"], "empty.tsv"),
        (["--corpus={tmp}/plain.txt"], "is plain text, but the run has learned from inputs and"),
        (["--corpus={tmp}/half.tsv"], "has no column targets, which the run has learned from"),
        (["--task=all_capitals", "--predictions={tmp}/one.jsonl"], "there are 2 tasks: name a f"),
        (["--step=7"], "No step 7 in"),
    ],
)
def test_what_is_not_there(
    flags: list[str], said: str, run: Path, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "plain.txt").write_text("a b c\n")
    (tmp_path / "half.tsv").write_text("inputs\tother\na\tb\n")
    given = [flag.format(tmp=tmp_path) for flag in flags]
    result = cli("eval", str(run), "--batch_size=8", f"--module={MODULE}", *given)
    assert (result.status, said in result.err) == (1, True), result.err


@pytest.mark.parametrize(
    "flags",
    [["--task=a", "--corpus=b"], ["--split=test"], ["--predictions=x"], ["--step=last"]],
)
def test_flags_that_do_not_go_together(flags: list[str], cli: Cli) -> None:
    assert cli("eval", "runs/none", *flags).status == 2


@pytest.mark.slow
def test_best_metric_that_no_evaluation_has(tiny: Tiny) -> None:
    result = tiny.train("run", **{**MACROS, "BEST_METRIC": "accurracy"})
    assert result.status == 1
    assert "BEST_METRIC is 'accurracy', but no evaluation of this run gives" in result.err
    assert "nearest: accuracy" in result.err
    result = tiny.train("run", **{**MACROS, "BEST_METRIC": "capitols/accuracy"})
    assert "no task 'capitols' is evaluated; nearest: capitals" in result.err
    result = tiny.train("run", **{**MACROS, "EARLY_STOPPING": 1, "EVAL_PERIOD": 0})
    assert "EARLY_STOPPING needs evaluations" in result.err
