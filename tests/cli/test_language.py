"""`t5x_like language`: each evaluation from a file to its table, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import small_bert
import stored_berts
import stored_gpts
import stored_xlnets
from tiny_run import Result

from t5x_like.runs.pretraining import pretrain

TEXT = "the cat sat on the mat and the dog sat on the rug near a king queen man woman"
FILES: Mapping[str, str] = {
    "pairs.tsv": "good\tbad\nthe cat sat\tthe cat rug\nthe dog sat\tsat dog the\n",
    "passages.txt": "the cat sat on the mat\nthe dog sat on the rug\n",
    "choices.jsonl": "".join(
        json.dumps({"question": "the cat", "choices": [*some], "label": label}) + "\n"
        for some, label in ((("sat", "mat"), "A"), (("rug", "sat on"), "B"))
    ),
    "rated.csv": "the cat sat,the dog sat,3.5\nthe mat,a king,0\nthe rug,the mat,2\n",
    "analogies.txt": ": royal\nman king woman queen\nking man queen woman\n",
    "tags.conll": "the D\ncat N\n\na D\ndog N\nsat V\n\n" * 12,
    "classes.tsv": "text\tlabel\n"
    + "the cat\tpet\na rug\tthing\nthe dog\tpet\nthe mat\tthing\n" * 6,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models that have learned nothing yet, and the files."""
    folder = tmp_path_factory.mktemp("language")
    stored_berts.write_untrained(folder / "bert", TEXT, vocab_size=120)
    stored_gpts.write_untrained(folder / "gpt", TEXT)
    stored_xlnets.write_untrained(folder / "xlnet", TEXT, vocab_size=120)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("model", "evaluation", "file", "flags", "columns"),
    [
        ("bert", "pairs", "pairs.tsv", (), ["accuracy", "shorter"]),
        ("bert", "pairs", "pairs.tsv", ("--within_word",), ["accuracy", "shorter"]),
        ("gpt", "pairs", "pairs.tsv", ("--examples=1",), ["accuracy", "shorter"]),
        ("bert", "lambada", "passages.txt", (), ["accuracy", "perplexity", "frequent"]),
        ("gpt", "lambada", "passages.txt", (), ["accuracy", "perplexity", "frequent"]),
        ("xlnet", "lambada", "passages.txt", (), ["accuracy", "perplexity", "frequent"]),
        ("bert", "choices", "choices.jsonl", (), ["accuracy", "by token", "by byte", "chance"]),
        ("gpt", "choices", "choices.jsonl", (), ["accuracy", "by token", "by byte", "chance"]),
        ("bert", "similarity", "rated.csv", ("--layer=0",), ["spearman", "pearson"]),
        ("bert", "analogies", "analogies.txt", (), ["accuracy", "nearest to c", "covered"]),
        ("gpt", "probe", "tags.conll", ("--train={}/tags.conll", "--layer=1"), ["model"]),
        ("bert", "probe", "classes.tsv", ("--train={}/classes.tsv",), ["model"]),
    ],
)
def test_an_evaluation_prints_and_writes_its_table(
    folder: Path,
    cli: Callable[..., Result],
    tmp_path: Path,
    model: str,
    evaluation: str,
    file: str,
    flags: tuple[str, ...],
    columns: list[str],
) -> None:
    given = [flag.format(folder) for flag in flags]
    output = str(tmp_path / "results.json")
    words = (str(folder / model), evaluation, str(folder / file), *given, "--output", output)
    result = cli("language", *words)
    assert result.status == 0, result.err
    written: dict[str, Any] = json.loads(Path(output).read_text())
    assert written["evaluation"] == evaluation
    assert [*written["rows"][-1]][2:][: len(columns)] == columns
    head, *lines = result.out.splitlines()
    assert head.split()[0] == written["unit"]
    names = [line[:54].strip() for line in lines if not line.startswith("note: ")]
    assert names == [row["name"].rpartition("/")[2] for row in written["rows"]]
    assert all(0 <= row.get("accuracy", 0) <= 1 for row in written["rows"])
    if evaluation == "probe":  # a tag follows from its word, and a class from its words
        probes = [row["model"] for row in written["rows"] if "layer" in row["name"]]
        assert probes[-1] == 1.0
        floors = {row["name"]: row["model"] for row in written["rows"]}
        assert floors["commonest label"] in (0.4, 0.5)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("pair", "pairs.tsv"), "no evaluation 'pair'; nearest: pairs"),
        (("lambada", "passages.txt", "--layer=1"), "lambada reads no layer"),
        (("pairs", "passages.txt"), "lines True<tab>sentence"),
        (("probe", "tags.conll"), "name its training files (--train)"),
        (("probe", "tags.conll", "--train", "{}/classes.tsv"), "one has tags of words"),
        (("pairs", "none.tsv"), "none.tsv"),
    ],
)
def test_what_does_not_fit_is_refused(
    folder: Path, cli: Callable[..., Result], words: tuple[str, ...], error: str
) -> None:
    name, file, *flags = words
    given = [flag.format(folder) for flag in flags]
    result = cli("language", str(folder / "bert"), name, str(folder / file), *given)
    assert result.status == 1
    assert error in " ".join(result.err.split())


def test_a_run_is_beside_its_untrained_self_and_its_own_frequencies(
    folder: Path, cli: Callable[..., Result], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(f"{TEXT}\n" * 30)
    pretrain(small_bert.made(tmp_path, text, "run"))
    run = str(tmp_path / "run")
    pairs = cli("language", run, "pairs", str(folder / "pairs.tsv"))
    assert pairs.status == 0, pairs.err
    assert pairs.out.split()[:4] == ["pairs", "accuracy", "unigram", "shorter"]
    rated = cli("language", run, "similarity", str(folder / "rated.csv"))
    names = [line.split("  ")[0] for line in rated.out.splitlines()[1:6]]
    assert names == [*("model", "model, layer 0", "untrained", "words, TF-IDF", "trigrams, TF-IDF")]
