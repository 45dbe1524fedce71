"""One command, a recipe and the user's files: vocabulary, cache, training and evaluation follow."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import write_documents
from etils import epath
from tiny_run import Result, losses

from t5x_like.cli import run_files
from t5x_like.training.logs import read_metrics

pytestmark = pytest.mark.slow

SHORT = {
    "VOCAB_SIZE": 400,
    "TRAIN_STEPS": 4,
    "BATCH_SIZE": 8,
    "EVAL_PERIOD": 4,
    "EVAL_BATCHES": 2,
    "LOG_PERIOD": 1,
    "CORPUS_VALIDATION": 0.1,
}


def train(recipe: str, corpus: Any, folder: Path, cli: Callable[..., Result], **more: Any) -> Path:
    macros = {
        "CORPUS": corpus,
        "MODEL_DIR": str(folder / "run"),
        "CACHE_DIR": str(folder / "cache"),
    }
    flags = [f"--gin.{name}={value!r}" for name, value in (macros | SHORT | more).items()]
    done = cli("train", "--recipe", recipe, *flags)
    assert done.status == 0, done.err
    assert "training a " in done.out
    found = losses(folder / "run")
    assert list(found) == [1, 2, 3, 4]
    assert np.isfinite(list(found.values())).all()
    return folder / "run"


def evaluated(run: Path) -> set[str]:
    """Tasks with a held-out loss."""
    names = {name for line in read_metrics(run / "metrics.jsonl") for name in line}
    return {name.split("/")[1] for name in names if name.startswith("eval/")}


def test_a_recipe_needs_compressed_text_alone(tmp_path: Path, cli: Callable[..., Result]) -> None:
    """BERT's phases, whole, with a lower-case WordPiece that is trained on the way."""
    documents = write_documents(tmp_path / "text.txt").read_text().split("\n\n")
    for n in range(2):
        with gzip.open(tmp_path / f"{n}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": text.upper()}) + "\n" for text in documents[n::2])
    phase = {"short/run.Phase.steps": 2, "WARMUP_STEPS": 1}
    run = train("bert-mini", str(tmp_path / "*.jsonl.gz"), tmp_path, cli, **phase)
    vocabulary = run_files.read_vocabulary(epath.Path(run))
    ids = vocabulary.encode("BAFODO")
    assert vocabulary.decode(ids) == "bafodo"
    assert vocabulary.token_ids.mask is not None
    assert len(evaluated(run)) == 1


def test_a_recipe_reads_several_languages(tmp_path: Path, cli: Callable[..., Result]) -> None:
    """mT5's: a vocabulary of all, in which no script is lost, and an evaluation of each."""
    write_documents(tmp_path / "large.txt")
    scripted = "\n\n".join(f"ሰላም ለዓለም {n}\nቋንቋ {n % 7}" for n in range(30))
    (tmp_path / "small.txt").write_text(scripted)
    corpus = {name: str(tmp_path / f"{name}.txt") for name in ("large", "small")}
    run = train("mt5-mini", corpus, tmp_path, cli, VOCAB_SIZE=500)
    vocabulary = run_files.read_vocabulary(epath.Path(run))
    for text in ("ሰላም ለዓለም", "字"):  # known, and spelt as bytes
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert vocabulary.token_ids.unk not in ids
    assert evaluated(run) == {"large", "small"}
