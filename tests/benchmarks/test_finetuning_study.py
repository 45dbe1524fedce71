"""The fine-tuning study: its plan fits its hours, its cells are commands, its page shows lines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import finetuning_data as data
import finetuning_page as page
import finetuning_runs as runs
import finetuning_settings as settings
import finetuning_study as study
import pytest
from finetuning_floors import FLOORS
from finetuning_pretraining import Study, steps_of

from t5x_like.cli.common import finetuning
from t5x_like.runs.settings.finetuning.methods import METHODS

CELLS = [*settings.cells()]
WHERE = Study(Path("data"), Path("work"), settings.HOURS)


def minutes_of(part: str) -> float:
    return study.planned_minutes((cell for cell in CELLS if cell.part == part), settings.SEEDS)


def test_the_parts_of_the_plan_fit_their_shares_of_the_hours() -> None:
    assert sum(settings.SHARES.values()) <= 1
    bodies = sum(body.share for body in settings.BODIES.values())
    assert bodies == pytest.approx(settings.SHARES["pretraining"])
    for part in ("tasks", "methods"):
        assert minutes_of(part) <= settings.SHARES[part] * settings.HOURS * 60


def test_steps_follow_from_the_share_of_the_time() -> None:
    body = settings.BODIES["bert"]
    seconds = 8 * 3600 * body.share
    assert steps_of(body, 0.5, 8) == pytest.approx(seconds / 0.5, rel=0.05)
    assert steps_of(body, 0.5, 8) * 0.5 < seconds


def test_all_tasks_have_a_floor_and_all_methods_are_compared() -> None:
    assert {*FLOORS} == {*settings.TASKS}
    assert {*settings.PUBLISHED} <= {*settings.TASKS}
    flags = [word for way in settings.METHODS.values() for word in way.flags]
    assert {*METHODS} - {"source_encoder"} <= {*flags}  # that is a BART's, for a new language
    assert len({cell.name for cell in CELLS}) == len(CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_cell_is_a_command_that_the_project_has(cell, monkeypatch) -> None:
    monkeypatch.setattr(runs, "_best_run", lambda *_: "sweeps/best")
    words = runs.command(WHERE, cell, 3)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    finetuning.add(parser, task="")
    for flag in ("--seeds", "--grid", "--examples"):
        parser.add_argument(flag)
    given = parser.parse_args(words[4:])
    assert words[3] == "sweep"
    assert given.epochs is not None
    assert (given.learning_rate is None) == (cell.part == "methods")
    assert given.head == (cell.body == "t5" and bool(settings.TASKS[cell.task].of_t5))


def of_tasks(task: str, metric: str, trained: bool, values: list[float], **more) -> list[dict]:
    about = {"part": "tasks", "body": "bert", "task": task, "trained": trained, "method": "full"}
    return [
        {**about, "seed": seed, "metrics": {metric: value}, **more}
        for seed, value in enumerate(values)
    ]


def test_the_page_says_where_pretraining_helps_and_why_not() -> None:
    lines = [
        *of_tasks("sst2", "accuracy", True, [0.80, 0.81, 0.82]),
        *of_tasks("sst2", "accuracy", False, [0.70, 0.71, 0.72]),
        *of_tasks("rte", "accuracy", True, [0.50, 0.56, 0.59]),
        *of_tasks("rte", "accuracy", False, [0.53, 0.54, 0.55]),
        *of_tasks("cola", "matthews_correlation", True, [0.0, 0.0, 0.0], failed=True),
        *of_tasks("cola", "matthews_correlation", False, [0.01, 0.0, 0.02]),
        *of_tasks("ud", "accuracy", True, [0.80, 0.80, 0.80]),
        *of_tasks("ud", "accuracy", False, [0.85, 0.85, 0.85]),
        {"part": "floors", "body": page.BAG, "task": "sst2", "metrics": {"accuracy": 0.82}},
    ]
    said = page.page(lines)
    assert "| sst2 | `accuracy` | `bert` | 0.5 | 0.810 ± 0.010 | 0.710 ± 0.010 | 0.820 |" in said
    assert (
        "Pretrained beats random on sst2 (`bert`); not on cola (`bert`), because none of the "
        "pretrained runs is better than one answer to all texts; not on rte (`bert`), because the "
        "difference is less than twice its standard error; not on ud (`bert`), because random "
        "parameters reach as much.\n"
    ) in said
    assert f"not better than the {page.BAG} on sst2 (`bert`)" in said
    assert "| sst2 | `accuracy` | 0.810 ± 0.010 | 0.832 |" in said


def test_the_page_says_how_long_a_body_was_pretrained() -> None:
    machine = {"cores": 2, "cpu": "a processor", "jax": "0.10"}
    about = {"part": "pretraining", "body": "bert", "machine": machine, "parameters": 1_500_000}
    counts = {"steps": 20_000, "tokens": 80e6, "corpus_tokens": 16e6, "minutes": 47.6}
    said = page.page([{**about, **counts, "metric": "mlm_loss", "held_out": [7.0, 3.5]}])
    row = "| `bert` | 1,500,000 | 20,000 | 80.0 | 5.0 | 48 | `mlm_loss` 7.000 to 3.500 |"
    assert row in said
    assert "2 cores of a processor" in said


def test_the_table_of_methods_has_the_better_rate_and_the_bytes() -> None:
    about = {"part": "methods", "body": "bert", "task": "sst2", "trained": True, "method": "lora"}
    lines = [
        {**about, "seed": seed, "setting": {"learning_rate": rate}, "metrics": {"accuracy": value}}
        for rate, values in ((2e-3, (0.70, 0.70, 0.91)), (1e-2, (0.80, 0.80, 0.80)))
        for seed, value in enumerate(values)
    ]
    sizes = {f"{name}_bytes": 1e6 for name in ("checkpoint", "gradient", "optimizer", "step")}
    counts = {"trained_parameters": 10, "parameters": 1000, "seconds_a_step": 0.02}
    said = page.page([*lines, {**about, "part": "bytes", **counts, **sizes}])
    row = "| lora | 0.01 | 0.800 ± 0.000 | 1.00% | 0.0200 | 1.00 MB | 1.00 MB | 1.00 MB | 1.00 MB |"
    assert row in said


def test_lines_of_before_stay_and_a_line_counts_once(tmp_path) -> None:
    results = study.Results(tmp_path / "lines.jsonl")
    old = {"body": "bert-mini", "task": "mrpc", "trained": True, "seed": 0, "metrics": {"f1": 0.8}}
    (new,) = of_tasks("mrpc", "f1", True, [0.9])
    for line in (old, new, new):
        results.add(line)
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 2
    study.Results(tmp_path / "lines.jsonl").add(new)
    said = results.write_page().read_text()
    assert "| mrpc | `f1` | `bert-mini` | 0.800 |" in said
    assert "| mrpc | `f1` | `bert` | 3 | 0.900 |" in said


def test_few_rows_keep_the_header_and_whole_sentences() -> None:
    table = "sentence\tlabel\n" + "".join(f"text {n}\t1\n" for n in range(1000))
    cut = data._cut(table, "train.tsv", 0.3).splitlines()
    assert (cut[0], len(cut)) == ("sentence\tlabel", 301)
    assert data._cut(table, "train.tsv", 1) == table
    words = "".join(f"word{n}\tO\n.\tO\n\t\n" for n in range(1000))
    kept = data.sentences_of(data._cut(words, "train.conll", 0.0))
    assert len(kept) == data.FEWEST["train"]
    assert all(len(sentence.strip().splitlines()) == 2 for sentence in kept)


def test_squad_has_the_questions_with_an_answer_alone() -> None:
    answer = {"text": "a", "answer_start": 0}
    asked = [{"id": str(n), "answers": [answer] * (n % 2), "is_impossible": True} for n in range(9)]
    articles = [{"title": "t", "paragraphs": [{"context": "a b", "qas": asked}] * 2}]
    kept = data._answered({"data": articles}, "dev", 1)
    assert [each["id"] for each in data.questions(kept)] == ["1", "3", "5", "7"] * 2
    assert "is_impossible" not in json.dumps(kept)
