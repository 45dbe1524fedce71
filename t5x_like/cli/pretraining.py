"""Puts a run's parts together and hands them to the training loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from t5x_like import partitioning
from t5x_like.cli import preflight, run_files
from t5x_like.cli.run import Run
from t5x_like.data import stream
from t5x_like.evaluation.evaluator import evaluate
from t5x_like.training import loop, multihost, step
from t5x_like.training.checkpoints import Checkpoints
from t5x_like.training.logs import RunLog
from t5x_like.training.metrics import TOTALS

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.data.opening import Opened
    from t5x_like.protocols import Batch, Vocabulary


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
    preflight.lengths_given(run.feature_converter, run.data.lengths)
    program = build_program(run)
    same = functools.partial(preflight.same_run, allow_change=allow_change)
    saved = Checkpoints(run_files.checkpoints(model_dir)).metadata()
    opened = _open_data(run, lambda mine: same(mine, saved))
    batches = _Batches.of(run, opened)
    identity = _identity(run, opened)
    same(identity, saved)
    checkpoints = Checkpoints(
        run_files.checkpoints(model_dir),
        keep=options.checkpoints_kept,
        check=functools.partial(same, identity),
    )

    def batches_from(start_step: int) -> Iterator[Batch]:
        if jax.process_index() == 0:
            # Not earlier: what cannot resume the run that is there must leave it as it was.
            run_files.write(model_dir, config=config, vocabulary=opened.vocabulary)
        return batches.train_from(start_step)

    log = RunLog(model_dir, total_steps=options.train_steps)
    if options.eval_period and not batches.validation:
        log.message("No held-out documents: the run goes without evaluation.")
    return loop.train(
        program,
        batches_from,
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
        evaluate=(lambda params: batches.held_out(program, params)) if batches.validation else None,
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


def _open_data(run: Run, same: Callable[[Mapping[str, Any]], None]) -> Opened:
    """The run's data, refused before any text is tokenised where it cannot be used.

    Args:
      run: the run.
      same: compares part of its identity with that of the run it would resume.
    """

    def check(ids: int, vocabulary: Vocabulary | None) -> None:
        pad = None if vocabulary is None else vocabulary.token_ids.pad
        preflight.vocabulary_fits(run.model, ids, pad)
        known = {} if vocabulary is None else {"vocabulary": vocabulary.fingerprint}
        same({**_settings(run), **known})

    return run.data.open(once=_once, check=check)


def _settings(run: Run) -> dict[str, Any]:
    return {
        "seed": run.options.seed,
        "batch_size": run.options.batch_size,
        "data.converter": repr(run.feature_converter),
    }


def _identity(run: Run, opened: Opened) -> dict[str, Any]:
    """What decides which rows each step reads, and what their ids mean."""
    return {
        **_settings(run),
        "vocabulary": opened.vocabulary.fingerprint,
        **opened.identity(),
    }


class ToDevice:
    """From this process's rows to global arrays."""

    def __init__(self, layout: partitioning.Layout, batch_size: int) -> None:
        self._layout, self._batch_size = layout, batch_size
        self.rows = partitioning.process_rows(layout, batch_size)

    def __call__(self, local: Mapping[str, np.ndarray]) -> Batch:
        return partitioning.to_global(
            self._layout, local, rows=self.rows, batch_size=self._batch_size
        )


@dataclasses.dataclass(frozen=True)
class _Batches:
    """Global batches of a run, to train on and to evaluate with."""

    train: Sequence[stream.Component]
    validation: Sequence[stream.Component]
    to_device: ToDevice
    run: Run

    @classmethod
    def of(cls, run: Run, opened: Opened) -> _Batches:
        # Samples may have to be planned: the first process keeps the plans for the others.
        train, validation = multihost.first_process_then_others(
            "plans of samples", functools.partial(_components, run, opened)
        )
        return cls(train, validation, ToDevice(run.layout, run.options.batch_size), run)

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "converter": self.run.feature_converter,
            "batch_size": self.run.options.batch_size,
            "seed": self.run.options.seed,
            "rows": self.to_device.rows,
        }

    def train_from(self, start_step: int) -> Iterator[Batch]:
        rows = stream.train_stream(
            self.train,
            start_step=start_step,
            num_workers=self.run.options.data_workers,
            **self._common,
        )
        return map(self.to_device, rows)

    def held_out(self, program: step.Program, params: Any) -> dict[str, float]:
        """{"<task>/<metric>": mean} on the first batches of each validation split."""
        found = {}
        for component in self.validation:
            rows = stream.eval_stream(
                component, max_batches=self.run.options.eval_batches, **self._common
            )
            metrics = evaluate(program.evaluate, params, map(self.to_device, rows))
            for name in metrics.keys() - set(TOTALS):
                found[f"{component.name}/{name}"] = metrics[name]
        return dict(sorted(found.items()))


def _components(
    run: Run, opened: Opened
) -> tuple[Sequence[stream.Component], Sequence[stream.Component]]:
    """What is trained on, and what is held out, where it is to be evaluated."""
    pack = getattr(run.feature_converter, "pack", False)
    rows = run.options.batch_size
    train = opened.components("train", pack=pack, rows=rows)
    preflight.examples_read(run.feature_converter, train)
    if not run.options.eval_period:
        return train, ()
    try:
        return train, opened.components("validation", pack=pack, rows=rows, alone=True)
    except ValueError as error:
        # What is wrong with the task or its lengths was found with the training split.
        raise ValueError(
            f"the validation split cannot be evaluated in batches of {rows} rows: {error}. "
            "Or hold more text out, or train without evaluation: EVAL_PERIOD=0"
        ) from error


def _once(name: str, path: Path, exists: Callable[[], bool], make: Callable[[], None]) -> None:
    """Process 0 makes it in a directory that all share; the others wait at a barrier."""
    if multihost.everywhere(exists()).all():
        return
    multihost.check_shared(path.parent)
    first = jax.process_index() == 0
    multihost.first_process_then_others(name, make if first else lambda: None)
