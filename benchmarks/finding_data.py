"""The text that the findings are trained and measured on, as files in a working directory."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

WIKI = "data/wiki_en/*.jsonl.gz"
NOVELS = "data/novels_en/*.txt.gz"
PLAYS = "data/plays.txt"
_PLAYS_CHARACTERS = 400_000
_VERDICTS = {"0": "bad", "1": "good"}
Pairs = Iterable[tuple[str, str]]


def prepare(source: Path, work: Path) -> None:
    """Puts under `work/data` what is not there yet.

    Args:
      source: has the folders `wiki_en` (JSON lines of articles, `*.jsonl.gz`), `novels_en` (a
        novel a file, `*.txt.gz`), `tinyshakespeare` (`input.txt.gz`), `glue_sst2` (`train.tsv.gz`
        and `dev.tsv`, columns sentence and label) and `e2e_nlg` (`train.jsonl.gz` with fields mr
        and ref, `devset.csv.gz` with these columns).
      work: the working directory of all commands.

    Raises:
      FileNotFoundError: one of these is missing.
    """
    data = work / "data"
    data.mkdir(parents=True, exist_ok=True)
    for name in ("wiki_en", "novels_en"):
        if not any((source / name).glob("*.gz")):
            raise FileNotFoundError(f"{source / name} holds no *.gz: see --help for --data")
        if not (data / name).exists():
            (data / name).symlink_to((source / name).resolve())
    makers: dict[str, Callable[[], Iterator[str]]] = {
        "plays.txt": lambda: _plays(source / "tinyshakespeare" / "input.txt.gz"),
        "sst2/train.jsonl": lambda: _table(_sst2(source / "glue_sst2" / "train.tsv.gz")),
        "sst2/dev.jsonl": lambda: _table(_sst2(source / "glue_sst2" / "dev.tsv")),
        "e2e/train.jsonl": lambda: _table(_e2e_lines(source / "e2e_nlg" / "train.jsonl.gz")),
        "e2e/dev.jsonl": lambda: _table(_e2e_rows(source / "e2e_nlg" / "devset.csv.gz")),
    }
    for name, make in makers.items():
        file = data / name
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(make()), encoding="utf-8")


def _plays(file: Path) -> Iterator[str]:
    with _open(file) as text:
        yield text.read(_PLAYS_CHARACTERS)


def _sst2(file: Path) -> Pairs:
    with _open(file) as text:
        for row in csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield row["sentence"].strip(), _VERDICTS[row["label"]]


def _e2e_lines(file: Path) -> Pairs:
    """The training split is tokenised, the others are not."""
    with _open(file) as text:
        for row in map(json.loads, text):
            yield row["mr"], re.sub(r" ([.,!?;:'])", r"\1", row["ref"])


def _e2e_rows(file: Path) -> Pairs:
    with _open(file) as text:
        for row in csv.DictReader(text):
            yield row["mr"], row["ref"]


def _table(pairs: Pairs) -> Iterator[str]:
    """JSON lines of a text-to-text task."""
    for inputs, targets in pairs:
        yield json.dumps({"inputs": inputs, "targets": targets}) + "\n"


def _open(file: Path) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", newline="")
    return file.open(encoding="utf-8", newline="")
