"""Checkpoints of a run: saved in the background, checked, restored onto any mesh.

A step is a directory `<step>/` with the Orbax items `params`, `training` (step, optimizer, carry),
`ema` and `completer` where there is one and `metadata` (JSON), and our checksums. Inference reads
`params` alone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.core.protocols.completers import Kept
from t5x_like.training.checkpointing import (
    checksums,
    damage,
    documents,
    orbax_buckets,
    ranking,
    reading,
    room,
)
from t5x_like.training.checkpointing.bases import (
    Base,
    bases_of,
    of_document,
    read_completed,
    without,
)
from t5x_like.training.checkpointing.checkpoint_items import (
    COMPLETER,
    CheckpointError,
    Metadata,
    RestoredState,
    abstract_arrays,
    check_leaves,
    check_number,
    describe,
    items_of,
    save_arguments,
)
from t5x_like.training.checkpointing.manager import Manager
from t5x_like.training.checkpointing.ranking import BestMetric, WantedStep, with_phase
from t5x_like.training.hosts import multihost
from t5x_like.training.state import TrainState

logger = logging.getLogger(__name__)

_Read = Callable[[epath.Path, Mapping[str, Any]], dict[str, Any] | None]


class Checkpoints:
    """The checkpoints of one run directory, which does not change before the first call."""

    def __init__(
        self,
        directory: epath.PathLike,
        *,
        keep: int = 3,
        best_metric: str = "loss",
        check: Callable[[Metadata], None] | None = None,
        bases: Sequence[Base] = (),
    ) -> None:
        """Keeps the newest `keep` steps and the best one, as `BestMetric` ranks them.

        Args:
          directory: a local path or a bucket, shared by all processes.
          keep: the number of newest steps to keep, at least 1.
          best_metric: the metric that decides, as `BestMetric.parse` reads it.
          check: called with the saved metadata before any weights are read; raises to refuse.
          bases: where parameters are that are not saved.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}.")
        path = storage.path(directory)
        if storage.is_url(directory):
            orbax_buckets.support(str(directory))
            self.directory = path
        else:
            self.directory = path.expanduser().resolve()
        self.best = BestMetric.parse(best_metric)
        self._keep, self._check, self._bases = keep, check, tuple(bases)
        self._manager: Manager | None = None
        self._background = concurrent.futures.ThreadPoolExecutor(1, "checksums")
        self._unfinished: concurrent.futures.Future[None] | None = None

    def steps(self) -> list[int]:
        """Steps that were saved completely, ascending."""
        names = ocp.path.step.standard_name_format()
        try:
            return sorted(saved.step for saved in names.find_all(self.directory))
        except FileNotFoundError:  # a bucket's folder comes and goes with what is in it
            return []

    def metadata(self, step: int | None = None) -> Metadata | None:
        """The metadata of a step; reads no weights.

        Args:
          step: the step; the newest one with readable metadata by default.

        Returns:
          None if nothing was saved.

        Raises:
          CheckpointError: the metadata is not readable.
        """
        steps = self.steps()[::-1] if step is None else [step]
        return documents.newest(self.directory, steps)[1]["metadata"] if steps else None

    def saved(self) -> dict[str, Any]:
        """The saved `steps`, and which of them is the `best`; None where that is not known."""
        steps = self.steps()
        try:
            return {"steps": steps, "best": self.best.step_in(self.directory, steps)}
        except (CheckpointError, OSError, ValueError):  # no evaluation, or damaged metrics
            return {"steps": steps, "best": None}

    def prepare(self) -> None:
        """Makes the directory and opens it for saving.

        Raises:
          CheckpointError: the directory cannot be written.
          ProcessError: the processes do not share it.
        """
        if self._manager is not None:
            return
        try:
            whole_files.check_writable(self.directory)
        except OSError as error:
            raise CheckpointError(
                f"Cannot write checkpoints to {self.directory}: {whole_files.refusal(error)}."
            ) from error
        multihost.check_shared(self.directory)
        damage.set_metrics_aside(self.directory, self.steps())
        self._manager = Manager(self.directory, keep=self._keep, rank=self.best.rank)

    def save(
        self,
        step: int,
        state: TrainState,
        *,
        metadata: Metadata,
        metrics: Mapping[str, float] | None = None,
        phase: int = 0,
        kept: Kept | None = None,
    ) -> None:
        """Copies the state and returns; files and checksums are written in the background.

        Waits for the save before it, and raises its error if it failed.

        Args:
          step: the number of the step, above every saved step.
          state: the state, which may be donated as soon as this returns.
          metadata: JSON values.
          metrics: the metrics of this step's evaluation, if there was one.
          phase: the phase of the step, a number that rises from phase to phase.
          kept: what the run's completer keeps.

        Raises:
          CheckpointError: the disk is full, or Orbax declined to save.
        """
        ranked = with_phase(metrics or {}, phase)
        self._save(step, items_of(state, kept or {}), metadata=metadata, metrics=ranked)

    def rank(self, step: int, metrics: Mapping[str, float], *, phase: int) -> None:
        """Gives a step that was saved without an evaluation its metrics, as `save` has them.

        All processes call it, after `prepare`.
        """
        ranking.write_metrics(self.directory / str(step), with_phase(metrics, phase))
        assert self._manager is not None  # for the type checker
        self._manager.reload()
        self._manager.remove_surplus()

    def save_params(self, step: int, params: Any, *, metadata: Metadata) -> None:
        """Saves parameters alone, a plain dict, for inference; a run cannot resume from them."""
        self._save(step, {"params": params}, metadata=metadata, metrics={})

    def _save(
        self,
        step: int,
        items: Mapping[str, Any],
        *,
        metadata: Metadata,
        metrics: Mapping[str, float],
    ) -> None:
        self.prepare()
        self.wait()
        assert self._manager is not None  # for the type checker: prepare() made it
        document = {"step": step, "metadata": dict(metadata), "leaves": describe(items)}
        if self._bases:
            document["bases"] = [dataclasses.asdict(base) for base in self._bases]
            items = {name: without(name, tree, self._bases) for name, tree in items.items()}
        room.check(self.directory, items, step=step)
        with room.explained(self.directory):
            saved = self._manager.save(
                step,
                args=ocp.args.Composite(
                    **{name: save_arguments(tree) for name, tree in items.items()},
                    metadata=ocp.args.JsonSave(document),
                ),
                metrics=dict(metrics),
            )
        if not saved:
            raise CheckpointError(
                f"Orbax declined to save step {step} in {self.directory}, which holds steps "
                f"{self.steps()}. Does another run write there too?"
            )
        self._unfinished = self._background.submit(self._finish, self._manager, step)

    def wait(self) -> None:
        """Waits until all saved steps are on disk with checksums; raises the error of a failure."""
        if self._unfinished is not None:
            unfinished, self._unfinished = self._unfinished, None
            with room.explained(self.directory):
                unfinished.result()

    def close(self) -> None:
        """Waits, and closes what `prepare` opened."""
        try:
            self.wait()
        finally:
            self._background.shutdown()
            manager, self._manager = self._manager, None
            if manager is not None and not manager.is_stuck:
                with room.explained(self.directory):
                    manager.close()

    def restore_latest(self, abstract_state: Callable[[int], TrainState]) -> RestoredState | None:
        """The newest undamaged step n, laid out as `abstract_state(n)`; None if nothing was saved.

        Names damaged steps in the log, and moves them to `damaged/` once a good one is found. After
        `prepare`, also removes what a run that was killed would have removed after its last save.

        Raises:
          CheckpointError: the checkpoint is another model's, all steps are damaged, or one cannot
            be read for another reason, which may pass.
        """
        bad: list[int] = []
        steps = self.steps()
        for step in reversed(steps):
            abstract = abstract_state(step)
            kept = self._abstract_kept(step, abstract.step.sharding)
            items = self._restore_step(step, items_of(abstract, kept))
            if items is None:
                bad.append(step)
                continue
            self._set_aside(bad)
            damage.make_checkable(self.directory / str(step))
            if self._manager is not None:
                self._manager.remove_surplus()
            tree, metadata = items
            state = dataclasses.replace(
                abstract, params=tree["params"], ema=tree.get("ema"), **tree["training"]
            )
            return RestoredState(state, metadata, step, tree.get(COMPLETER, {}))
        if steps:
            raise CheckpointError(
                f"All checkpoints in {self.directory} are damaged: steps {bad}. Restore the files "
                "from a copy, or start again in another directory."
            )
        return None

    def _abstract_kept(self, step: int, sharding: Any) -> Kept:
        """A completer's state by shape and dtype; {} for a damaged step, which others report."""
        try:
            leaves = documents.document(self.directory, step)["leaves"]
        except CheckpointError:
            return {}
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            abstract_arrays(leaves, item=COMPLETER),
        )

    def restore_kept(self, step: int, sharding: Any) -> Kept:
        """The state of a completer after a step, whole on each device of `sharding`.

        Raises:
          CheckpointError: it is damaged.
        """
        if not (kept := self._abstract_kept(step, sharding)):
            return {}
        items = self._restore_step(step, {COMPLETER: kept})
        if items is None:
            raise CheckpointError(f"Damaged checkpoint in {self.directory}: step {step}.")
        return items[0][COMPLETER]

    def restore_params(self, abstract_params: Any, *, step: WantedStep = None) -> RestoredState:
        """The parameters to infer with (averaged ones if saved) of a step; None for the newest.

        Raises:
          CheckpointError: there is no such step, it is damaged, or it is another model's.
        """
        return self._first_good(abstract_params, reading.items, step=step)

    def open_params(self, abstract_params: Any, *, step: WantedStep = None) -> RestoredState:
        """Like `restore_params`; each parameter is a `LazyArray`, read again when it is needed."""
        return self._first_good(abstract_params, reading.lazy_items, step=step)

    def _first_good(self, abstract_params: Any, read: _Read, *, step: WantedStep) -> RestoredState:
        candidates = self._candidates(step)
        for candidate in candidates:
            name = self._item_to_infer_with(candidate)
            items = self._restore_step(candidate, {name: abstract_params}, read=read)
            if items is not None:
                return RestoredState(items[0][name], items[1], candidate)
        raise CheckpointError(f"Damaged checkpoints in {self.directory}: steps {candidates}.")

    def abstract_params(self, *, step: WantedStep = None) -> Any:
        """Shapes and dtypes of the parameters of `restore_params`, a plain dict; reads no weights.

        Raises:
          CheckpointError: there is no such step, or its metadata is damaged.
        """
        newest, document = documents.newest(self.directory, self._candidates(step))
        return abstract_arrays(document["leaves"], item=self._item_to_infer_with(newest))

    def bases(self, *, step: int | None = None) -> list[Base] | None:
        """Where a step, or the newest, left parameters; None if nothing was saved."""
        steps = self.steps()[::-1] if step is None else [step]
        return of_document(documents.newest(self.directory, steps)[1]) if steps else None

    def bases_of(self, parameters: Mapping[str, str], *, step: WantedStep = None) -> list[Base]:
        """Where parameters of a step are; what is given and raised is as in `bases.bases_of`."""
        newest, document = documents.newest(self.directory, self._candidates(step))
        return bases_of(
            self.directory / str(newest), self._item_to_infer_with(newest), document, parameters
        )

    def _candidates(self, step: WantedStep) -> list[int]:
        """The wanted step, or all steps if none is named, the newest first."""
        steps = self.steps()
        if not steps or (isinstance(step, int) and step not in steps):
            wanted = f"step {step}" if isinstance(step, int) else "checkpoint"
            raise CheckpointError(f"No {wanted} in {self.directory}. Steps there: {steps}.")
        if step != "best":
            return steps[::-1] if step is None else [step]
        return [self.best.step_in(self.directory, steps)]

    def _item_to_infer_with(self, step: int) -> str:
        return "ema" if (self.directory / str(step) / "ema").exists() else "params"

    def _restore_step(
        self, step: int, wanted: Mapping[str, Any], *, read: _Read = reading.items
    ) -> tuple[dict[str, Any], Metadata] | None:
        """The wanted items and the metadata of a step; None, with a message, if it is damaged."""
        directory = self.directory / str(step)
        if not damage.is_whole(directory, "metadata"):
            return None
        document = None
        with _skipping():
            document = documents.document(self.directory, step)
        read_by = multihost.everywhere(f"metadata of step {step} read", document is not None)
        if document is None or not read_by.all():
            return None
        if self._check is not None:
            self._check(document["metadata"])
        check_leaves(str(directory), document["leaves"], leaves=describe(wanted))
        if not all(damage.is_whole(directory, f"{name}/") for name in wanted):
            return None
        items = read_completed(read, directory, wanted, document)
        if items is None:
            return None
        with _skipping():
            if "training" in items:
                check_number(directory, int(items["training"]["step"]))
            return items, document["metadata"]
        return None

    def _set_aside(self, steps: list[int]) -> None:
        damage.set_aside(self.directory, steps)
        if self._manager is not None and steps:
            # The manager still counts them, and declines to save a step that is not after them.
            self._manager.reload()

    def _finish(self, manager: Manager, step: int) -> None:
        """Waits in the background for the commit, and writes this process's checksums."""
        manager.finish(step)
        checksums.write(
            self.directory / str(step), process=jax.process_index(), processes=jax.process_count()
        )


@contextlib.contextmanager
def _skipping() -> Iterator[None]:
    """Logs why a step is left out, in place of a CheckpointError of the block."""
    try:
        yield
    except CheckpointError as error:
        logger.warning("Skipping %s", error)
