"""A pretraining run as gin describes it: a task, a model, an optimizer and a mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optax

    from t5x_like.data.opening import Data
    from t5x_like.partitioning import Layout
    from t5x_like.protocols import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How long, how often, how much. Steps count optimizer updates.

    Attributes:
      train_steps: the run is finished at this step; raise it to extend a finished run.
      batch_size: rows of the global batch.
      seed: of parameters, data order, noise and dropout.
      microbatches: parts of a batch whose gradients are added up before an update.
      gradient_clip: largest global norm of the gradient; None leaves it alone.
      ema_decay: of an exponential moving average of the parameters; None keeps none.
      eval_period: steps between evaluations on the validation split; 0 for none.
      eval_batches: batches of an evaluation at most.
      checkpoint_period: steps between checkpoints; the last step is always saved.
      checkpoints_kept: newest checkpoints kept, besides the best by held-out loss.
      log_period: steps between lines of the log.
      data_workers: processes that make batches; 0 makes them in threads.
    """

    train_steps: int
    batch_size: int
    seed: int = 0
    microbatches: int = 1
    gradient_clip: float | None = None
    ema_decay: float | None = None
    eval_period: int = 1000
    eval_batches: int = 20
    checkpoint_period: int = 1000
    checkpoints_kept: int = 3
    log_period: int = 20
    data_workers: int = 0

    def __post_init__(self) -> None:
        least = {"train_steps": 1, "batch_size": 1, "microbatches": 1, "checkpoints_kept": 1}
        whole = ("eval_period", "eval_batches", "checkpoint_period", "log_period", "data_workers")
        for name, smallest in {**dict.fromkeys((*whole, "seed"), 0), **least}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise ValueError(
                    f"{name.upper()} must be a whole number of at least {smallest}, not {value!r}"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run: everything `t5x_like train` needs, each part named in gin.

    Attributes:
      model_dir: where checkpoints, logs and the configuration go.
      model: builds the model from `rngs`.
      data: what is read.
      feature_converter: from an example's features to the model's.
      optimizer: an optax transformation; it sees one layer at a time.
      layout: the mesh and the rules of its axes.
      options: steps, batch size, periods, seed.
    """

    model_dir: str | None
    model: Callable[..., Model]
    data: Data
    feature_converter: Any
    optimizer: optax.GradientTransformation
    layout: Layout
    options: Options
