"""The frozen teacher of a distillation: a stored model whose outputs go into batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from etils import epath
from flax import nnx

from t5x_like.core.partitioning import Layout, map_parameters
from t5x_like.models import bert, distilbert
from t5x_like.runs import run_directory, saved_model
from t5x_like.training.checkpointing.checkpoints import Checkpoints

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch, Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher:
    """A BERT of a run, or an imported one, from which a DistilBERT learns.

    Its logits are float32 over the whole vocabulary for each token: 4 L V bytes a row of L tokens,
    62 MB for 512 tokens and 30,522 ids, of the whole batch at once however many microbatches
    follow. A device that has 16 rows of the batch thus needs 1 GB for them, and as much again while
    the next batch is made.

    Attributes:
      directory: of a run, or of what `t5x_like import` wrote.
      step: of its checkpoints; the newest by default.
      dtype: of its parameters and its computation.
      layout: over the devices of the run; None for that of the run.
    """

    directory: str | None
    step: int | None = None
    dtype: str = "bfloat16"
    layout: Layout | None = None

    def check(self, vocabulary: Vocabulary) -> None:
        """Refuses a teacher that cannot teach, before anything is read but its configuration.

        Args:
          vocabulary: the student's.

        Raises:
          ValueError: there is no BERT in the directory, or its vocabulary is another, or unknown.
        """
        path = self._path()
        self._abstract_model()
        if not run_directory.has_vocabulary(path):
            raise ValueError(
                f"the teacher in {path} has no vocabulary with it, so it may read ids otherwise "
                "than its student: import it again with --vocabulary"
            )
        theirs = run_directory.read_vocabulary(path)
        if theirs.fingerprint != vocabulary.fingerprint:
            raise ValueError(
                f"the teacher in {path} reads another vocabulary ({theirs.vocab_size} ids) than "
                f"its student ({vocabulary.vocab_size} ids): give --gin.VOCABULARY the folder "
                f"`vocabulary` in {path}"
            )

    def check_model(self, model: Any) -> None:
        """Raises ValueError where the model is no student."""
        if not isinstance(model, distilbert.DistilBert):
            raise ValueError(
                f"TEACHER has no effect: a {type(model).__name__} learns from text alone. Leave it "
                "out, or choose a student (--gin_file=distilbert)"
            )

    def identity(self) -> list[Any]:
        """JSON by which a resumed run knows that it still has this teacher: step and dtype."""
        steps = Checkpoints(run_directory.checkpoints(self._path())).steps()
        return [max(steps, default=None) if self.step is None else self.step, self.dtype]

    def open(self, layout: Layout) -> Callable[[Batch], Batch]:
        """Reads the teacher; what adds `teacher_logits` and `teacher_states` to global batches.

        Args:
          layout: the student's, by whose rows its batches are split, as are the outputs.

        Raises:
          ValueError: the directory holds no BERT, or the layouts are of different devices.
          CheckpointError: there is no such step, or it is damaged.
        """
        own = self.layout or layout
        if set(own.mesh.devices.flat) != set(layout.mesh.devices.flat):
            raise ValueError("Teacher.layout must be over the same devices as that of the run")
        graphdef, state = nnx.split(self._abstract_model(), nnx.Param)
        params = self._read(nnx.to_pure_dict(state), map_parameters(own.sharding, state))

        @jax.jit
        def outputs(params: Any, batch: Batch) -> Batch:
            taught = distilbert.teach(nnx.merge(graphdef, params), batch)
            made = {name: taught[name] for name in taught.keys() - batch.keys()}
            return jax.tree.map(
                lambda x: jax.lax.with_sharding_constraint(x, own.rows(x.shape)), made
            )

        def teach(batch: Batch) -> Batch:
            with own.active():
                made = outputs(params, _by_rows(batch, own))
            return {**batch, **_by_rows(made, layout)}

        return teach

    def _read(self, abstract: Any, shardings: Any) -> Any:
        """The parameters in `dtype`; each is held as it was saved only until it is converted."""
        described = jax.tree.map(
            lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
            abstract,
            shardings,
        )
        checkpoints = Checkpoints(run_directory.checkpoints(self._path()))
        restored = checkpoints.restore_params(described, step=self.step).state
        leaves, tree = jax.tree.flatten(restored)
        del restored
        for n, leaf in enumerate(leaves):
            convert = jax.jit(lambda x: x.astype(self.dtype), out_shardings=leaf.sharding)
            leaves[n] = convert(leaf).block_until_ready()
        return jax.tree.unflatten(tree, leaves)

    def _abstract_model(self) -> Any:
        model = saved_model.abstract_model(str(self._path()))
        if not isinstance(model, bert.Bert):
            raise ValueError(
                f"the teacher in {self.directory} is a {type(model).__name__}: only a BERT teaches"
            )
        config = dataclasses.replace(model.config, dtype=self.dtype)
        return nnx.eval_shape(lambda: type(model)(config, rngs=nnx.Rngs(0)))

    def _path(self) -> epath.Path:
        if not self.directory:
            raise ValueError(
                "the run has no teacher: add --gin.TEACHER_DIR=\"'imported/bert'\", a run or what "
                "`t5x_like import` wrote"
            )
        return epath.Path(self.directory)


def _by_rows(batch: Batch, layout: Layout) -> Batch:
    return {name: jax.device_put(x, layout.rows(x.shape)) for name, x in batch.items()}
