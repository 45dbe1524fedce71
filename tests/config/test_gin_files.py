"""Gin files by name, and the rows of their tables as gin files of their own."""

from __future__ import annotations

from pathlib import Path

import gin
import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.config.gin_files import ConfigError

FAMILY = '''\
# What all sizes share.
from __gin__ import dynamic_registration

from t5x_like.models import t5

DTYPE = 'float32'
t5.Config.d_kv = 8

SIZES = """
| t5.Config | d_model | Z_LOSS | include    | parameters | note  |
| tiny      | 16      |        |            | 1,234      | first |
| tiny_z    |         | 0.1    | tiny.gin   | 1,234      |       |
"""
'''


def test_a_row_is_a_gin_file(tmp_path: Path) -> None:
    (tmp_path / "family.gin").write_text(FAMILY)
    (tmp_path / "whole.gin").write_text("# One alone: 5,678 parameters.\nX = 1\n")
    (tmp_path / "part.gin").write_text("# Of others.\nY = 1\n")
    found = gin_files.catalogue(tmp_path)
    assert {name: one.parameters for name, one in found.items()} == {
        "tiny": 1234,
        "tiny_z": 1234,
        "whole": 5678,
    }
    lines = found["tiny"].text.splitlines()
    assert lines[0] == "# tiny: 1,234 parameters; first."
    assert lines[-1] == "t5.Config.d_model = 16"
    assert f"include '{tmp_path.name}/family.gin'" in lines
    assert found["tiny_z"].text.splitlines()[-1] == "Z_LOSS = 0.1"


def test_a_row_with_cells_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "family.gin").write_text(FAMILY.replace("| 1,234      | first |", "|"))
    with pytest.raises(ConfigError, match=r"family\.gin: 'tiny' has 4 cells of 6"):
        gin_files.catalogue(tmp_path)


@pytest.mark.parametrize(
    "name", ["bert_base_cased", "bert/base_cased.gin", "models/bert_base_cased"]
)
def test_a_row_is_found_by_its_name_or_as_a_path(name: str) -> None:
    assert gin_files.find(name) == gin_files.published_models()["bert_base_cased"].path
    gin_config.load([name])
    assert "bert.Config.vocab_size = 28996" in gin_config.config_text()
    assert "SIZES" not in gin_config.config_text()


def test_what_several_sizes_share_is_no_model() -> None:
    with pytest.raises(ConfigError, match=r"name one: .*\bbert_base\b"):
        gin_config.load(["bert.gin"])
    gin_config.load(["distilbert.gin"])


def test_a_file_of_the_users_comes_first(tmp_path: Path) -> None:
    (tmp_path / "bert_mine.gin").write_text("X = 1\n")
    assert gin_files.find("bert_mine.gin", [str(tmp_path)]) == tmp_path / "bert_mine.gin"
    with pytest.raises(ConfigError, match=r"nearest: .*bert_mini"):
        gin_files.find("bert_mine")


def test_a_recipe_counts_the_parameters_of_its_model() -> None:
    recipes, models = gin_files.published_recipes(), gin_files.published_models()
    assert recipes["bert_wwm_large"].parameters == models["bert_large"].parameters
    assert "include 'models/bert_large'" in recipes["bert_wwm_large"].text


def test_what_a_module_registers_by_itself_outlives_a_configuration() -> None:
    @gin.configurable(module="users_module")
    def half(number=2):
        return number / 2

    with gin_config.temporary_configuration():
        gin_config.load_text("")
    with gin.unlock_config():
        gin.parse_config("users_module.half.number = 8")
    assert half() == 4
    gin.clear_config()
