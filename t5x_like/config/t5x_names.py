"""T5X's macros, parameters, files and flags, and their counterparts here, for error messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from t5x_like.config import gin_files, gin_text
from t5x_like.config.gin_files import ConfigError

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
    "MIXTURE_OR_TASK_SPLIT": "`t5x_like eval RUN --task NAME --split S`",
    "EVAL_OUTPUT_DIR": "`t5x_like eval RUN --task NAME --predictions FILE`",
    "EVALUATOR_NUM_EXAMPLES": "EVAL_BATCHES: batches of an evaluation",
    "EVALUATOR_USE_MEMORY_CACHE": "no setting, as evaluations read the cache",
    "JSON_WRITE_N_RESULTS": "`t5x_like eval RUN --task NAME`, which writes all predictions",
    "INFER_OUTPUT_DIR": "`t5x_like predict RUN --output FILE`",
    "USE_HARDWARE_RNG": "RANDOM_NUMBERS = 'rbg'",
}
"""T5X's macros, and their counterparts here."""

PARAMETERS = {
    "train.*": "a macro for each setting: TRAIN_STEPS, EVAL_PERIOD, EVAL_BATCHES, SEED",
    "train.model": "MODEL",
    "train.model_dir": "MODEL_DIR (or --model_dir)",
    "train.total_steps": "TRAIN_STEPS (or --train_steps)",
    "train.eval_period": "EVAL_PERIOD",
    "train.eval_steps": "EVAL_BATCHES: batches of an evaluation",
    "train.random_seed": "SEED (or --seed)",
    "train.use_hardware_rng": "RANDOM_NUMBERS = 'rbg'",
    "train.summarize_config_fn": "no setting, as MODEL_DIR/config.gin is always written",
    "train.train_dataset_cfg": "MIXTURE_OR_TASK_NAME, TASK_FEATURE_LENGTHS, BATCH_SIZE and PACK",
    "train.train_eval_dataset_cfg": "no setting, as the task's split validation is evaluated",
    "train.infer_eval_dataset_cfg": "no setting, as a task's own metrics are always computed",
    "train.inference_evaluator_cls": "no setting, as a task's own metrics are always computed",
    "train.checkpoint_cfg": "CHECKPOINT_PERIOD, CHECKPOINTS_KEPT and INIT_FROM",
    "train.partitioner": "--mesh data=-1,tensor=N",
    "train.trainer_cls": "MICROBATCHES and LEARNING_RATE",
    "evaluate.*": "a command: `t5x_like eval RUN --task NAME --split S`",
    "infer.*": "a command: `t5x_like predict RUN --input FILE --output FILE`",
    "DatasetConfig.*": "BATCH_SIZE, PACK, SEED, MIXTURE_OR_TASK_NAME and TASK_FEATURE_LENGTHS",
    "DatasetConfig.mixture_or_task_name": "MIXTURE_OR_TASK_NAME (or --task)",
    "DatasetConfig.task_feature_lengths": "TASK_FEATURE_LENGTHS",
    "DatasetConfig.module": "MIXTURE_OR_TASK_MODULE (or --module)",
    "DatasetConfig.batch_size": "BATCH_SIZE (or --batch_size)",
    "DatasetConfig.pack": "PACK",
    "DatasetConfig.seed": "SEED (or --seed)",
    "DatasetConfig.shuffle": MACROS["SHUFFLE_TRAIN_EXAMPLES"],
    "DatasetConfig.use_cached": MACROS["USE_CACHED_TASKS"],
    "DatasetConfig.split": "`t5x_like eval RUN --task NAME --split S`",
    "CheckpointConfig.*": "CHECKPOINT_PERIOD, CHECKPOINTS_KEPT and INIT_FROM",
    "SaveCheckpointConfig.*": "CHECKPOINT_PERIOD and CHECKPOINTS_KEPT",
    "SaveCheckpointConfig.period": "CHECKPOINT_PERIOD",
    "SaveCheckpointConfig.keep": "CHECKPOINTS_KEPT",
    "SaveCheckpointConfig.dtype": "no setting, as checkpoints are float32",
    "SaveCheckpointConfig.save_dataset": "no setting, as a resumed run always reads on exactly",
    "RestoreCheckpointConfig.*": "--init_from DIR (INIT_FROM); a run in MODEL_DIR is resumed",
    "PjitPartitioner.*": "--mesh data=-1,tensor=N (partitioning.make_layout.mesh)",
    "PjitPartitioner.logical_axis_rules": "partitioning.make_layout.rules",
    "ModelBasedPjitPartitioner.*": "--mesh data=-1,tensor=N (partitioning.make_layout.mesh)",
    "standard_logical_axis_rules.*": "partitioning.make_layout.rules",
    "Trainer.*": "MICROBATCHES and LEARNING_RATE",
    "Trainer.num_microbatches": "MICROBATCHES",
    "Trainer.learning_rate_fn": "LEARNING_RATE = @schedules.rsqrt(), or another schedule",
    "Trainer.weight_metrics_computer": "no setting, as norms of weights and updates are logged",
    "create_learning_rate_scheduler.*": "LEARNING_RATE = @schedules.rsqrt(), or another schedule",
    "create_learning_rate_scheduler.base_learning_rate": "PEAK_LEARNING_RATE (or --learning_rate)",
    "create_learning_rate_scheduler.warmup_steps": "schedules.rsqrt.warmup_steps",
    "EncoderDecoderModel.*": "MODEL = @t5.T5, with t5.Config; the vocabulary is VOCABULARY",
    "EncoderDecoderModel.z_loss": "Z_LOSS",
    "EncoderDecoderModel.label_smoothing": "LABEL_SMOOTHING",
    "EncoderDecoderModel.loss_normalizing_factor": MACROS["LOSS_NORMALIZING_FACTOR"],
    "EncoderDecoderModel.optimizer_def": "OPTIMIZER",
    "DecoderOnlyModel.*": "MODEL = @gpt.Gpt or @prefix_lm.PrefixLm",
    "T5Config.*": "t5.Config",
    "T5Config.emb_dim": "t5.Config.d_model",
    "T5Config.head_dim": "t5.Config.d_kv",
    "T5Config.mlp_dim": "t5.Config.d_ff",
    "T5Config.mlp_activations": "t5.Config.mlp = @mlp.GatedMlp",
    "T5Config.logits_via_embedding": "t5.Config.tied_logits",
    "T5Config.dropout_rate": "DROPOUT_RATE",
    "T5Config.dtype": "DTYPE",
    "Adafactor.*": "OPTIMIZER = @optimizers.adafactor(), as in optimizers/adafactor.gin",
    "JSONLogger.*": "no setting, as predictions are written whole: `t5x_like eval --task NAME`",
}
"""Parameters of T5X's classes and functions, `*` for all others, and their counterparts here."""

