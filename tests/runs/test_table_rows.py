"""Rows of tables fit the vocabulary that a user chooses, in every recipe that names none."""

from __future__ import annotations

from pathlib import Path

import pytest
import stored_berts

from t5x_like.config import gin_config, gin_files
from t5x_like.runs import saved_model
from t5x_like.runs.settings import gin_run

VOCABULARY = Path(__file__).parent / "golden" / "vocabulary"


def rows(recipe: str, *settings: str) -> tuple[int, list[str]]:
    with gin_config.temporary_configuration():
        run, notes = gin_run.load([str(gin_files.find_recipe(recipe))], settings)
    found: int = run.model.keywords["config"].vocab_size
    return found, [note for note in notes if "vocab_size" in note]


@pytest.mark.parametrize(
    ("recipe", "settings", "expected"),
    [
        ("t5-mini", [], 2176),
        ("t5-mini", ["VOCAB_SIZE=4000"], 4224),
        ("ul2-mini", ["VOCAB_SIZE=4000"], 4224),
        ("mt5-mini", ["VOCAB_SIZE=1000"], 1152),
        ("t5-mini", ["VOCAB_SIZE=2070"], 2176),
        ("t5-mini", ["VOCABULARY='bytes'"], 384),
        ("t5-mini", ["VOCAB_SIZE=4000", "t5.Config.vocab_size=5000"], 5000),
        ("bert-mini", ["VOCAB_SIZE=4000"], 4000),
        ("bert_base", ["VOCAB_SIZE=40000", "MIXTURE_OR_TASK_NAME='stdlib_docs'"], 40064),
        ("electra-mini", [f"VOCABULARY={str(VOCABULARY)!r}"], 512),
    ],
)
def test_rows_follow_the_vocabulary(recipe: str, settings: list[str], expected: int) -> None:
    found, notes = rows(recipe, *settings)
    assert found == expected
    follows = expected not in (2176, 5000, 4000)
    assert bool(notes) == follows


def test_a_run_keeps_the_rows_that_it_began_with(tmp_path: Path) -> None:
    stored_berts.write(tmp_path)
    began = saved_model.abstract_model(str(tmp_path)).config.vocab_size
    for size in (4000, began):
        assert rows("bert-mini", f"MODEL_DIR={str(tmp_path)!r}", f"VOCAB_SIZE={size}")[0] == began
