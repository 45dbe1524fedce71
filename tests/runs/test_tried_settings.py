"""The line about settings that no paper tried."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from flax import nnx

from t5x_like.config import gin_files
from t5x_like.models import bert
from t5x_like.runs.settings.finetuning import configuration, tried_settings


@functools.cache
def model(d_model: int) -> Any:
    config = bert.Config(vocab_size=100_000, d_model=d_model, d_ff=4 * d_model, num_heads=4)
    return nnx.eval_shape(lambda: bert.Bert(config, rngs=nnx.Rngs(0)))


def lines(family: str, rate: Any, rows: int, epochs: float, *, d_model: int = 256) -> list[str]:
    settings = {"PEAK_LEARNING_RATE": rate, "BATCH_SIZE": rows, "EPOCHS": epochs}
    return [*tried_settings.outside(model(d_model), settings, model_type=family)]


def test_a_line_names_what_is_outside_and_only_that() -> None:
    assert lines("bert", 3e-5, 32, 3) == lines("bert", 2e-5, 16, 2) == []
    (line,) = lines("bert", 1e-3, 32, 7.5)
    assert line.endswith(
        "a learning rate of 0.001 (there 2e-05 to 5e-05), epochs: 7.5 (there 2 to 4)."
    )
    assert "Devlin et al., 2019" in line
    assert "rows of a step: 16 (there 32)" in lines("electra", 1e-4, 16, 3)[0]
    assert lines("albert", 1e-5, 128, 50) == []  # its paper counts steps
    assert lines("bert", "a schedule", 32, 3) == []


def test_models_that_no_paper_tried_have_no_line() -> None:
    # 100,000 rows of the table of tokens do not count: it is the layers that are small.
    assert tried_settings.size(model(256)) > 5_000_000 > tried_settings.size(model(128))
    assert lines("bert", 1e-3, 64, 50, d_model=128) == []
    assert lines("unheard of", 1, 1, 1) == []


@pytest.mark.parametrize("family", tried_settings.TRIED)
def test_the_settings_of_a_family_are_those_of_its_paper(family: str) -> None:
    usual = configuration._settings(f"finetune/{family}.gin", [])
    assert [*tried_settings.outside(model(256), usual, model_type=family)] == []


def test_each_family_that_is_fine_tuned_is_in_the_table() -> None:
    shared = {"common", "adamw"}
    families = {path.stem for path in (gin_files.gin_root() / "finetune").glob("*.gin")} - shared
    # Settings of an example, and settings of ours: of their papers nothing is said.
    unknown = {"modernbert", "modernbert-decoder", "neobert", "eurobert", "canine"}
    assert families == {*tried_settings.TRIED} | unknown
