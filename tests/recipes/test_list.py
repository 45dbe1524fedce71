"""The list of recipes, and one of them in full, as `t5x_like recipes` prints them."""

from __future__ import annotations

from pathlib import Path

from t5x_like.cli.main import main
from t5x_like.config import gin_files

DOCS = Path(__file__).parent.parent.parent / "docs" / "recipes.md"


def test_the_list_and_the_names(capsys):
    assert main(["recipes", "--names"]) == 0
    names = capsys.readouterr().out.split()
    assert names == [*gin_files.published_recipes()]
    assert main(["recipes", "--sources"]) == 0
    table = capsys.readouterr().out
    assert f"```\n{table}```" in DOCS.read_text(encoding="utf-8")
    lines = [line for line in table.splitlines() if line and not line.startswith("recipe ")]
    assert sorted(line.split()[0] for line in lines) == sorted(names)
    (bert,) = (line for line in lines if line.startswith("bert_base "))
    steps = "900k x 256 x 128 + 100k x 256 x 512"
    assert f"110M {steps} 42.6B Devlin" in " ".join(bert.split())


def test_the_list_fits_a_terminal_and_may_be_of_a_part(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    first = lines.index("")  # small twins follow
    assert not any("-mini" in line for line in lines[:first])
    assert main(["recipes", "xlnet"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert names == ["recipe", "xlnet_base", "xlnet_large", "recipe", "xlnet-mini"]


def test_one_recipe_in_full(capsys):
    assert main(["recipes", "scibert"]) == 0
    text = capsys.readouterr().out
    assert "phase 2: 300,000 steps of 64 rows (inputs 512): 9.83B tokens" in text
    assert "NextSentence(masked_rate=0.15" in text
    assert "optimizers.adam_uncorrected(" in text
    assert "VOCABULARY = None\nVOCAB_TYPE = 'wordpiece'\nVOCAB_SIZE = 31090\n" in text
    assert "corpus_exponent" not in text
    assert main(["recipes", "byt5_small"]) == 0
    text = capsys.readouterr().out
    assert text.endswith("VOCABULARY = 'bytes'\ndataset.Data.corpus_exponent = 0.3\n")
    assert main(["recipes", "distilbert"]) == 0
    assert capsys.readouterr().out.endswith("VOCABULARY = None: that of 'runs/bert_base'\n")
    assert main(["recipes", "brt_base"]) == 1
    assert "bert_base" in capsys.readouterr().err
