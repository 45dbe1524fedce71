"""Examples shown to people, and the list of objectives."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tiny_run import Result

from t5x_like import objectives
from t5x_like.cli import shown_text
from t5x_like.cli.shown import shown
from t5x_like.protocols import FeatureSpec, TokenIds

Cli = Callable[..., Result]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What names a small text of many documents and a vocabulary to train on it."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("aeioulmnrst"), rng.integers(2, 8))) for _ in range(200)]
    documents = [
        "\n".join(" ".join(rng.choice(words, rng.integers(3, 15))) + "." for _ in range(lines))
        for lines in rng.integers(1, 12, 60)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    return [
        f"--corpus={folder / 'text.txt'}",
        "--vocab_size=150",
        f"--cache_dir={folder / 'cache'}",
        "--length=48",
    ]


@pytest.mark.parametrize(
    ("objective", "lines"),
    [
        ("span_corruption", ["<extra_id_0>", "inputs length: 48 of 48 (0% padding)"]),
        ("mlm_nsp", ["[CLS]", "[MASK]", "next_sentence_label: ", "predicted: "]),
        ("bart", ["[MASK]", "targets length: "]),
        ("xlnet", ["in the order", "reset_memory: 1"]),
        ("lm", ["targets length: 48 of 48", "loss weights: 48 in all"]),
        ("ul2", ["["]),
    ],
)
def test_examples_are_printed(objective: str, lines: list[str], text: list[str], cli: Cli):
    result = cli("show", *text, f"--objective={objective}", "-n=2")
    assert result.status == 0, result.err
    assert "rows an epoch; of the first" in result.out
    assert result.out.count("\nexample ") == 2
    for line in lines:
        assert line in result.out


def test_colour_and_marks_say_the_same(text: list[str], cli: Cli):
    plain = cli("show", *text, "--objective=mlm", "--color=never").out
    coloured = cli("show", *text, "--objective=mlm", "--color=always").out
    assert "marks:" in plain
    assert "marks:" not in coloured
    assert COLOUR.search(coloured)
    letters = re.compile(r"[A-Za-z]")  # lines break elsewhere
    unmarked = plain[: plain.index("marks:")]
    assert letters.findall(COLOUR.sub("", coloured)) == letters.findall(unmarked)


def test_a_page_has_every_example_and_closes_its_tags(text: list[str], cli: Cli, tmp_path: Path):
    page = tmp_path / "page.html"
    result = cli("show", *text, "--objective=albert", "-n=4", f"--html={page}")
    assert str(page) in result.out
    found = page.read_text()
    assert found.count("<h3>") == 4
    assert 'class="masked"' in found
    open_tags: list[str] = []

    class Balanced(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            if tag not in ("meta",):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balanced().feed(found)
    assert not open_tags


def test_text_to_text_is_shown_packed_with_its_efficiency(cli: Cli, tmp_path: Path):
    rows = [f"what is {a}+{b}\t{a + b}" for a in range(20) for b in range(10)]
    (tmp_path / "sums.tsv").write_text("\n".join(["inputs\ttargets", *rows]))
    named = [f"--corpus={tmp_path / 'sums.tsv'}", "--vocabulary=bytes", f"--cache_dir={tmp_path}"]
    result = cli("show", *named, "--lengths=inputs=64,targets=16", "--pack", "-n=1")
    assert result.status == 0, result.err
    assert re.search(r"packed inputs [89]\d\.\d%", result.out)
    assert result.out.count("\nexample ") > 2, "a row holds several"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--objective=mlmm"], "no objective 'mlmm'"),
        (["--objective=mlm", "--vocabulary=bytes"], "needs a vocabulary with cls, sep, mask"),
        (["--objective=mlm", "--pack"], "pack"),
        (["--objective=span_corruption", "--lengths=inputs=64,targets=2"], "targets length to 14"),
    ],
)
def test_what_cannot_be_shown_is_said(flags: list[str], message: str, text: list[str], cli: Cli):
    result = cli("show", *text, *flags)
    assert result.status == 1
    assert message in result.err
    assert len(result.err.strip().splitlines()[-1]) < 600


@pytest.mark.slow
def test_every_objective_runs_on_the_documentation_of_python(cli: Cli, tmp_path: Path):
    for name in objectives.presets():
        result = cli(
            "show", f"stdlib_docs.{name}", "-n=1", "--vocab_size=1000", f"--cache_dir={tmp_path}"
        )
        assert result.status == 0, result.err
        assert "example 0" in result.out


def test_objectives_are_listed_and_explained(cli: Cli):
    names = cli("objectives", "--names").out.split()
    assert names == list(objectives.presets())
    listed = cli("objectives").out.splitlines()
    assert [line.split()[0] for line in listed] == names
    for name in names:
        explained = cli("objectives", name).out
        assert explained.startswith(f"{name}: ")
        assert "an example holds, at most: " in explained
    assert cli("objectives", "mlmm").status == 1


class Letters:
    """A vocabulary whose piece i is the i-th letter, with a space before capitals."""

    token_ids = TokenIds(26, cls=23, sep=24, mask=25)

    def piece(self, i: int) -> str:
        return {23: "[CLS]", 24: "[SEP]", 25: "[MASK]"}.get(i, chr(ord("a") + i))


def test_each_prediction_is_shown_as_what_became_of_it():
    values = [[23, 5, 25, 12, 8, 24], [2, 3, 4], [6, 7, 8]]
    ids = [np.array(one, np.int32) for one in values]
    names = ("inputs", "masked_positions", "masked_targets")
    features = dict(zip(names, ids, strict=True)) | {"masked_loss_weights": np.ones(3, np.float32)}
    found = shown(features, {"inputs": FeatureSpec(8)}, Letters())
    assert [token.role for token in found.lines["inputs"]] == [
        "special", "text", "masked", "replaced", "kept", "special",
    ]  # fmt: skip
    assert [token.text.strip() for token in found.lines["targets"][1:5]] == ["f", "g", "h", "i"]
    assert found.numbers["inputs length"] == "6 of 8 (25% padding)"
    text = shown_text.render(found, colour=False)
    assert "{m}" in text
    assert "=i=" in text
    assert "[g]" in text
