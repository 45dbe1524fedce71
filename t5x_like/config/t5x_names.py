"""T5X's macros, classes and flags with other names here, for error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

MACROS = {
    "RANDOM_SEED": "SEED (or --seed)",
    "EVAL_STEPS": "EVAL_BATCHES: batches of an evaluation",
    "INITIAL_CHECKPOINT_PATH": "INIT_FROM = @init_from.InitFrom(), whose directory is a run or an "
    "import (`t5x_like import` reads T5X's checkpoints)",
    "USE_CACHED_TASKS": "no setting, as tasks are cached at first use, and always read from there",
    "LOSS_NORMALIZING_FACTOR": "no setting, as losses are means over the global batch",
    "SHUFFLE_TRAIN_EXAMPLES": "no setting, as every epoch has an order of its own, from SEED",
    "LABEL_SMOOTHING_FACTOR": "LABEL_SMOOTHING",
    "NUM_MICROBATCHES": "MICROBATCHES",
    "OPTIMIZER_LEARNING_RATE": "PEAK_LEARNING_RATE (or --learning_rate)",
    "CHECKPOINTS_TO_KEEP": "CHECKPOINTS_KEPT",
    "SAVING_PERIOD": "CHECKPOINT_PERIOD",
    "CHECKPOINT_PATH": "the command's argument: `t5x_like eval RUN --step N`",
    "INFER_OUTPUT_DIR": "`t5x_like predict RUN --output FILE`",
    "USE_HARDWARE_RNG": "JAX_DEFAULT_PRNG_IMPL=rbg in the environment",
}
"""T5X's macros, and what does the same here."""

CONFIGURABLES = {
    "DatasetConfig": "BATCH_SIZE, PACK, SEED, MIXTURE_OR_TASK_NAME and TASK_FEATURE_LENGTHS",
    "SaveCheckpointConfig": "CHECKPOINT_PERIOD and CHECKPOINTS_KEPT",
    "RestoreCheckpointConfig": "INIT_FROM = @init_from.InitFrom(); a run in MODEL_DIR is resumed",
    "PjitPartitioner": "--mesh data=-1,tensor=N (partitioning.make_layout.mesh)",
    "Trainer": "MICROBATCHES and LEARNING_RATE",
    "create_learning_rate_scheduler": "LEARNING_RATE = @schedules.rsqrt(), or another schedule",
    "train": "a macro for each parameter: EVAL_PERIOD (eval_period), EVAL_BATCHES (eval_steps), "
    "TRAIN_STEPS (total_steps), LOG_PERIOD (stats_period), SEED (random_seed), MODEL_DIR",
    "evaluate": "`t5x_like eval RUN`",
    "infer": "`t5x_like predict RUN --input FILE --output FILE`",
    "CheckpointConfig": "CHECKPOINT_PERIOD, CHECKPOINTS_KEPT and INIT_FROM",
    "AdaFactor": "optimizers.adafactor",
    "BaseTrainer": "MICROBATCHES and LEARNING_RATE",
    "EncoderDecoderModel": "MODEL = @t5.T5(), whose sizes are t5.Config's",
    "T5Config": "t5.Config",
    "Adafactor": "optimizers.adafactor",
}
"""T5X's classes and functions with parameters, and what sets the same here."""

FLAGS = {
    "process_count": "--num_processes",
    "process_index": "--process_id",
    "multiprocess_gpu": "--distributed",
    "run_mode": "a command: t5x_like train, eval or predict",
}
"""T5X's flags, and what does the same here."""


_PACKAGES = re.compile(r"""(?:No module named|Unable to open file:) *'?(?:t5x|t5|flaxformer)\b""")
_SELECTOR = re.compile(r"Couldn't resolve selector (?:\w+\.)*(\w+);")


def of_error(message: str) -> str:
    """Advice for what gin says of a file of T5X's: other packages, scripts and classes."""
    if _PACKAGES.search(message):
        return "; docs/from_t5x.md says with which lines T5X's file works here"
    found = _SELECTOR.search(message)
    return advice(found[1], CONFIGURABLES) if found else ""


def advice(name: str, names: Mapping[str, str]) -> str:
    """Text for an error about a name of T5X, or nothing for any other name.

    Args:
      name: a macro, a flag without dashes, or a configurable, such as `utils.DatasetConfig`.
      names: `MACROS`, `FLAGS` or `CONFIGURABLES`.
    """
    name = name.rpartition(".")[2]
    return f"; in place of T5X's {name} there is {names[name]}" if name in names else ""
