"""The files of the fine-tuning study: whole or with few rows, and two that it divides itself.

SQuAD's are the questions with an answer, in the form of version 1.1: no model of this size learns
when there is none, and the score of never answering would hide the others. Of WNUT-17's training
sentences every tenth is held out.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FEWEST = {"train": 200, "dev": 40}
"""Rows that a shorter study reads at least of each file."""
AS_PUBLISHED = {
    "glue_sst2": ("train.tsv", "dev.tsv"),
    "glue_cola": ("in_domain_train.tsv", "in_domain_dev.tsv"),
    "glue_mrpc": ("train.tsv", "dev.tsv"),
    "glue_rte": ("train.tsv", "dev.tsv"),
    "glue_stsb": ("en-train.csv", "en-dev.csv"),
    "ud_english_ewt": ("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu"),
    "multi30k": ("train.en", "train.de", "val.en", "val.de"),
    "e2e_nlg": ("train.jsonl", "devset.csv"),
}
"""{folder: its files}, each also with .gz after its name."""
SQUAD = {"train-v1.1.json": "train_subset.json", "dev-v1.1.json": "dev_official_5_articles.json"}
HELD_OUT_SENTENCES = 10
"""Every so many sentences of WNUT-17 one is held out."""


def prepare(data: Path, folder: Path, share: float) -> None:
    """Makes all files of the tasks, unless they are there.

    Args:
      data: the folder of the data sets.
      folder: where the files go; it says in `prepared.json` when all are there.
      share: the part of the rows that is read; 1 for all.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: the folder was made with another share.
    """
    mark = folder / "prepared.json"
    if mark.exists():
        if json.loads(mark.read_text()) != share:
            raise ValueError(
                f"{folder} has files of a study of another length: name another --work"
            )
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name, files in AS_PUBLISHED.items():
        for file in files:
            _write(folder / name / file, _cut(text_of(data / name / file), file, share))
    for file, source in SQUAD.items():
        answered = _answered(json.loads(text_of(data / "squad" / source)), _part(file), share)
        _write(folder / "squad" / file, json.dumps(answered))
    posts = sentences_of(text_of(data / "wnut17_germeval/wnut17train.conll"))
    held_out = posts[::HELD_OUT_SENTENCES]
    train = [post for n, post in enumerate(posts) if n % HELD_OUT_SENTENCES]
    for part, sentences in (("train", train), ("dev", held_out)):
        file = f"{part}.conll"
        _write(folder / "wnut17" / file, _cut("\n\n".join(sentences) + "\n\n", file, share))
    mark.write_text(json.dumps(share))


def text_of(path: Path) -> str:
    """The text of a file, or of that file with .gz after its name.

    Raises:
      FileNotFoundError: there is neither.
    """
    packed = path.with_name(path.name + ".gz")
    if not path.exists() and not packed.exists():
        raise FileNotFoundError(f"{path} is missing, also with .gz after its name")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    return content.decode("utf-8").replace("\r\n", "\n")


def sentences_of(text: str) -> list[str]:
    """The sentences of a file of words; an empty line, or one of blanks, is between two."""
    return [sentence for sentence in re.split(r"\n\s*\n", text) if sentence.strip()]


def rows_kept(count: int, part: str, share: float) -> int:
    """How many of so many rows of "train" or "dev" are read."""
    return min(count, max(math.ceil(count * share), FEWEST[part]))


def _part(file: str) -> str:
    return "train" if "train" in file else "dev"


def _cut(text: str, file: str, share: float) -> str:
    """Rows of a file at equal distances, or sentences, after its header; all where share is 1."""
    if share >= 1:
        return text
    of_words = file.endswith((".conll", ".conllu"))
    between = "\n\n" if of_words else "\n"
    rows = sentences_of(text) if of_words else [row for row in text.split("\n") if row.strip()]
    header = 1 if _has_header(file) else 0
    body = rows[header:]
    kept = _spread(body, rows_kept(len(body), _part(file), share))
    return between.join([*rows[:header], *kept]) + between


def _spread(rows: Sequence[str], count: int) -> list[str]:
    """So many of the rows, at equal distances."""
    return [rows[n * len(rows) // count] for n in range(count)]


def _has_header(file: str) -> bool:
    return file in ("train.tsv", "dev.tsv", "devset.csv")


def _answered(squad: Any, part: str, share: float) -> dict[str, Any]:
    """The questions with an answer, of the first paragraphs if few are read."""
    left = rows_kept(sum(bool(each["answers"]) for each in questions(squad)), part, share)
    articles = []
    for article in squad["data"]:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            kept = [each for each in paragraph["qas"] if each["answers"]][:left]
            left -= len(kept)
            if kept:
                bare = [{k: x for k, x in each.items() if k != "is_impossible"} for each in kept]
                paragraphs.append({"context": paragraph["context"], "qas": bare})
        if paragraphs:
            articles.append({"title": article.get("title", ""), "paragraphs": paragraphs})
    return {"version": "1.1", "data": articles}


def questions(squad: Any) -> list[Any]:
    """All questions of a file of SQuAD."""
    return [
        question
        for article in squad["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