FLAGS = {
    "process_count": "--num_processes",
    "process_index": "--process_id",
    "multiprocess_gpu": "--distributed",
    "run_mode": "a command: t5x_like train, eval or predict",
}
"""T5X's flags, and their counterparts here."""


FILES = {
    "runs/pretrain.gin": "include 'runs/pretrain.gin'",
    "runs/finetune.gin": "include 'runs/pretrain.gin', with INIT_FROM",
    "runs/eval.gin": "a command: `t5x_like eval RUN`",
    "runs/infer.gin": "a command: `t5x_like predict RUN`",
}
"""T5X's files in t5x/configs, and their counterparts here."""

T5 = "; T5's tasks come with: pip install 't5x_like[t5]' && pip install --no-deps t5==0.9.4"
"""Advice for a file that imports T5's tasks, where T5 is not installed."""

_GUIDE = "docs/from_t5x.md"
_MODULES = ("t5x", "flaxformer", "__main__")
"""The modules of the classes in T5X's files; `__main__` is its train.py."""


def advice(name: str, names: Mapping[str, str]) -> str:
    """Text for an error about a name of T5X, or nothing for any other name.

    Args:
      name: a macro, or a flag without dashes.
      names: `MACROS` or `FLAGS`.
    """
    return f"; in place of T5X's {name} there is {names[name]}" if name in names else ""


def advice_on(selector: str, parameter: str) -> str:
    """Text for an error about a class of T5X, or one of its parameters; nothing for others."""
    owner = re.split("[./]", selector)[-1]
    here = PARAMETERS.get(f"{owner}.{parameter}", PARAMETERS.get(f"{owner}.*"))
    their_name = f"{owner}.{parameter}".rstrip(".")
    return f"; in place of T5X's {their_name} there is {here} ({_GUIDE})" if here else ""


def refuse(path: Path, folders: Sequence[str], seen: Collection[Path] = ()) -> None:
    """Refuses a gin file of the user that names T5X's modules, itself or in a file it includes.

    Raises:
      ConfigError: the message has the first of these names, and its counterpart here.
    """
    if path in seen or path.resolve().is_relative_to(gin_files.gin_root().resolve()):
        return
    try:
        parsed = gin_text.read(gin_files.read(path))
    except (SyntaxError, ValueError, RecursionError):  # gin says where
        return
    for name in parsed.includes:
        if name.startswith("t5x/"):
            raise ConfigError(f"{path} includes T5X's {name}: here it is {_file(name)} ({_GUIDE})")
        refuse(gin_files.find(name, folders), folders, [*seen, path])
    named = [
        (str(binding), binding.selector, binding.parameter)
        for binding in parsed.bindings
        if binding.parameter
    ]
    for text, selector, parameter in [
        *named,
        *((f"@{reference}", reference, "") for reference in parsed.references),
    ]:
        # A class of the user's may have the name of one of T5X's.
        imported = selector.partition(".")[0] in parsed.imports
        is_theirs = parsed.full_path(selector).partition(".")[0] in _MODULES
        if (is_theirs or not imported) and (meant := advice_on(selector, parameter)):
            raise ConfigError(f"no {text} in {path}{meant}")
    for module in parsed.modules:
        if module.partition(".")[0] == "t5x":
            raise ConfigError(
                f"{path} imports {module}: nothing of T5X is needed here, so leave the line out; "
                f"{_GUIDE} says what its parts are here"
            )


def _file(name: str) -> str:
    """The counterpart of one of T5X's gin files."""
    for end, here in FILES.items():
        if name.endswith(end):
            return here
    if match := re.search(r"/(t5_1_1|t5_1_0|mt5|byt5|umt5)/(\w+)\.gin$", name):
        family = "t5" if match[1] == "t5_1_0" else match[1]
        model = f"{family}_{match[2].lower()}"
        if model in gin_files.published_models():
            return f"include 'models/{model}'"
    return "a model or run of `t5x_like inspect` or `t5x_like recipes`"
