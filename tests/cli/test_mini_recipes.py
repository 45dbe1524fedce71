"""The mini recipes: their first losses are pinned; stopped and resumed they are the same; exported.

A change that moves a loss changes everybody's training. If that is what it is for:
`python tests/cli/test_mini_recipes.py` writes the losses anew.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cli")]  # to be run as a program as well

from documents import write_documents
from tiny_run import Result, assert_same_state, losses

from t5x_like.cli import gin_config
from t5x_like.cli.pretraining import pretrain
from t5x_like.cli.run import Run

GOLDEN = Path(__file__).parent / "golden"
LOSSES = GOLDEN / "losses.json"
STEPS, STOP = 20, 7
MINIS = sorted(name for name in gin_config.published_recipes() if name.endswith("-mini"))
FOLLOWS_BERT = ("distilbert-mini", "legal_bert-mini")
KEEPS_ITS_VOCABULARY = ("byt5-mini", *FOLLOWS_BERT)


def train(name: str, folder: Path, text: Path, *, steps: int = STEPS, run: str = "run") -> Path:
    """The first steps of a recipe as it is, learning rates of the whole run included."""
    macros = {"MODEL_DIR": folder / run, "CACHE_DIR": text.parent / "cache", "CORPUS": text}
    if name not in KEEPS_ITS_VOCABULARY:
        macros["VOCABULARY"] = GOLDEN / "vocabulary"
    if name in FOLLOWS_BERT:
        bert = folder / "bert"
        if not bert.exists():
            train("bert-mini", folder, text, run="bert")
        macros |= {"VOCABULARY": bert / "vocabulary"}
        macros |= {"TEACHER_DIR" if name == "distilbert-mini" else "INIT_DIR": bert}
    bindings = [f"{macro}={str(value)!r}" for macro, value in macros.items()]
    gin_config.load([str(gin_config.find_recipe(name))], bindings)
    whole = gin_config.build(Run)
    options = dataclasses.replace(
        whole.options, train_steps=steps, eval_period=0, checkpoint_period=0, log_period=1
    )
    pretrain(dataclasses.replace(whole, options=options), gin_config.resolved())
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
    golden = json.loads(LOSSES.read_text())[name]
    # Another processor or version of XLA adds up in another order.
    assert list(found.values()) == pytest.approx(golden, rel=2e-3)

    for steps in (STOP, STEPS):
        resumed = train(name, tmp_path, invented, steps=steps, run="resumed")
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


def test_the_pinned_losses_are_of_all_mini_recipes() -> None:
    golden = json.loads(LOSSES.read_text())
    assert sorted(golden) == MINIS
    assert {len(values) for values in golden.values()} == {STEPS}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as written:
        golden_text = write_documents(Path(written) / "text.txt")
        pinned = {}
        for mini in MINIS:
            golden_run = train(mini, Path(written) / mini, golden_text)
            pinned[mini] = [round(value, 5) for value in losses(golden_run).values()]
        LOSSES.write_text(json.dumps(pinned, indent=1) + "\n")
