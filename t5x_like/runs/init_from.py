"""Starts a run from the parameters of another run, or of an imported model, as gin describes it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath
from flax import nnx

from t5x_like.core.buckets import storage
from t5x_like.layers.attention.multi_head import head_width
from t5x_like.runs import run_directory
from t5x_like.training.checkpointing import initial_parameters, initial_plan
from t5x_like.training.checkpointing.bases import Base
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.optimization.parameter_paths import by_path
from t5x_like.vocabularies import carrying

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.training.logs.run_log import RunLog
    from t5x_like.training.step import Program


_CHECKPOINT = re.compile(r"(.+?)/+checkpoints/(\d+)/*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitFrom:
    """Where the first parameters of a run come from.

    The run takes saved parameters of the same path and shape, or their averages if these were
    saved. If this run's vocabulary is larger or its rows are longer, the tables keep their old
    rows; the old ids must keep their meanings. The row of a new id is the mean of the rows of the
    pieces that the old vocabulary writes it with; other new rows are initialised. Parameters that
    the checkpoint lacks are initialised; any other difference in shape is an error.

    A larger model `grow`s from a smaller one of the same kind (ModernBERT; Rae et al., 2021,
    appendix G3.3). In each dimension that is longer here, the saved values are in the middle and
    are repeated around them, heads as wholes; a deeper stack takes the layer of the same relative
    depth. Tables get rows for new ids and positions as above.

    Attributes:
      directory: the directory of a run, or one that `t5x_like import` wrote, or that of a
        checkpoint in it: `runs/one/checkpoints/2000`.
      step: the step of the checkpoint; the newest by default.
      rename: {regular expression: replacement} on the saved paths, applied in order. Paths are
        written as `t5x_like inspect` shows them: `encoder.embedding.tokens.table`. With several
        replacements, a parameter goes to several places.
      skip: regular expressions; a parameter whose path contains a match is initialised.
        `PATTERN@10-11` initialises these layers of a stack, counted from 0 at the input.
      layers: the layers to take from each saved stack, counted from 0: one for each layer of this
        run.
      model: whether the run's model has the sizes and the functions of the saved one, too.
      grow: whether larger parameters are filled with the saved ones, and deeper stacks repeat
        layers.
      repeat_positions: (first, count), for a model of longer rows: so many rows of a table of
        positions, from the first on, are repeated after them (Longformer, Beltagy et al., 2020,
        section 5: (2, 512) for a RoBERTa). A third number says how many of the rows before them
        stay, if not all: (2, 1024, 0) for a LED from a BART. None: rows that are added are
        initialised.
      added: {saved path: saved path of what is added to it}, for a parameter that is stored in two
        parts (`deberta_v3.DebertaV3`); paths as they were saved, before `rename`.
      exchange: whether the run's vocabulary takes the place of the saved one, whatever its ids. The
        row of each id is that of the same piece, or the mean of the saved pieces of its text; it is
        initialised where the saved vocabulary knows neither.
    """

    directory: str | None
    step: int | None = None
    rename: Mapping[str, str | Sequence[str]] = dataclasses.field(default_factory=dict)
    skip: Sequence[str] = ()
    layers: Sequence[int] | None = None
    model: bool = False
    grow: bool = False
    repeat_positions: tuple[int, ...] | None = None
    added: Mapping[str, str] = dataclasses.field(default_factory=dict)
    exchange: bool = False

    def __post_init__(self) -> None:
        of_checkpoint = _CHECKPOINT.fullmatch(self.directory or "")
        if of_checkpoint and self.step in (None, int(of_checkpoint[2])):
            object.__setattr__(self, "directory", of_checkpoint[1])
            object.__setattr__(self, "step", int(of_checkpoint[2]))
        if isinstance(self.skip, str):
            raise ValueError(f"InitFrom.skip is a list of patterns, not {self.skip!r}")
        if self.grow and self.model:
            raise ValueError(
                "InitFrom.grow is for a model of larger sizes: leave InitFrom.model out"
            )
        if self.repeat_positions is not None and not _is_stretch(self.repeat_positions):
            raise ValueError(
                "InitFrom.repeat_positions is (first, count), whole numbers of at least 0 and 1, "
                f"or these and a number of at most the first, got {self.repeat_positions!r}"
            )
        renamed = [
            (pattern, each)
            for pattern, of in self.rename.items()
            for each in ([of] if isinstance(of, str) else of)
        ]
        for pattern, replacement in (*renamed, *((skipped, "") for skipped in self.skip)):
            try:
                re.sub(pattern, replacement, "")
            except re.error as error:
                raise ValueError(
                    f"InitFrom: not a regular expression, or no replacement for one: {pattern!r}, "
                    f"{replacement!r}: {error}"
                ) from None

    def check(self, program: Program) -> None:
        """Compares shapes, without reading weights, so that errors come before any work.

        Raises:
          ValueError: the directory holds no model.
          CheckpointError: it has no such step, or its parameters do not fit those of `program`.
        """
        self._plan(_model(program))

    def check_vocabulary(self, vocabulary: Vocabulary, program: Program) -> None:
        """Compares the ids of a run with those that the parameters were trained with.

        The run may have new ids. If it takes a table of the vocabulary, the old ids must keep their
        meanings, unless the vocabulary is exchanged.

        Args:
          vocabulary: the vocabulary of the run.
          program: the program of the run.

        Raises:
          ValueError: ids mean other tokens than in the vocabulary beside the checkpoint, or there
            is none to be exchanged.
        """
        saved = self.vocabulary()
        if self.exchange:
            if saved is None:
                raise ValueError(
                    f"{self.directory} has no vocabulary that could be exchanged: import it again "
                    "with --vocabulary"
                )
            return
        plan, _ = self._plan(_model(program))
        tables = [path for path in plan.sources if plan.wanted[path].vocabulary is not None]
        if saved is None or not tables or saved.fingerprint == vocabulary.fingerprint:
            return
        ids = range(min(saved.vocab_size, vocabulary.vocab_size))
        differ = [i for i in ids if saved.piece(i) != vocabulary.piece(i)]
        if differ:
            i = differ[0]
            raise ValueError(
                f"{len(differ):,} of {len(ids):,} ids have other meanings than in "
                f"{self.directory}: {i} is {vocabulary.piece(i)!r} here and {saved.piece(i)!r} "
                "there. Leave VOCABULARY unset to use the one saved there, set it to one that "
                "extends that, carry rows over with EXCHANGE_VOCABULARY = True, or leave out its "
                f"tables with InitFrom.skip: {', '.join(tables)}"
            )

    def apply(
        self,
        params: Any,
        *,
        program: Program,
        log: RunLog,
        vocabulary: Vocabulary | None = None,
    ) -> Any:
        """The initialised `params` with saved values where they are taken, in the same layout.

        All processes call it. Meanwhile the saved parameters are in memory too.

        Args:
          params: the initialised parameters.
          program: the program of the run.
          log: says what was taken.
          vocabulary: the vocabulary of the run; None if nothing is known of its ids.

        Raises:
          ValueError, CheckpointError: the same errors as in `check`, or the checkpoint is damaged.
        """
        plan, saved = self._plan(_model(program))
        abstract = initial_parameters.laid_out(plan, saved, program.abstract_state.params)
        restored = self._checkpoints().restore_params(abstract, step=self.step)
        log.message(f"Starting from step {restored.step} of {self.directory}.")
        for line in plan.report():
            log.message(f"  {line}")
        means = self._new_ids(vocabulary)
        if means and vocabulary is not None:
            log.message(f"  {self._said_of(means, vocabulary)}")
        saved = initial_parameters.summed(restored.state, self.added)
        return initial_parameters.take(plan, params, saved, means=means)

    def bases(
        self, paths: Collection[str], *, model: Any, vocabulary: Vocabulary | None
    ) -> list[Base]:
        """Where those of some parameters are that the run has as they were saved.

        Args:
          paths: paths of parameters of the run.
          model: the abstract model of the run.
          vocabulary: the vocabulary of the run; None if nothing is known of its ids.

        Raises:
          ValueError, CheckpointError: as in `check`, or the checkpoint has no checksums.
        """
        plan, saved = self._plan(model)
        ours, leaves = by_path(nnx.to_pure_dict(nnx.state(model, nnx.Param))), by_path(saved)
        same = {
            path: source.path
            for path, source in plan.sources.items()
            if path in paths
            and source.whole
            and source.path not in self.added
            and (source.shape, leaves[source.path].dtype) == (ours[path].shape, ours[path].dtype)
        }
        if self._new_ids(vocabulary):
            same = {path: x for path, x in same.items() if plan.wanted[path].vocabulary is None}
        return self._checkpoints().bases_of(same, step=self.step)

    def sources(self, model: nnx.Module) -> dict[str, str]:
        """{path of a parameter of an abstract model: path of the saved one}; raises as `check`."""
        return {path: source.path for path, source in self._plan(model)[0].sources.items()}

    def _new_ids(self, vocabulary: Vocabulary | None) -> dict[int, list[int]]:
        """{new id: the saved ids that stand for it}."""
        saved = self.vocabulary()
        if vocabulary is None or saved is None:
            return {}
        first = 0 if self.exchange else saved.vocab_size
        return carrying.carried(vocabulary, saved, range(first, vocabulary.vocab_size))

    def _said_of(self, means: Mapping[int, Sequence[int]], vocabulary: Vocabulary) -> str:
        """A line about new ids."""
        if not self.exchange:
            return f"{len(means):,} new ids start as the mean of their pieces"
        one = sum(len(ids) == 1 for ids in means.values())
        return (
            f"of {vocabulary.vocab_size:,} ids {one:,} have the row of one that was there, "
            f"{len(means) - one:,} the mean of several, and {vocabulary.vocab_size - len(means):,} "
            "are fresh"
        )

    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary saved beside the checkpoint; None if there is none."""
        path = self._path()
        if not path.exists():
            run_directory.read_config(path)  # raises: it holds no run
        return run_directory.read_vocabulary(path) if run_directory.has_vocabulary(path) else None

    def _plan(self, model: nnx.Module) -> tuple[initial_plan.Plan, Any]:
        saved = self._checkpoints().abstract_params(step=self.step)
        selection = initial_plan.Selection(
            rename=self.rename,
            skip=self.skip,
            layers=self.layers,
            head_width=head_width(model) if self.grow else None,
            exchanged=self.exchange,
            repeated=self.repeat_positions,
        )
        shapes = {path: leaf.shape for path, leaf in by_path(saved).items()}
        return initial_plan.make_plan(
            initial_parameters.wanted_parameters(model), shapes, selection
        ), saved

    def _checkpoints(self) -> Checkpoints:
        path = self._path()
        run_directory.read_config(path)  # raises if it is not the directory of a model
        return Checkpoints(run_directory.checkpoints(path))

    def _path(self) -> epath.Path:
        if not self.directory:
            raise ValueError(
                "InitFrom names no directory: add --gin.init_from.InitFrom.directory=\"'runs/one'\""
            )
        return storage.path(self.directory)


def _is_stretch(rows: Sequence[int]) -> bool:
    whole = all(isinstance(x, int) and not isinstance(x, bool) and x >= 0 for x in rows)
    return whole and len(rows) in (2, 3) and rows[1] >= 1 and max(rows[2:], default=0) <= rows[0]


def _model(program: Program) -> nnx.Module:
    return nnx.merge(program.graphdef, program.abstract_state.params)
