"""Puts a run's parts together and hands them to the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from t5x_like import partitioning
from t5x_like.cli import preflight
from t5x_like.cli.run import Run
from t5x_like.data import stream
from t5x_like.evaluation.evaluator import evaluate
from t5x_like.training import loop, multihost, step
from t5x_like.training.checkpoints import Checkpoints
from t5x_like.training.logs import RunLog
from t5x_like.training.metrics import TOTALS

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.protocols import Batch


def pretrain(run: Run, config: str, *, allow_change: frozenset[str] = frozenset()) -> loop.Outcome:
    """Starts, resumes or extends `run`.

    Args:
      run: the parts.
      config: the resolved configuration as gin text; saved in the run and in every checkpoint.
      allow_change: what a resumed run may change (`preflight.same_run`).

    Returns:
      How it ended and at which step.

    Raises:
      ValueError, OSError: something cannot work; nothing saved before has been touched.
    """
    options = run.options
    model_dir = preflight.writable_directory(run.model_dir)
    partitioning.check_batch(run.layout, options.batch_size, microbatches=options.microbatches)
    opened = run.data.open(once=_once)
    preflight.vocabulary_fits(run.model, opened.vocabulary)
    pack = getattr(run.feature_converter, "pack", False)
    train, validation = (opened.components(s, pack=pack) for s in ("train", "validation"))
    program = build_program(run)
    identity = {
        "seed": options.seed,
        "batch_size": options.batch_size,
        "vocabulary": opened.vocabulary.fingerprint,
        "data": opened.identity(),
    }
    checkpoints = Checkpoints(
        model_dir / "checkpoints",
        keep=options.checkpoints_kept,
        check=lambda saved: preflight.same_run(identity, saved, allow_change=allow_change),
    )
    if (saved := checkpoints.metadata()) is not None:
        preflight.same_run(identity, saved, allow_change=allow_change)
    log = RunLog(model_dir, total_steps=options.train_steps)
    if jax.process_index() == 0:
        (model_dir / "config.gin").write_text(config)
        opened.vocabulary.save(Path(model_dir))
    to_device = ToDevice(run.layout, options.batch_size)
    common = {
        "lengths": opened.lengths,
        "converter": run.feature_converter,
        "batch_size": options.batch_size,
        "seed": options.seed,
        "rows": to_device.rows,
    }

    def batches(start_step: int) -> Iterator[Batch]:
        rows = stream.train_stream(
            train, start_step=start_step, num_workers=options.data_workers, **common
        )
        return map(to_device, rows)

    def held_out(params: Any) -> dict[str, float]:
        return {
            f"{component.name}/{name}": value
            for component in validation
            for name, value in evaluate(
                program.evaluate,
                params,
                map(
                    to_device,
                    stream.eval_stream(component, max_batches=options.eval_batches, **common),
                ),
            ).items()
            if name not in TOTALS
        }

    if options.eval_period and not validation:
        log.message("No validation split: the run goes without evaluation.")
    return loop.train(
        program,
        batches,
        key=jax.random.key(options.seed),
        periods=loop.Periods(
            total=options.train_steps,
            evaluate=options.eval_period,
            checkpoint=options.checkpoint_period,
            log=options.log_period,
        ),
        checkpoints=checkpoints,
        metadata={**identity, "config": config},
        log=log,
        evaluate=held_out if validation else None,
    )


def build_program(run: Run) -> step.Program:
    """The compiled parts of a run."""
    options = run.options
    return step.build(
        run.model,
        run.optimizer,
        run.layout,
        batch_size=options.batch_size,
        microbatches=options.microbatches,
        clip=options.gradient_clip,
        ema_decay=options.ema_decay,
    )


class ToDevice:
    """From this process's rows to global arrays."""

    def __init__(self, layout: partitioning.Layout, batch_size: int) -> None:
        self._layout, self._batch_size = layout, batch_size
        self.rows = partitioning.process_rows(layout, batch_size)

    def __call__(self, local: Mapping[str, np.ndarray]) -> Batch:
        return partitioning.to_global(
            self._layout, local, rows=self.rows, batch_size=self._batch_size
        )


def _once(name: str, path: Path, exists: Callable[[], bool], make: Callable[[], None]) -> None:
    """Process 0 makes it in a directory that all share; the others wait at a barrier."""
    if multihost.everywhere(exists()).all():
        return
    multihost.check_shared(path.parent)
    first = jax.process_index() == 0
    multihost.first_process_then_others(name, make if first else lambda: None)
