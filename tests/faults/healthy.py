"""Mini recipes that are evaluated often are not ended; with a rate far too high, all are."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from cases import Cases

from t5x_like.config import gin_config, gin_files
from t5x_like.core.partitioning import make_layout
from t5x_like.runs.pretraining import pretrain
from t5x_like.runs.run import Run
from t5x_like.training.health.bad_steps import BadStepError
from t5x_like.training.logs.metrics_file import read_metrics

SEEDS = range(1, 6)
FEW = {"BATCH_SIZE": 16, "EVAL_PERIOD": 10, "EVAL_BATCHES": 2, "TRAIN_STEPS": 120}
"""Few rows and held-out batches: losses are noisy."""
RAMP, PHASE = 20, 80
"""Steps that nothing is judged in, and of the first of two phases."""
FOLLOWS_BERT = {"distilbert-mini": "TEACHER_DIR", "legal_bert-mini": "INIT_DIR"}
SETTING = re.compile(r"^(\S+) = ([\d.e+-]+)$", re.MULTILINE)
RATES = ("LEARNING_RATE", ".learning_rate", "schedules.rsqrt.scale")
"""Ends of the settings that say how high a learning rate is, of all phases."""
RAMPS = ("WARMUP_STEPS", "linear.warmup_steps")
FIRST_PHASES = ("SHORT_STEPS", "short/run.Phase.steps")
TOO_HIGH = 1e9


def run(cases: Cases) -> None:
    minis = [name for name in gin_files.published_recipes() if name.endswith("-mini")]
    # Two begin with what BERT's has learned.
    for name in sorted(minis, key=lambda name: (name != "bert-mini", name)):
        for seed in SEEDS:
            case = functools.partial(_healthy, cases.folder, name, seed)
            cases.run(f"{name}, seed {seed}", case)
        cases.run(f"{name}, a rate too high", functools.partial(_too_high, cases.folder, name))


def _healthy(folder: Path, name: str, seed: int) -> str:
    run = folder / f"{name}-{seed}"
    _train(folder, name, {"MODEL_DIR": run, "SEED": seed}, times=1.0)
    lines = read_metrics(run / "metrics.jsonl")
    evaluated = [one["step"] for one in lines if any(name.startswith("eval/") for name in one)]
    assert evaluated[-1] == FEW["TRAIN_STEPS"], f"it stopped after {evaluated[-1]} steps"
    return f"not ended in {evaluated[-1]} steps, {len(evaluated)} times evaluated"


def _too_high(folder: Path, name: str) -> str:
    try:
        _train(folder, name, {"MODEL_DIR": folder / f"{name}-high"}, times=TOO_HIGH)
    except BadStepError:
        return f"ended at {TOO_HIGH:g} times the learning rate"
    raise AssertionError(f"not ended at {TOO_HIGH:g} times the learning rate")


def _train(folder: Path, name: str, macros: Mapping[str, Any], *, times: float) -> None:
    """Trains a mini recipe on Python's documentation with `times` its learning rate.

    Raises:
      BadStepError: the run was ended.
    """
    macros = {**FEW, **macros, "CACHE_DIR": folder / "cache"}
    if name in FOLLOWS_BERT:
        macros[FOLLOWS_BERT[name]] = folder / f"bert-mini-{SEEDS[0]}"
    bindings = [
        f"{macro}={str(value)!r}" if isinstance(value, Path) else f"{macro}={value!r}"
        for macro, value in macros.items()
    ]
    recipe = str(gin_files.find_recipe(name))
    gin_config.load([recipe], bindings)
    for setting, value in SETTING.findall(gin_config.config_text()):
        if setting.endswith(RATES):
            bindings.append(f"{setting}={float(value) * times}")
        elif setting.endswith(RAMPS):
            bindings.append(f"{setting}={RAMP}")
        elif setting.endswith(FIRST_PHASES):
            bindings.append(f"{setting}={PHASE}")
    gin_config.load([recipe], bindings)
    layout = make_layout({"data": 1}, devices=jax.devices()[:1])
    pretrain(dataclasses.replace(gin_config.build(Run), layout=layout), gin_config.config_text())
