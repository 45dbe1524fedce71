"""T5X's macros with other names here, for error messages."""

from __future__ import annotations

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
    "INFER_OUTPUT_DIR": "`t5x_like infer RUN --output FILE`",
    "USE_HARDWARE_RNG": "JAX_DEFAULT_PRNG_IMPL=rbg in the environment",
}
"""T5X's macros, and what does the same here."""


def advice(macro: str) -> str:
    """Text for an error about a macro of T5X, or nothing for any other macro."""
    return f"; in place of T5X's {macro} there is {MACROS[macro]}" if macro in MACROS else ""
