"""The mini recipes: their first losses are pinned; stopped and resumed they are the same; exported.

A change that moves a loss changes everybody's training. If that is what it is for,
`WRITE_GOLDEN=1 tests/run.sh -- tests/cli/test_mini_recipes.py` writes the losses anew.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import write_documents
from tiny_run import Result, assert_same_state, losses

from t5x_like.cli import gin_config
from t5x_like.cli.pretraining import pretrain
from t5x_like.cli.run import Run

GOLDEN = Path(__file__).parent / "golden"
STEPS, PHASE, STOP, ROWS = 20, 10, 13, 8
MINIS = sorted(name for name in gin_config.published_recipes() if name.endswith("-mini"))
FOLLOWS_BERT = ("distilbert-mini", "legal_bert-mini")
KEEPS_ITS_VOCABULARY = ("byt5-mini", *FOLLOWS_BERT)


def train(name: str, folder: Path, text: Path, *, run: str = "run") -> Path:
    """The first steps of a recipe as it is, but for few rows, short phases and one evaluation."""
    macros = {"MODEL_DIR": folder / run, "CACHE_DIR": text.parent / "cache", "CORPUS": text}
    if name not in KEEPS_ITS_VOCABULARY:
        macros["VOCABULARY"] = GOLDEN / "vocabulary"
    if name in FOLLOWS_BERT:
        bert = folder / "bert"
        if not bert.exists():
            train("bert-mini", folder, text, run="bert")
        macros["TEACHER_DIR" if name == "distilbert-mini" else "INIT_DIR"] = bert
    bindings = [f"{macro}={str(value)!r}" for macro, value in macros.items()]
    gin_config.load([str(gin_config.find_recipe(name))], bindings)
    whole = gin_config.build(Run)
    periods = {"eval_period": STEPS, "checkpoint_period": STOP, "log_period": 1}
    options = dataclasses.replace(
        whole.options, train_steps=STEPS, batch_size=ROWS, eval_batches=2, **periods
    )
    phases = [
        dataclasses.replace(one, steps=one.steps and PHASE, batch_size=None) for one in whole.phases
    ]
    pretrain(dataclasses.replace(whole, options=options, phases=phases), gin_config.resolved())
    return folder / run


@pytest.fixture(scope="session")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("golden") / "text.txt")


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIS)
def test_a_mini_recipe(
    name: str, tmp_path: Path, invented: Path, cli: Callable[..., Result]
) -> None:
    run = train(name, tmp_path, invented)
    found = losses(run)
    assert list(found) == list(range(1, STEPS + 1))
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(json.dumps([round(loss, 5) for loss in found.values()]) + "\n")
    # Another processor or version of XLA adds up in another order.
    assert list(found.values()) == pytest.approx(json.loads(golden.read_text()), rel=2e-3)

    resumed = Path(shutil.copytree(run, tmp_path / "resumed"))
    shutil.rmtree(resumed / "checkpoints" / str(STEPS))  # as if it had been killed before
    train(name, tmp_path, invented, run="resumed")
    assert losses(resumed) == found
    assert_same_state(run, resumed)

    out = tmp_path / "out"
    exported = cli("export", f"--from={run}", f"--to={out}")
    assert exported.status == 0, exported.err
    for config in sorted(out.rglob("config.json")):
        if importlib.util.find_spec("transformers"):
            opens(config.parent)


def opens(directory: Path) -> None:
    """Asserts that transformers finds just the weights it wants."""
    import transformers

    (architecture,) = json.loads((directory / "config.json").read_text())["architectures"]
    cls = getattr(transformers, architecture)
    _, report = cls.from_pretrained(directory, output_loading_info=True)
    assert not any(report[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_every_mini_recipe_has_its_losses_pinned() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == MINIS
