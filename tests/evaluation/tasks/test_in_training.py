"""The metrics of SeqIO tasks in the training loop of a tiny T5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import capital_tasks
import numpy as np
import pytest
from tiny_run import Tiny, finish

from t5x_like.data.cache.reader import Cache
from t5x_like.training.logs.metrics_file import read_metrics

MODULE = str(Path(capital_tasks.__file__))


def capitals(name: str, module: str | None = MODULE, **macros: Any) -> dict[str, Any]:
    return {
        "CORPUS": None,
        "MIXTURE_OR_TASK_NAME": name,
        "MIXTURE_OR_TASK_MODULE": module,
        "VOCABULARY": None,
        "TRAIN_STEPS": 2,
        "EVAL_PERIOD": 1,
        **macros,
    }


def evaluations(run: Path) -> dict[int, dict[str, float]]:
    return {
        line.pop("step"): {name.removeprefix("eval/"): x for name, x in line.items()}
        for line in read_metrics(run / "metrics.jsonl")
        if any(name.startswith("eval/") for name in line)
    }


@pytest.mark.slow
def test_metrics_stand_beside_the_teacher_forced_ones(tiny: Tiny) -> None:
    run = tiny.trained("run", **capitals("all_capitals"))
    found = evaluations(run)
    assert [*found] == [1, 2]
    for name in ("capitals", "capitals_by_name"):
        metrics = {one for one in found[2] if one.startswith(f"{name}/")}
        assert {f"{name}/{one}" for one in ("token_loss", "token_accuracy", "perplexity")} < metrics
        assert {f"{name}/{one}" for one in ("accuracy", "likelihood", "confidence")} < metrics
    # The score of an example is the sum over its tokens, and all five examples are evaluated.
    targets = [answers[0] for answers in [*capital_tasks.CAPITALS.values()][:5]]
    tokens = sum(len(target) + 1 for target in targets)
    mean = -found[2]["capitals/token_loss"] * tokens / 5
    assert found[2]["capitals/likelihood"] == pytest.approx(mean, rel=1e-4)
    assert found[2]["capitals/rows"] // 1000 == 5


@pytest.mark.slow
def test_pairs_are_answered_and_a_cut_target_is_never_met(tiny: Tiny) -> None:
    """All targets begin the same way; every fourth goes on beyond the 24 tokens that are read."""
    ends = ["", "", "", ", yes" * 20]
    table = "inputs\ttargets\n" + "".join(f"row {n}?\tyes{ends[n % 4]}\n" for n in range(64))
    (tiny.root / "answers.tsv").write_text(table)
    run = tiny.trained(
        *("run", "--learning_rate=0.03"),
        CORPUS=f"{tiny.root}/answers.tsv",
        CORPUS_VALIDATION=0.25,
        BEST_METRIC="exact_match",
        TRAIN_STEPS=40,
        EVAL_PERIOD=20,
    )
    (cache,) = (tiny.root / "cache").glob("tokens/*")
    held_out = Cache.open(cache).split("validation")
    short = [len(held_out.record(n)["targets"]) < 24 for n in range(len(held_out))]
    assert 0 < sum(short) < len(short)
    assert evaluations(run)[40]["answers/exact_match"] == pytest.approx(np.mean(short))


@pytest.mark.slow
def test_a_metric_that_raises_is_a_counted_warning(tiny: Tiny) -> None:
    result = tiny.train("run", **capitals("capitals_fragile", EVAL_BATCHES=1))
    assert result.status == 0, result.err
    lines = [line for line in result.err.splitlines() if "warning" in line]
    assert [line.split("so far")[0] for line in lines] == [
        f"warning: task 'capitals_fragile': metric fragile has no value, {n} time(s) "
        for n in (1, 2)
    ]
    assert "RuntimeError: no network for 5 predictions" in lines[0]
    assert "capitals_fragile/accuracy" in evaluations(tiny.root / "run")[2]


@pytest.mark.slow
def test_a_cap_is_said(tiny: Tiny) -> None:
    macros = capitals("capitals", EVAL_BATCHES=1, BATCH_SIZE=4, EVAL_PERIOD=2)
    result = tiny.train("run", "--mesh=data=4,tensor=2", **macros)
    assert "metrics are those of 4 of 5 validation examples, spread evenly" in result.err
    assert "Evaluates on held-out rows of capitals (4 of 5, spread evenly" in result.err
    assert evaluations(tiny.root / "run")[2]["capitals/rows"] // 1000 == 4


def test_a_function_with_other_arguments_is_refused(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    import seqio

    wrong = seqio.TaskRegistry.get("capitals_unmeasured").replace(
        metric_fns=[lambda labels, predictions: {}]
    )
    monkeypatch.setitem(seqio.TaskRegistry._REGISTRY, "capitals_unmeasured", wrong)
    result = tiny.train("run", **capitals("capitals_unmeasured"))
    assert result.status == 1
    assert "task 'capitals_unmeasured': Metric functions must have positional" in result.err
    assert not (tiny.root / "run" / "checkpoints").exists()


@pytest.mark.slow
def test_metrics_are_the_same_without_seqio(
    tiny: Tiny, environment_without_tensorflow: dict[str, str]
) -> None:
    first = tiny.trained("first", **capitals("capitals_by_name"))
    metrics = str(Path(MODULE).with_name("capital_metrics.py"))
    again = tiny.flags("again", **capitals("capitals_by_name", metrics))
    finish(tiny.start(again, env=environment_without_tensorflow))
    # One device and eight add in another order.
    assert evaluations(tiny.root / "again")[2] == pytest.approx(evaluations(first)[2], rel=1e-4)
    silent = tiny.flags("silent", **capitals("capitals_by_name", None))
    (result,) = finish(tiny.start(silent, env=environment_without_tensorflow))
    assert "without metric accuracy (postprocess_fn: add --module capital_metrics" in result.err
    assert "capitals_by_name/token_loss" in evaluations(tiny.root / "silent")[2]


@pytest.mark.slow
def test_two_processes_have_the_metrics_of_one(tiny: Tiny) -> None:
    tiny.trained("one", **capitals("capitals"))
    finish(*tiny.start_many(tiny.flags("two", **capitals("capitals"))))
    one, two = (evaluations(tiny.root / name) for name in ("one", "two"))
    assert two[2] == pytest.approx(one[2], rel=1e-4)
