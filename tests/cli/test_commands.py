"""Every subcommand from end to end: vocab, cache, train, eval, predict, plot; help and status."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import Result, Tiny, finish, losses

from t5x_like.cli import main
from t5x_like.data.cache.reader import Cache
from t5x_like.reporting.samples import about_samples
from t5x_like.runs.trained import trained_run
from t5x_like.vocabularies import loading

Cli = Callable[..., Result]


@pytest.mark.parametrize("command", main.COMMANDS)
def test_help_shows_every_flag(command: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown_by: list[argparse.ArgumentParser] = []
    format_help = argparse.ArgumentParser.format_help
    monkeypatch.setattr(
        argparse.ArgumentParser,
        "format_help",
        lambda parser: shown_by.append(parser) or format_help(parser),
    )
    shown = cli(command, "--help")
    assert shown.status == 0
    assert f"usage: t5x_like {command}" in shown.out
    assert [one.dest for one in shown_by[0]._actions if not one.help] == []
    _, what, _ = shown.out.split("\n\n", 2)
    listed = cli("--help").out
    assert f"  {command} " in listed
    assert max(map(len, f"{what}\n{listed}".splitlines())) <= 80


def test_no_command_is_a_question_for_help(cli: Cli) -> None:
    assert cli().status == 0
    assert cli().out == cli("--help").out


@pytest.mark.parametrize(
    "argv",
    [
        ["tarin"],
        ["train", "--no_such_flag"],
        ["predict", "run"],
        ["train", "--gin.SEED"],
        ["vocab", "--corpus=a.txt"],
        ["cache", "--vocab_type=word"],
        ["cache", "--corpus=a.txt", "--materialize", "--lengths=inputs"],
    ],
)
def test_wrong_arguments_are_status_2(argv: list[str], cli: Cli) -> None:
    result = cli(*argv)
    assert result.status == 2
    assert "usage: t5x_like" in result.err


def test_a_bug_shows_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from t5x_like.reporting import drawing

    monkeypatch.setattr(drawing, "plot", lambda *_, **__: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        cli("plot", "run")


def test_interrupt_is_status_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from t5x_like.reporting import drawing

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(drawing, "plot", interrupt)
    result = cli("plot", "run")
    assert (result.status, result.err) == (130, "interrupted\n")


def test_python_m_is_the_same_command(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "t5x_like", "plot", "/no/such/run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: No metrics.jsonl in /no/such/run: give the directory of a run.\n"


def test_text_is_a_task_or_files_not_both(cli: Cli, text: Path, tmp_path: Path) -> None:
    output = f"--output={tmp_path / 'v.model'}"
    for named in ([], ["stdlib_docs", "--corpus", str(text)]):
        result = cli("vocab", *named, output)
        assert result.status == 1
        assert "either a TASK or files with --corpus" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_vocabulary_is_trained_and_used(kind: str, tiny: Tiny, text: Path) -> None:
    model = tiny.root / "mine.model"
    made = tiny.cli(
        *("vocab", "--corpus", str(text), "--separator=line", "--size=36", f"--type={kind}"),
        f"--output={model}",
    )
    assert made.status == 0, made.err
    assert made.out == f"{model}: 36 pieces, 136 ids with sentinels\n"
    vocabulary = loading.load(model)
    line = text.read_text().splitlines()[0]
    assert vocabulary.decode(vocabulary.encode(line)) == line

    run = tiny.trained("run", VOCABULARY=str(model), TRAIN_STEPS=2)
    model.unlink()  # the run keeps its own copy
    assert trained_run.load(str(run)).vocabulary.fingerprint == vocabulary.fingerprint


def test_too_large_a_vocabulary_names_the_largest(cli: Cli, text: Path, tmp_path: Path) -> None:
    result = cli(
        *("vocab", "--corpus", str(text), "--separator=line", "--size=5000"),
        f"--output={tmp_path / 'v.model'}",
    )
    assert result.status == 1
    assert "the largest possible is" in result.err
    assert not (tmp_path / "v.model").exists()


def test_extending_has_no_settings_of_a_vocabulary(cli: Cli, tmp_path: Path) -> None:
    result = cli("vocab", "stdlib_docs", "--extend=x", "--lowercase", f"--output={tmp_path / 'v'}")
    assert result.status == 2
    assert "--extend: the kind and all else are those of the vocabulary it names" in result.err


@pytest.mark.slow
def test_missing_vocabulary_is_trained_at_first_use(tiny: Tiny) -> None:
    fields = {"VOCABULARY": None, "VOCAB_SIZE": 36, "TRAIN_STEPS": 1}
    first = tiny.train("first", **fields)
    assert first.status == 0, first.err
    assert "training a unigram vocabulary of 36 pieces" in first.out
    again = tiny.train("again", **fields)
    assert "vocabulary" not in again.out
    assert len(list((tiny.root / "cache" / "vocabularies").glob("*.model"))) == 1
    assert losses(tiny.root / "first") == losses(tiny.root / "again")


@pytest.mark.slow
def test_cache_is_made_once_and_trained_from(tiny: Tiny, text: Path) -> None:
    argv = ["cache", "--corpus", str(text), "--separator=line", "--validation=0.1"]
    argv += ["--vocabulary=bytes", "--workers=1", f"--cache_dir={tiny.root / 'cache'}"]
    made = tiny.cli(*argv)
    assert made.status == 0, made.err
    directory = Path(made.out.splitlines()[1])
    manifest = Cache.open(directory).manifest
    train, validation = manifest.splits["train"], manifest.splits["validation"]
    assert train.documents + validation.documents == len(set(text.read_text().splitlines()))
    assert f"  train: {train.documents:,} documents, {train.tokens['targets']:,} tokens" in made.out
    written = {path: path.stat().st_mtime_ns for path in directory.iterdir()}

    assert tiny.cli(*argv).out.startswith(str(directory))
    assert "caching" not in tiny.train("run", TRAIN_STEPS=1).out
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == written
    assert "caching" in tiny.cli(*argv, "--overwrite").out

    # Copied somewhere else, without the text, it is read by its directory.
    moved = directory.rename(tiny.root / "moved")
    want = losses(tiny.root / "run")
    run = tiny.trained("from_cache", CORPUS=str(moved), VOCABULARY=None, TRAIN_STEPS=1)
    assert losses(run) == want


@pytest.mark.slow
def test_changed_text_is_never_read_from_the_old_cache(tiny: Tiny) -> None:
    file = tiny.root / "mine.txt"
    file.write_text("one line of text here\n" * 3 + "another line of text\n")
    tiny.trained("run", CORPUS=str(file), TRAIN_STEPS=1)
    file.write_text("quite another text by now\n" * 3 + "and another line of text\n")
    result = tiny.train("new", CORPUS=str(file), TRAIN_STEPS=1)
    assert result.status == 1
    assert "is of another text" in result.err


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def run(shared: Path, text: Path, cli: Cli) -> Path:
    """A run of 20 steps with two evaluations."""
    if not (shared / "run").exists():
        tiny = Tiny(shared, cli, {"CORPUS": str(text)})
        tiny.trained("run", TRAIN_STEPS=20, EVAL_PERIOD=10, CHECKPOINT_PERIOD=10)
    return shared / "run"


@pytest.mark.slow
def test_eval_prints_and_writes_metrics_beside_what_they_must_beat(
    run: Path, cli: Cli, tmp_path: Path
) -> None:
    output = tmp_path / "metrics.json"
    result = cli("eval", str(run), "--batch_size=8", "--batches=2", f"--output={output}")
    assert result.status == 0, result.err
    written = json.loads(output.read_text())
    assert written["step"] == 20
    (columns,) = written["tasks"].values()
    trained, untrained, unigram, blanked = columns.values()
    assert list(columns) == ["trained", "untrained", "unigram", "blanked"]
    assert {"loss", "accuracy", "perplexity", "content_loss"} <= trained.keys() == untrained.keys()
    for values in columns.values():
        assert math.exp(values["content_loss"]) == pytest.approx(values["content_perplexity"])
    lines = {line.split()[0]: line.split()[1:] for line in result.out.splitlines()[3:]}
    assert lines["loss"] == [f"{values['loss']:.4f}" for values in (trained, untrained)]
    assert lines["content_accuracy"] == [
        f"{values['content_accuracy']:.4f}" for values in columns.values()
    ]
    # After 20 steps it knows next to nothing; the unigram model knows the frequencies.
    assert unigram["content_accuracy"] > 0.1  # spaces, and not the ends of targets
    assert 2 < unigram["content_loss"] < trained["content_loss"] < untrained["content_loss"]
    assert trained["content_loss"] != blanked["content_loss"]

    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    held_out = {x["step"]: x["eval/text/loss"] for x in logged if "eval/text/loss" in x}
    assert trained["loss"] == pytest.approx(held_out[20], rel=1e-5)
    cli("eval", str(run), "--batch_size=8", "--batches=2", "--step=10", f"--output={output}")
    older = json.loads(output.read_text())["tasks"]["text"]
    assert older["trained"]["loss"] == pytest.approx(held_out[10], rel=1e-5)
    assert older["untrained"] == untrained


@pytest.mark.slow
def test_eval_of_a_step_that_is_not_there(run: Path, cli: Cli) -> None:
    result = cli("eval", str(run), "--step=7")
    assert result.status == 1
    assert "step 7" in result.err
    assert "[10, 20]" in result.err


def test_predict_fills_texts_of_arguments_files_and_standard_input(
    run: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "filled.jsonl"
    texts = ["the ___ of a module", "a <extra_id_0> is <extra_id_1> true"]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n\n" for text in texts))
    flags = ["--max_new_tokens=4", "--batch_size=8"]
    by_argument = cli("predict", str(run), *texts, *flags)
    assert by_argument.status == 0, by_argument.err
    by_file = cli(
        "predict", str(run), f"--input={tmp_path / 'texts.txt'}", f"--output={output}", *flags
    )
    assert by_file.status == 0, by_file.err
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["inputs"] for row in rows] == texts
    assert [len(row["blanks"]) for row in rows] == [1, 2]
    assert "".join(f"{row['filled']}\n" for row in rows) == by_argument.out
    with (tmp_path / "texts.txt").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert cli("predict", str(run), "--input=-", *flags).out == by_argument.out


def test_predict_shows_held_out_text_with_the_truth(run: Path, cli: Cli, tmp_path: Path) -> None:
    flags = ["--held_out=2", "--max_new_tokens=4", "--batch_size=8"]
    result = cli("predict", str(run), *flags)
    assert result.status == 0, result.err
    output = tmp_path / "filled.jsonl"
    assert cli("predict", str(run), *flags, f"--output={output}").status == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:  # of words without capitals or sentences
        assert "<extra_id_0>" in row["inputs"]
        assert row["inputs"].split("<extra_id_0>")[0].strip() in row["original"]
        assert f"  text:  {row['inputs']}\n  fills: " in result.out
        assert f"  truth: {row['original']}\n" in result.out


def test_a_text_without_a_blank_cannot_be_filled(run: Path, cli: Cli) -> None:
    result = cli("predict", str(run), "two __ underscores", "--fill")
    assert result.status == 1
    assert "input 1: no blank in 'two __ underscores'" in result.err


def test_plot_draws_one_run_and_several(run: Path, cli: Cli, tmp_path: Path) -> None:
    assert cli("plot", str(run)).out == f"{run / 'loss.png'}\n"
    both = cli("plot", str(run), str(run), f"--output={tmp_path / 'both.png'}")
    assert both.status == 0
    for picture in (run / "loss.png", tmp_path / "both.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_plot_draws_the_metrics_that_are_named(run: Path, cli: Cli, tmp_path: Path) -> None:
    output = tmp_path / "accuracy.png"
    assert cli("plot", str(run), "--metrics=*accuracy", f"--output={output}").status == 0
    assert output.read_bytes().startswith(b"\x89PNG")
    wrong = cli("plot", str(run), "--metrics=train/los")
    assert "error: --metrics: no metric is named 'train/los'; nearest: train/loss" in wrong.err


def test_report_is_a_page_about_the_run(run: Path, cli: Cli, tmp_path: Path) -> None:
    output = tmp_path / "pages" / "run.html"
    assert cli("report", str(run), f"--output={output}").out == f"wrote {output}\n"
    page = output.read_text()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert f"{summary['tokens']:,.0f}" in page
    assert "<svg" in page
    assert "There is no" not in page
    assert page.count("the model writes") == 3
    assert "Samples of held-out text, after 20 steps" in page
    wrong = cli("report", str(run), "--pue=0.5")
    assert wrong.status == 2
    assert "at least 1" in wrong.err


def test_a_report_makes_no_cache(run: Path, shared: Path) -> None:
    gone = (shared / "cache").rename(shared / "gone")
    said = "".join(about_samples(str(run), 3))
    assert "There are no samples: " in said
    assert "holds no cache" in said
    assert not (shared / "cache").exists()
    gone.rename(shared / "cache")


def test_run_says_its_whole_configuration(run: Path) -> None:
    config = (run / "config.gin").read_text()
    assert "TRAIN_STEPS = 20" in config
    assert "t5.Config.d_model = 32" in config
    metadata = json.loads((run / "checkpoints/20/metadata/metadata").read_text())["metadata"]
    assert metadata["config"] == config
    assert {"seed", "batch_size", "vocabulary"} <= metadata.keys()


@pytest.mark.slow
def test_the_default_run_is_stdlib_docs(tiny: Tiny) -> None:
    """`t5x_like train` as README has it, but for its length."""
    command = [
        *("train", f"--gin.MODEL_DIR='{tiny.root / 'run'}'", "--gin.TRAIN_STEPS=2"),
        *("--gin.BATCH_SIZE=4", f"--gin.CACHE_DIR='{tiny.root / 'cache'}'"),
    ]
    (result,) = finish(tiny.start(command))
    assert "training a unigram vocabulary" in result.out
    assert "caching stdlib_docs" in result.out
    assert "evaluation: stdlib_docs/" in result.err
