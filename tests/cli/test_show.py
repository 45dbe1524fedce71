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
from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.display import example_text
from t5x_like.display.example_view import view

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
    assert result.out.count("\nrow ") == 2
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
    result = cli("show", *text, "--objective=albert", "--start=2", "-n=4", f"--html={page}")
    assert str(page) in result.out
    found = page.read_text()
    assert re.findall("<h3>(.*)</h3>", found) == ["Row 2", "Row 3", "Row 4", "Row 5"]
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


def test_rows_are_numbered_from_the_first_one_shown(text: list[str], cli: Cli):
    found = cli("show", *text, "--start=2", "-n=2").out
    assert re.findall(r"\n(row \d+)\n", found) == ["row 2", "row 3"]


def test_plain_text_is_shown_as_train_reads_it(text: list[str], cli: Cli):
    by_default = cli("show", *text)
    assert by_default.status == 0, by_default.err
    assert by_default.out == cli("show", *text, "--objective=span_corruption").out
    assert "if TASK names none (default: span_corruption)" in " ".join(
        cli("show", "-h").out.split()
    )


def test_words_of_wordpiece_are_shown_apart(text: list[str], cli: Cli):
    wordpiece = ["--vocab_type=wordpiece", "--objective=lm", "-n=1"]
    result = cli("show", *text, *wordpiece)
    assert result.status == 0, result.err
    words = Path(text[0].removeprefix("--corpus=")).read_text().split()[:3]
    assert f"targets {' '.join(words).replace('.', ' .')}" in " ".join(result.out.split())
    assert "##" not in result.out


XLNETS = """
import string

import seqio

from t5x_like.data.seqio import adapter
from t5x_like.tasks.text import text
from t5x_like.vocabularies.characters import CharacterVocabulary

corpus = text("letters", {file!r}, validation=0.0)
for name in ("letters_one", "letters_two"):
    adapter.register(
        corpus,
        CharacterVocabulary(" .\\n" + string.ascii_lowercase),
        objective="xlnet",
        name=name,
        rows=2,
    )
seqio.MixtureRegistry.add("letters_both", [("letters_one", 1), ("letters_two", 1)])
"""


def test_a_mixture_of_carried_tasks_is_shown(text: list[str], cli: Cli, tmp_path: Path):
    module = tmp_path / "my_xlnets.py"
    module.write_text(XLNETS.format(file=text[0].removeprefix("--corpus=")))
    result = cli(
        "show", "letters_both", f"--module={module}", "--length=48", f"--cache_dir={tmp_path}"
    )
    assert result.status == 0, result.err
    for name in ("letters_one", "letters_two"):
        assert f"{name}: " in result.out


@pytest.fixture
def sums(tmp_path: Path) -> list[str]:
    """What names a table of questions and answers."""
    rows = [f"what is {a}+{b}\t{a + b}" for a in range(20) for b in range(10)]
    (tmp_path / "sums.tsv").write_text("\n".join(["inputs\ttargets", *rows]))
    return [f"--corpus={tmp_path / 'sums.tsv'}", "--vocabulary=bytes", f"--cache_dir={tmp_path}/c"]


def test_text_to_text_is_shown_packed_with_its_efficiency(sums: list[str], cli: Cli):
    result = cli("show", *sums, "--lengths=inputs=64,targets=16", "--pack", "-n=1")
    assert result.status == 0, result.err
    assert re.search(r"packed inputs [89]\d\.\d%", result.out)
    assert "\nrow 0, example 0\n" in result.out
    assert "\nrow 0, example 2\n" in result.out
    assert "\nrow 1" not in result.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--objective=mlmm"], "no objective 'mlmm'"),
        (["--objective=mlm", "--vocabulary=bytes"], "needs a vocabulary with cls, sep, mask"),
        (["--objective=mlm_nsp", "--pack"], "pack"),
        (["--objective=span_corruption", "--lengths=inputs=64,targets=2"], "targets length to 14"),
        (["--lengths=input=64,targets=16"], "lacks inputs; has input, which the examples lack"),
        (["--objective=mlm", "--lengths=inputs=64,targets=2"], "has targets, which"),
        (["--start=100000"], "--start 100000: there are "),
    ],
)
def test_what_cannot_be_shown_is_said(flags: list[str], message: str, text: list[str], cli: Cli):
    result = cli("show", *text, *flags)
    assert result.status == 1
    assert message in result.err
    assert len(result.err.strip().splitlines()[-1]) < 600


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("-n=0", "-n: 0 is less than 1"),
        ("--start=-1", "--start: -1 is less than 0"),
        ("--length=0", "--length: 0 is less than 1"),
        ("--lengths=inputs", "'inputs' is not of the form F=N,F=N"),
        ("--lengths=inputs=x", "'inputs=x' is not of the form F=N,F=N"),
        ("--lengths=inputs=0", "0 is less than 1"),
    ],
)
def test_numbers_that_cannot_be_meant(flag: str, message: str, text: list[str], cli: Cli):
    result = cli("show", *text, flag)
    assert result.status == 2
    assert message in result.err


def test_what_would_go_unused_is_refused(sums: list[str], cli: Cli, tmp_path: Path):
    for named in (["stdlib_docs.mlm", *sums[1:]], sums):
        result = cli("show", *named, "--objective=bart")
        assert result.status == 1
        assert "--objective bart is for plain text that is named without" in result.err
    result = cli("show", *sums, "--lengths=inputs=20")
    assert result.status == 1
    assert "--lengths: lacks targets; give the lengths of inputs and targets" in result.err
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_every_objective_runs_on_the_documentation_of_python(cli: Cli, tmp_path: Path):
    for name in objectives.of_plain_text():
        result = cli(
            "show", f"stdlib_docs.{name}", "-n=1", "--vocab_size=1000", f"--cache_dir={tmp_path}"
        )
        assert result.status == 0, result.err
        assert "\nrow 0\n" in result.out


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
    found = view(features, {"inputs": FeatureSpec(8)}, Letters())
    assert [token.role for token in found.lines["inputs"]] == [
        "special", "text", "masked", "replaced", "kept", "special",
    ]  # fmt: skip
    assert [token.text.strip() for token in found.lines["targets"][1:5]] == ["f", "g", "h", "i"]
    assert found.numbers["inputs length"] == "6 of 8 (25% padding)"
    text = example_text.render(found, colour=False)
    assert "{m}" in text
    assert "=i=" in text
    assert "[g]" in text
