"""The answers of a run's model: those of `t5x_like predict`, in any batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import capital_tasks
import numpy as np
import pytest
from tiny_run import Result, Tiny

import t5x_like as t5x
from t5x_like.inference.likelihoods.target_scorer import Pair

MODULE = str(Path(capital_tasks.__file__))
LENGTHS = {"inputs": 24, "targets": 8}
MACROS = {
    "CORPUS": None,
    "MIXTURE_OR_TASK_NAME": "capitals_unmeasured",
    "MIXTURE_OR_TASK_MODULE": MODULE,
    "VOCABULARY": None,
    "TASK_FEATURE_LENGTHS": LENGTHS,
    "TRAIN_STEPS": 2,
    "BATCH_SIZE": 8,
    "EVAL_PERIOD": 0,
}


def prefix_lm(folder: Path, cli: Callable[..., Result]) -> Path:
    sizes = {"vocab_size": 384, "d_model": 32, "d_ff": 64, "num_heads": 2, "d_kv": 16}
    given = {**MACROS, "MODEL_DIR": str(folder / "run"), "CACHE_DIR": str(folder / "cache")}
    given |= {"DTYPE": "float32"}
    given |= {f"prefix_lm.Config.{name}": x for name, x in sizes.items()}
    given |= {"prefix_lm.Config.num_decoder_layers": 1}
    flags = [f"--gin.{name}={value!r}" for name, value in given.items()]
    done = cli("train", "--gin_file=prefix_lm_base", "--gin_file=runs/pretrain.gin", *flags)
    assert done.status == 0, done.err
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "prefix_lm"])
def test_predictions_and_scores_are_those_of_predict(
    kind: str, tiny: Tiny, cli: Callable[..., Result], tmp_path: Path
) -> None:
    run = tiny.trained("run", **MACROS) if kind == "t5" else prefix_lm(tmp_path, cli)
    model = t5x.load(run, modules=[MODULE], rows=8)
    assert model.run is not None
    assert model.run.kinds == {"predictions", "scores", "prediction_scores"}
    draw = np.random.default_rng(0)
    examples = [
        {
            name: np.array([*draw.integers(3, 259, n), 1], np.int32)
            for name, n in (("inputs", 3 + n), ("targets", 1 + n % 7))
        }
        for n in range(11)
    ]
    mine = model.run.answerer(LENGTHS, batch_size=8)
    written = model.predictor("write", max_new_tokens=8, batch_size=8).writer(
        [one["inputs"].tolist() for one in examples]
    )
    for tokens, (theirs,) in zip(mine.predict(examples), written, strict=True):
        ends = np.flatnonzero(tokens <= 1)
        assert tokens[: ends[0] if len(ends) else None].tolist() == theirs.tokens
    scorer = model.predictor("score", batch_size=8).score
    pairs = [Pair(one["inputs"].tolist(), one["targets"].tolist()) for one in examples]
    likelihoods = [likelihood.log_p for likelihood in scorer(pairs)]
    assert mine.score(examples) == pytest.approx(likelihoods, rel=1e-5)
