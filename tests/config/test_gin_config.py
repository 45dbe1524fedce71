"""Mistakes in gin files: one message each, with the file and what was meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.config.gin_files import ConfigError

DYNAMIC = "from __gin__ import dynamic_registration\n"
BERT = f"{DYNAMIC}from t5x_like.models import bert\n"


def test_a_class_of_the_users_may_have_the_name_of_one_of_t5xs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_optimizers.py").write_text("class Adafactor:\n    def __init__(self, a=1): 0\n")
    (tmp_path / "my.gin").write_text(
        f"{DYNAMIC}import my_optimizers\nmy_optimizers.Adafactor.a = 2\n"
    )
    gin_config.load([str(tmp_path / "my.gin")], ["my_optimizers.Adafactor.a=3"])
    assert "my_optimizers.Adafactor.a = 3" in gin_config.config_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{BERT}MODEL = @ber.Bert", r"no module 'ber' is imported in .*my\.gin; nearest: bert"),
        (
            f"{BERT}optimizers.adamw.b1 = 0.9",
            r"'optimizers' is not imported in .*: add `from t5x_like.* import optimizers`",
        ),
        (
            f"{DYNAMIC}from t5x_like.models import bertt",
            r"models\.bertt'.*nearest: .*models\.bert,",
        ),
        (
            f"{DYNAMIC}import __main__ as script\nscript.train:\n  eval_period = 2000",
            r"no script\.train\.eval_period in .*my\.gin; in place of .* there is EVAL_PERIOD",
        ),
        (
            f"{DYNAMIC}utils.SaveCheckpointConfig.period = 5",
            r"in place of T5X's SaveCheckpointConfig\.period there is CHECKPOINT_PERIOD",
        ),
        (
            f"{DYNAMIC}MODEL = @models.EncoderDecoderModel()",
            r"no @models\.EncoderDecoderModel in .*; in place of .* there is MODEL = @t5\.T5",
        ),
        (
            "include 't5x/examples/t5/t5_1_1/xxl.gin'",
            r"here it is include 'models/t5_1_1_xxl' \(docs/from_t5x\.md\)",
        ),
        (f"{DYNAMIC}from t5x import utils", r"imports t5x.*leave the line out; docs/from_t5x\.md"),
        (
            f"{DYNAMIC}import t5.data.mixtures",
            r"cannot import 't5.*: pip install 't5x_like\[t5\]' && pip install --no-deps t5==",
        ),
        (f"{DYNAMIC}import numpi", r"cannot import 'numpi' in .*my\.gin"),
        ("include 'my.gin'", r"include one another \(my\.gin\) in .*my\.gin"),
        (f"X = {'[' * 3000}{']' * 3000}", r"too deep nesting in .*my\.gin"),
        ("X = '\0'", r"null bytes.* in .*my\.gin|in .*my\.gin: .*null bytes"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "t5", None)
    (tmp_path / "my.gin").write_text(text)
    with gin_config.temporary_configuration(), pytest.raises(ConfigError, match=message) as found:
        gin_config.load(["my.gin"])
    assert "\n" not in str(found.value)


def test_a_name_of_several_classes_is_told_with_the_whole_ones() -> None:
    xlnet = str(gin_files.find_recipe("xlnet-mini"))
    meant = r"--gin.xlnet.XLNet.max_ngram=3: write one of .*, t5x_like.objectives.xlnet.XLNet$"
    with gin_config.temporary_configuration(), pytest.raises(ConfigError, match=meant):
        gin_config.load([xlnet], ["xlnet.XLNet.max_ngram=3"])


def test_files_that_include_one_another_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("include 'b.gin'\n")
    (tmp_path / "b.gin").write_text("X = 1\ninclude 'a.gin'\n")
    with (
        gin_config.temporary_configuration(),
        pytest.raises(ConfigError, match=r"\(a\.gin, b\.gin\)"),
    ):
        gin_config.load([str(tmp_path / "a.gin")], extra_folders=[str(tmp_path)])
