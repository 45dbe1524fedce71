"""The text for training and measuring the findings, as files in a working directory."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

WIKI = "data/wiki_en/*.jsonl.gz"
SENTENCES = "data/wiki_en_sentences.jsonl"
NOVELS = "data/novels_en/*.txt.gz"
PLAYS = "data/plays.txt"
_PLAYS_CHARACTERS = 400_000
_BETWEEN_SENTENCES = re.compile(r"(?<=[a-z0-9)\"][.!?]) (?=[A-Z\"])")
VERDICTS = {"0": "down", "1": "up"}
"""Each is a single piece of a vocabulary that is trained on English Wikipedia."""
Pairs = Iterable[tuple[str, str]]


FOLDERS = {
    "wiki_en": "*.jsonl.gz",
    "novels_en": "*.txt.gz",
    "glue_sst2": "*.tsv*",
    "glue_cola": "*.tsv*",
    "ud_english_ewt": "*.conllu*",
}
"""Folders that are read unchanged, and their contents."""


def prepare(source: Path, work: Path) -> None:
    """Creates what is missing under `work/data`.

    Args:
      source: has the folders `wiki_en` (JSON lines of articles, `*.jsonl.gz`), `novels_en` (a
        novel a file, `*.txt.gz`), `tinyshakespeare` (`input.txt.gz`), `glue_sst2` (`train.tsv.gz`
        and `dev.tsv`, columns sentence and label), `glue_cola`, `ud_english_ewt` (as of
        `probes.py`), and `e2e_nlg` (`train.jsonl.gz` with fields mr and ref, `devset.csv.gz` with
        these columns).
      work: the working directory of all commands.

    Raises:
      OSError: one of these is missing.
      ValueError: one is not as described.
    """
    data = work / "data"
    data.mkdir(parents=True, exist_ok=True)
    for name, pattern in FOLDERS.items():
        if not any((source / name).glob(pattern)):
            raise FileNotFoundError(f"no {source / name / pattern}: see --help for --data")
        if not (data / name).is_symlink() and not (data / name).exists():
            (data / name).symlink_to((source / name).resolve())
    makers: dict[str, Callable[[], Iterator[str]]] = {
        SENTENCES: lambda: _sentences(sorted((source / "wiki_en").glob("*.jsonl.gz"))),
        PLAYS: lambda: _plays(source / "tinyshakespeare" / "input.txt.gz"),
        "data/sst2/train.jsonl": lambda: _table(_sst2(source / "glue_sst2" / "train.tsv.gz")),
        "data/sst2/dev.jsonl": lambda: _table(_sst2(source / "glue_sst2" / "dev.tsv")),
        "data/e2e/train.jsonl": lambda: _table(_e2e_lines(source / "e2e_nlg" / "train.jsonl.gz")),
        "data/e2e/dev.jsonl": lambda: _table(_e2e_rows(source / "e2e_nlg" / "devset.csv.gz")),
    }
    for name, make in makers.items():
        file = work / name
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            partial = file.with_name(f".{file.name}.{os.getpid()}")
            with partial.open("w", encoding="utf-8") as text:
                text.writelines(make())
            partial.replace(file)


def _sentences(files: Iterable[Path]) -> Iterator[str]:
    """The articles with one sentence a line: sentence pairs are pairs of lines.

    Only punctuation decides, so that some abbreviations end a sentence.
    """
    for file in files:
        with _open(file) as text:
            for article in map(json.loads, text):
                yield json.dumps({"text": _BETWEEN_SENTENCES.sub("\n", article["text"])}) + "\n"


def _plays(file: Path) -> Iterator[str]:
    with _open(file) as text:
        yield text.read(_PLAYS_CHARACTERS)


def _sst2(file: Path) -> Pairs:
    with _open(file) as text:
        for row in csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row.get("label") not in VERDICTS:
                raise ValueError(f"{file}: a row has no label 0 or 1: {row}")
            yield row["sentence"].strip(), VERDICTS[row["label"]]


def _e2e_lines(file: Path) -> Pairs:
    with _open(file) as text:
        for row in map(json.loads, text):
            yield _untokenised(row["mr"]), _untokenised(row["ref"])


def _e2e_rows(file: Path) -> Pairs:
    with _open(file) as text:
        for row in csv.DictReader(text):
            yield _untokenised(row["mr"]), _untokenised(row["ref"])


def _untokenised(text: str) -> str:
    """Removes the spaces around punctuation, which only one of the splits has."""
    return re.sub(
        r" ([.,!?;:'])|(£) | ?(-) ?", lambda match: "".join(filter(None, match.groups())), text
    )


def _table(pairs: Pairs) -> Iterator[str]:
    """JSON lines of a text-to-text task."""
    for inputs, targets in pairs:
        yield json.dumps({"inputs": inputs, "targets": targets}) + "\n"


def _open(file: Path) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", newline="")
    return file.open(encoding="utf-8", newline="")
