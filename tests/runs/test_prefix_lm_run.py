"""A model without a recipe, made of published files on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import write_documents
from tiny_run import Result, assert_evaluated, losses

from t5x_like import objectives

SIZES = {"vocab_size": 512, "d_model": 32, "d_ff": 64, "num_heads": 4}


@pytest.mark.slow
def test_a_prefix_lm_trains_and_has_no_counterpart(
    tmp_path: Path, cli: Callable[..., Result]
) -> None:
    run, text = tmp_path / "run", write_documents(tmp_path / "text.txt")
    macros = {
        "MODEL_DIR": str(run),
        "CORPUS": str(text),
        "CORPUS_VALIDATION": 0.2,
        "CACHE_DIR": str(tmp_path / "cache"),
        "VOCAB_SIZE": 400,
        "TASK_FEATURE_LENGTHS": objectives.preset("prefix_lm").lengths(32),
        "OBJECTIVE": "prefix_lm",
        "SEED": 7,  # of training alone: held-out text gets the same noise in every run
        "TRAIN_STEPS": 4,
        "BATCH_SIZE": 8,
        "EVAL_PERIOD": 4,
        "EVAL_BATCHES": 2,
        "LOG_PERIOD": 1,
        "DTYPE": "float32",
    }
    bindings = [f"--gin.{macro}={value!r}" for macro, value in macros.items()]
    sizes = {**SIZES, "num_decoder_layers": 2, "d_kv": 8}
    bindings += [f"--gin.prefix_lm.Config.{field}={value}" for field, value in sizes.items()]
    files = ["prefix_lm_base", "runs/pretrain.gin"]
    done = cli("train", *(f"--gin_file={file}" for file in files), *bindings)
    assert done.status == 0, done.err
    assert np.isfinite(list(losses(run).values())).all()
    assert_evaluated(run, cli, rows=8)
    exported = cli("export", f"--from={run}", f"--to={tmp_path / 'out'}")
    assert exported.status != 0
    assert "has no counterpart at Hugging Face" in exported.err
