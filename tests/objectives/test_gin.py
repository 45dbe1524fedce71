"""Every objective preset is a gin file, too, with feature lengths that fit it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gin
import pytest

from t5x_like import objectives
from t5x_like.cli import gin_config

NAMES = sorted(objectives.presets())
FILES = sorted((gin_config.gin_root() / "objectives").glob("*.gin"))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


def macros(name: str) -> dict[str, Any]:
    """What the file of an objective sets, also once it is saved with a run and read again."""
    gin_config.load([f"objectives/{name}.gin"])
    gin.parse_config(
        "from __gin__ import dynamic_registration\nimport builtins\n"
        "builtins.dict.objective = %OBJECTIVE\nbuiltins.dict.lengths = %TASK_FEATURE_LENGTHS"
    )
    made: dict[str, Any] = gin.get_configurable("builtins.dict")()
    gin_config.load_text(gin_config.resolved())
    assert gin.get_configurable("builtins.dict")() == made
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_a_file_that_builds_it(name: str):
    made = macros(name)
    assert made["objective"] == objectives.preset(name)
    # The noise is derived from the repr.
    assert repr(made["objective"]) == repr(objectives.preset(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_lengths_of_a_file_fit_its_objective(name: str):
    made = macros(name)
    objective, lengths = made["objective"], made["lengths"]
    objective.geometry(lengths)
    assert lengths == objective.lengths(next(iter(lengths.values())))
    assert all(spec.length != 0 for spec in objective.features(lengths).values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_of_a_preset_and_says_what_it_is(path):
    assert path.stem in NAMES
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_every_preset_has_a_summary_of_one_line():
    assert objectives.summaries().keys() == objectives.presets().keys()
    for summary in objectives.summaries().values():
        assert 10 < len(summary) <= 100
        assert "\n" not in summary
