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

from t5x_like.runs import run_directory
from t5x_like.training.logs.metrics_file import read_metrics
from t5x_like.vocabularies import loading

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

PHASES = {"short/run.Phase.steps": 2, "WARMUP_STEPS": 1}


def train(recipe: str, corpus: Any, folder: Path, cli: Callable[..., Result], **more: Any) -> Path:
    done = cli("train", "--recipe", recipe, *gin_flags(corpus, folder, more))
    assert done.status == 0, done.err
    assert "training a " in done.out
    found = losses(folder / "run")
    assert list(found) == [1, 2, 3, 4]
    assert np.isfinite(list(found.values())).all()
    return folder / "run"


def gin_flags(corpus: Any, folder: Path, more: dict[str, Any]) -> list[str]:
    macros = {
        "CORPUS": corpus if isinstance(corpus, dict) else str(corpus),
        "MODEL_DIR": str(folder / "run"),
        "CACHE_DIR": str(folder / "cache"),
    }
    given = macros | SHORT | more
    if "VOCABULARY" in given:
        del given["VOCAB_SIZE"]
    return [f"--gin.{name}={value!r}" for name, value in given.items()]


def evaluated(run: Path) -> set[str]:
    """Tasks with a held-out loss."""
    names = {name for line in read_metrics(run / "metrics.jsonl") for name in line}
    return {name.split("/")[1] for name in names if name.startswith("eval/")}


def test_a_recipe_needs_compressed_text_alone(tmp_path: Path, cli: Callable[..., Result]) -> None:
    """All of BERT's phases, with a lower-case WordPiece that the run trains."""
    documents = write_documents(tmp_path / "text.txt").read_text().split("\n\n")
    for n in range(2):
        with gzip.open(tmp_path / f"{n}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": text.upper()}) + "\n" for text in documents[n::2])
    run = train("bert-mini", tmp_path / "*.jsonl.gz", tmp_path, cli, **PHASES)
    vocabulary = run_directory.read_vocabulary(epath.Path(run))
    ids = vocabulary.encode("BAFODO")
    assert vocabulary.decode(ids) == "bafodo"
    assert vocabulary.token_ids.mask is not None
    assert len(evaluated(run)) == 1

    law = write_documents(tmp_path / "law.txt", count=40)
    law.write_text(law.read_text().replace("a", "estoppel"))
    goes_on_with_the_words_of_a_domain(run, law, tmp_path, cli)


def goes_on_with_the_words_of_a_domain(
    bert: Path, law: Path, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    """LEGAL-BERT's recipe extends BERT's vocabulary; it refuses another one."""
    for name, flags in (
        ("extended", [f"--extend={bert / 'vocabulary'}", "--size=450"]),
        ("other", ["--type=wordpiece", "--lowercase", "--size=400"]),
    ):
        path = tmp_path / name
        done = cli("vocab", "--corpus", str(law), *flags, f"--output={path}")
        assert done.status == 0, done.err
    assert loading.load(tmp_path / "extended").vocab_size == 450
    flags = {
        "INIT_DIR": str(bert),
        "WARMUP_STEPS": 1,
        "TASK_FEATURE_LENGTHS": {"inputs": 32},
        "bert.Config.vocab_size": 640,
    }

    def further(name: str) -> Result:
        given = gin_flags(
            law, tmp_path / f"on_{name}", {**flags, "VOCABULARY": str(tmp_path / name)}
        )
        return cli("train", "--recipe", "legal_bert-mini", *given)

    done = further("extended")
    assert done.status == 0, done.err
    assert "with new rows: encoder.embedding.tokens.table" in done.err
    assert np.isfinite(list(losses(tmp_path / "on_extended" / "run").values())).all()
    assert "ids have other meanings than in" in further("other").err
    assert not (tmp_path / "on_other" / "run" / "checkpoints").exists()


def test_a_recipe_reads_several_languages(tmp_path: Path, cli: Callable[..., Result]) -> None:
    """mT5's recipe has one vocabulary for all, which loses no script, and evaluates each."""
    write_documents(tmp_path / "large.txt")
    scripted = "\n\n".join(f"ሰላም ለዓለም {n}\nቋንቋ {n % 7}" for n in range(30))
    (tmp_path / "small.txt").write_text(scripted)
    corpus = {name: str(tmp_path / f"{name}.txt") for name in ("large", "small")}
    run = train("mt5-mini", corpus, tmp_path, cli, VOCAB_SIZE=500)
    vocabulary = run_directory.read_vocabulary(epath.Path(run))
    for text in ("ሰላም ለዓለም", "字"):  # known, and spelt as bytes
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert vocabulary.token_ids.unk not in ids
    assert evaluated(run) == {"large", "small"}
