"""Puts a run's parts together and hands them to the training loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from etils import epath

from t5x_like import partitioning
from t5x_like.cli import preflight
from t5x_like.cli.run import Run
from t5x_like.data import stream
from t5x_like.evaluation import evaluator
from t5x_like.training import checkpoints, logs, loop, multihost, step

if TYPE_CHECKING:
    from t5x_like.data.sources import Opened


def pretrain(run: Run, config: str, allow_change: frozenset[str] = frozenset()) -> loop.Outcome:
    """Starts, resumes or extends `run`.

    Args:
      run: the parts.
      config: the resolved configuration as gin text; saved in the run and in every checkpoint.
      allow_change: names of settings in which a resumed run may differ from its checkpoint.

    Returns:
      How it ended and at which step.

    Raises:
      ValueError, OSError: something cannot work; nothing has been changed.
    """
    options = run.options
    model_dir = preflight.writable_directory(run.model_dir)
    partitioning.check_batch(run.layout, options.batch_size, microbatches=options.microbatches)
    opened = run.data.open(once=multihost.first_process_then_others)
    preflight.vocabulary_fits(run.model, opened.vocabulary)
    program = step.build(
        run.model,
        run.optimizer,
        run.layout,
        batch_size=options.batch_size,
        microbatches=options.microbatches,
        clip=options.gradient_clip,
        ema_decay=options.ema_decay,
    )
    if jax.process_index() == 0:
        (model_dir / "config.gin").write_text(config)
        opened.vocabulary.save(Path(model_dir))
    return loop.train(program)
