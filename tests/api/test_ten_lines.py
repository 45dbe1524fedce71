"""The library in ten lines: in a script without a guard, by flags and by gin files."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import losses

import t5x_like as t5x
from t5x_like.config import gin_config
from t5x_like.objectives import preset
from t5x_like.training.callbacks import Callback

SMALL = {"train_steps": 4, "batch_size": 8, "vocab_size": 300, "mesh": {"data": 8}}
FLAGS = [f"--{name}={value}" for name, value in SMALL.items() if name != "mesh"]

SCRIPT = """
import sys
import t5x_like as t5x

text, folder = sys.argv[1:]
run = t5x.recipe(
    "bert-mini", corpus=text, model_dir=f"{folder}/run", cache_dir=f"{folder}/cache",
    train_steps=4, batch_size=8, vocab_size=300, gin=["CORPUS_SEPARATOR='line'"],
)
print(run.train())
model = t5x.load(f"{folder}/run")
print(sorted(model.evaluate(batches=1)["text"]))
print(model.fill("a [MASK] list", k=5).blanks[0])
print([states.shape for states in model.hidden(["a text"])])
print(model.export(f"{folder}/hf"))
"""


def recipe(text: Path, folder: Path, **more) -> t5x.Pretraining:
    """A small bert-mini; runs of one `folder` share their cache."""
    settings = {"model_dir": str(folder / "run"), "cache_dir": str(folder / "cache"), **SMALL}
    gin = ["CORPUS_SEPARATOR='line'", "LOG_PERIOD=1", *more.pop("gin", [])]
    return t5x.recipe("bert-mini", corpus=str(text), gin=gin, **{**settings, **more})


@pytest.mark.slow
def test_a_script_without_a_guard(text: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(text), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Outcome(status='finished', step=4)" in lines
    assert "['trained', 'unigram', 'untrained']" in lines
    assert "\r" not in done.stderr
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "bert"


@pytest.mark.slow
def test_by_python_by_flags_and_by_gin_the_losses_are_the_same(text, tmp_path, cli) -> None:
    run = recipe(text, tmp_path)
    assert run.train().status == "finished"
    want = losses(tmp_path / "run")
    assert len(want) == 4
    more = [f"--corpus={text}", f"--cache_dir={tmp_path / 'cache'}", *FLAGS, "--mesh", "data=8"]
    gin = ["--gin.CORPUS_SEPARATOR='line'", "--gin.LOG_PERIOD=1"]
    flags = ["train", "--recipe=bert-mini", *more, *gin, f"--model_dir={tmp_path / 'flags'}"]
    assert cli(*flags).status == 0
    assert losses(tmp_path / "flags") == want
    (tmp_path / "mine.gin").write_text(str(run.config).replace("/run'", "/gin'"))
    assert cli("train", f"--gin_file={tmp_path / 'mine.gin'}").status == 0
    assert losses(tmp_path / "gin") == want


@pytest.mark.slow
def test_a_run_is_resumed_from_the_other_side(text, tmp_path, cli) -> None:
    recipe(text, tmp_path / "whole", train_steps=6).train()
    want = losses(tmp_path / "whole" / "run")
    for step in recipe(text, tmp_path, train_steps=6).steps():
        if step.step == 2:
            break
    assert list(losses(tmp_path / "run")) == [1, 2]
    config = tmp_path / "run" / "config.gin"
    assert cli("train", f"--gin_file={config}", "--train_steps=6").status == 0
    assert losses(tmp_path / "run") == want
    assert recipe(text, tmp_path, train_steps=6).train().status == "already_finished"


@pytest.mark.slow
def test_parts_stand_in_for_names_and_the_command_line_goes_on(text, tmp_path, cli) -> None:
    """What was put together in Python writes itself as gin text, with its optimizer."""
    from t5x_like.training.optimization import optimizers, schedules

    told: list[tuple] = []

    class Told(Callback):
        def start(self, run):
            told.append(("start", run["step"], run["total_steps"]))

        def log(self, step, values):
            told.append(("log", step, sorted(values)[0] != ""))

        def save(self, step, directory):
            told.append(("save", step, Path(directory).is_dir()))

        def end(self, outcome):
            told.append(("end", outcome.step, outcome.status))

    run = recipe(
        text,
        tmp_path,
        objective=dataclasses.replace(preset("mlm_nsp"), masked_rate=0.4),
        optimizer=optimizers.adamw(schedules.constant(1e-3), weight_decay=0.1),
        callbacks=[Told()],
        gin=["PHASES=()", "EVAL_PERIOD=0"],
    )
    assert run.config is None
    run.train()
    assert told[0] == ("start", 0, 4)
    assert [what for what, *_ in told].count("log") == 4
    assert told[-2:] == [("save", 4, True), ("end", 4, "finished")]
    saved = (tmp_path / "run" / "config.gin").read_text()
    assert "optimizers.adamw.weight_decay = 0.1" in saved
    assert "masked_rate = 0.4" in saved
    config = tmp_path / "run" / "config.gin"
    result = cli("train", f"--gin_file={config}", "--train_steps=5")
    assert result.status == 0, result.err
    assert "Resuming from step 4" in result.err
    assert cli("eval", str(tmp_path / "run"), "--batches=1").status == 0


def test_two_runs_in_one_process_do_not_mix(text: Path, tmp_path: Path) -> None:
    """Gin has one configuration for the process; a run keeps the one it was made from."""
    before = gin_config.given_settings()
    first = recipe(text, tmp_path, gin=["mlm.NextSentence.masked_rate=0.3"])
    second = t5x.recipe("ul2-mini", corpus=str(text), model_dir=str(tmp_path / "second"))
    assert first.run.abstract_model.config.vocab_size == 300
    assert type(second.run.abstract_model).__name__ == "T5"
    assert first.run.data.chosen_objective.masked_rate == 0.3
    assert preset("mlm_nsp").masked_rate == 0.15
    assert gin_config.given_settings() == before


@pytest.mark.parametrize("name", ["t5-mini", "ul2-mini", "bert-mini"])
def test_the_learning_rate_is_the_highest_of_every_recipe(
    name: str, text: Path, tmp_path: Path
) -> None:
    made = t5x.recipe(name, corpus=str(text), model_dir=str(tmp_path / "run"), learning_rate=0.125)
    highest = max(float(made.run.optimizer.learning_rate(step)) for step in range(0, 1000, 10))
    assert highest == pytest.approx(0.125, rel=0.11)


def test_a_setting_that_nothing_reads_or_knows_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no gin macro 'RANDOM_SEED'.*there is SEED"):
        recipe(text, tmp_path, gin=["RANDOM_SEED=1"])
    with pytest.raises(ValueError, match="no recipe 'bert-mine'; nearest: bert-mini"):
        t5x.recipe("bert-mine")


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run"):
        t5x.load(tmp_path)


def test_importing_the_package_imports_and_changes_nothing() -> None:
    code = (
        "import sys, time; began = time.process_time(); import t5x_like; "
        "heavy = {'jax', 'flax', 'numpy', 'gin', 'tensorflow', 'orbax'} & set(sys.modules); "
        "assert not heavy, heavy; assert 'recipe' in dir(t5x_like)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'recipes'"):
        _ = t5x.recipes


def test_what_a_model_calls_later_is_set_and_read(tmp_path: Path) -> None:
    """A kernel is called inside a step: nothing has read its settings before."""
    (tmp_path / "kernel.gin").write_text(
        "from __gin__ import dynamic_registration\n"
        "from t5x_like.layers.attention import attention_kernels\n"
        "ATTENTION_KERNEL = @attention_kernels.blocked\n"
        "attention_kernels.blocked.block = 16\n"
    )
    files = ["recipes/bert-mini.gin", str(tmp_path / "kernel.gin")]
    with gin_config.temporary_configuration():
        run = t5x.from_gin(files, ["MODEL_DIR='x'"])
    assert run.run.abstract_model.config.kernel.keywords == {"block": 16}
