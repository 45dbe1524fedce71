"""The frozen teacher of a distillation: a stored model whose outputs go into batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
from etils import epath
from flax import nnx

from t5x_like.core.buckets import storage
from t5x_like.core.partitioning import Layout, map_parameters
from t5x_like.models import bert, distilbert
from t5x_like.runs import run_directory, saved_model
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.completion import AsItIs

if TYPE_CHECKING:
    from t5x_like.core.protocols.completers import Kept
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.core.protocols.model import Batch


class Teaching(AsItIs):
    """A teacher at work: a function of a batch, the same at all steps."""

    def __init__(self, teach: Callable[[Batch], Batch]) -> None:
        self._teach = teach

    def complete(self, batch: Batch, *, step: int, kept: Kept) -> Batch:
        """The batch with what the teacher says."""
        del step, kept
        return self._teach(batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher:
    """A BERT of a run, or an imported one, from which a DistilBERT learns.

    Its logits are float32 over the whole vocabulary of V ids for each token: 4 L V bytes for a row
    of L tokens, 62 MB for 512 tokens and 30,522 ids. They are in memory for the whole batch at
    once, whatever the number of microbatches. A device with 16 rows of the batch thus needs 1 GB
    for them, and as much again while the next batch is made.

    Attributes:
      directory: the directory of a run, or one that `t5x_like import` wrote.
      step: the step of the checkpoint; the newest by default.
      dtype: the dtype of its parameters and its computation.
      layout: its layout over the devices of the run; None for the layout of the run.
    """

    directory: str | None
    step: int | None = None
    dtype: str = "bfloat16"
    layout: Layout | None = None

    @property
    def paths(self) -> dict[str, str]:
        """Its directory."""
        return {"TEACHER": self.directory} if self.directory else {}

    def check(self, vocabulary: Vocabulary) -> None:
        """Compares the teacher with its student, before any weights are read.

        Args:
          vocabulary: the vocabulary of the student.

        Raises:
          ValueError: the directory holds no BERT, or its vocabulary is unknown or another one.
        """
        path = self._path()
        self._abstract_model()
        if not run_directory.has_vocabulary(path):
            raise ValueError(
                f"the teacher in {path} has no vocabulary, so its ids may have other meanings than "
                "those of its student: import it again with --vocabulary"
            )
        saved = run_directory.read_vocabulary(path)
        if saved.fingerprint != vocabulary.fingerprint:
            raise ValueError(
                f"the teacher in {path} reads another vocabulary ({saved.vocab_size} ids) than "
                f"its student ({vocabulary.vocab_size} ids): give --gin.VOCABULARY the folder "
                f"`vocabulary` in {path}"
            )

    def check_model(self, model: Any) -> None:
        """Raises ValueError if the model cannot be a student."""
        if not isinstance(model, distilbert.DistilBert):
            raise ValueError(
                f"TEACHER has no effect: a {type(model).__name__} learns from text alone. Leave it "
                "out, or choose a student (--gin_file=distilbert)"
            )

    def added(self, row: Mapping[str, Any], model: Any) -> dict[str, jax.ShapeDtypeStruct]:
        """`teacher_logits` and `teacher_states` of a teacher that the model can learn from."""
        length, config = len(row["encoder_input_tokens"]), model.config
        logits = jax.ShapeDtypeStruct((length, config.vocab_size), "float32")
        states = jax.ShapeDtypeStruct((length, config.d_model), self.dtype)
        return {"teacher_logits": logits, "teacher_states": states}

    def identity(self) -> list[Any]:
        """JSON values of the teacher that must not change in a resumed run: step and dtype."""
        steps = Checkpoints(run_directory.checkpoints(self._path())).steps()
        return [max(steps, default=None) if self.step is None else self.step, self.dtype]

    def open(self, layout: Layout) -> Teaching:
        """Adds `teacher_logits` and `teacher_states` to global batches.

        The parameters of the teacher are read now.

        Args:
          layout: the layout of the student; batches and outputs are split by its rows.

        Raises:
          ValueError: the directory holds no BERT, or the layouts have different devices.
          CheckpointError: there is no such step, or it is damaged.
        """
        teacher_layout = self.layout or layout
        if set(teacher_layout.mesh.devices.flat) != set(layout.mesh.devices.flat):
            raise ValueError("Teacher.layout must have the same devices as the layout of the run")
        graphdef, state = nnx.split(self._abstract_model(), nnx.Param)
        params = self._read(nnx.to_pure_dict(state), map_parameters(teacher_layout.sharding, state))

        @jax.jit
        def outputs(params: Any, batch: Batch) -> Batch:
            added = self._outputs(nnx.merge(graphdef, params), batch)
            return jax.tree.map(
                lambda x: jax.lax.with_sharding_constraint(x, teacher_layout.rows(x.shape)), added
            )

        def teach(batch: Batch) -> Batch:
            with teacher_layout.active():
                added = outputs(params, _by_rows(batch, teacher_layout))
            return {**batch, **_by_rows(added, layout)}

        return Teaching(teach)

    def _outputs(self, teacher: Any, batch: Batch) -> Batch:
        """What the teacher adds to a batch."""
        taught = distilbert.teach(teacher, batch)
        return {name: taught[name] for name in taught.keys() - batch.keys()}

    def _read(self, abstract: Any, shardings: Any) -> Any:
        """The parameters in `dtype`; converts one at a time, and frees it in its saved dtype."""
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
                f"the teacher in {self.directory} is a {type(model).__name__}: it must be a BERT"
            )
        config = dataclasses.replace(model.config, dtype=self.dtype)
        return nnx.eval_shape(lambda: type(model)(config, rngs=nnx.Rngs(0)))

    def _path(self) -> epath.Path:
        if not self.directory:
            raise ValueError(
                "the run has no teacher: add --gin.TEACHER_DIR=\"'imported/bert'\", the directory "
                "of a run, or one that `t5x_like import` wrote"
            )
        return storage.path(self.directory)


def _by_rows(batch: Batch, layout: Layout) -> Batch:
    return {name: jax.device_put(x, layout.rows(x.shape)) for name, x in batch.items()}
