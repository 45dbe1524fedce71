"""The settings of the fine-tuning study: models, tasks, methods, and the minutes that each takes.

All of it is decided here, before anything runs. Minutes are those of a full study of `HOURS` on two
cores; a shorter one (`--hours`) reads as many rows less, and pretrains for as much less time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

HOURS = 4.5
"""The length of a full study, of two cores."""
SEEDS = 3
SHARES = {"pretraining": 1 / 3, "tasks": 0.5615, "methods": 0.095, "floors": 0.01}
"""The part of the time that each part of the study may take."""
VOCAB_SIZE = 8192
CORPUS = ("wiki_en/train-*.jsonl.gz", "novels_en/*.txt.gz")
"""The files of pretraining, below the folder of data."""


@dataclasses.dataclass(frozen=True)
class Body:
    """A small model, pretrained, and the same from random parameters.

    Attributes:
      recipe: the recipe of its pretraining.
      share: the part of the study's time that it is pretrained for.
      pretraining: flags after those that all have.
      random: flags after those, with which it learns nothing.
      tuning: flags of fine-tuning.
      held_out: the held-out metric of pretraining that the page shows.
    """

    recipe: str
    share: float
    pretraining: tuple[str, ...]
    random: tuple[str, ...]
    tuning: tuple[str, ...]
    held_out: str


_STILL = ("--gin.PEAK_LEARNING_RATE=0.0", "--gin.WARMUP_STEPS=1")
BODIES: Mapping[str, Body] = {
    "bert": Body(
        recipe="bert-mini",
        share=0.1,
        pretraining=(
            "--batch_size=64",
            "--gin.short/run.Phase.lengths={'inputs': 64}",
            "--gin.long/run.Phase.lengths={'inputs': 128}",
        ),
        random=(*_STILL, "--gin.short/run.Phase.steps=1"),
        tuning=("--learning_rate", "1e-3"),
        held_out="mlm_loss",
    ),
    "electra": Body(
        recipe="electra-mini",
        share=0.12,
        pretraining=("--batch_size=64", "--gin.TASK_FEATURE_LENGTHS={'inputs': 128}"),
        random=_STILL,
        tuning=("--learning_rate", "1e-3"),
        held_out="replaced_auc",
    ),
    "t5": Body(
        recipe="t5-mini",
        share=1 / 3 - 0.22,
        pretraining=(
            "--batch_size=64",
            "--gin.t5.Config.vocab_size=8320",
            "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 18}",
        ),
        random=("--gin.schedules.rsqrt.scale=0.0",),
        tuning=("--batch_size", "32", "--learning_rate", "1e-2"),
        held_out="loss",
    ),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
      flags: that name its files, below the folder of prepared files ({data}).
      metrics: names of metrics, as published; the first chooses the best epoch.
      epochs: how often each body that learns it reads the rows.
      minutes: of one run of each.
      more: further flags.
      of_t5: flags that a T5 needs besides, to learn with a head what it does not write.
    """

    flags: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: Mapping[str, float]
    minutes: Mapping[str, float]
    more: tuple[str, ...] = ()
    of_t5: tuple[str, ...] = ()


def _named(task: str, folder: str) -> tuple[str, ...]:
    return ("--task", task, "--data_dir", f"{{data}}/{folder}")


def _each(bert: float, electra: float, t5: float) -> dict[str, float]:
    return {"bert": bert, "electra": electra, "t5": t5}


TASKS: Mapping[str, Task] = {
    "sst2": Task(
        _named("sst2", "glue_sst2"),
        ("accuracy",),
        _each(0.5, 0.5, 0.25),
        _each(0.85, 0.75, 1.1),
        ("--length", "64"),
    ),
    "cola": Task(
        _named("cola", "glue_cola"),
        ("matthews_correlation",),
        _each(3, 3, 2),
        _each(0.55, 0.55, 1.2),
        ("--length", "64"),
    ),
    "mrpc": Task(
        _named("mrpc", "glue_mrpc"),
        ("f1", "accuracy"),
        _each(3, 3, 3),
        _each(0.8, 0.75, 0.8),
        ("--length", "128"),
    ),
    "rte": Task(
        _named("rte", "glue_rte"),
        ("accuracy",),
        _each(3, 3, 3),
        _each(0.4, 0.5, 0.7),
        ("--length", "128"),
    ),
    "stsb": Task(
        _named("stsb", "glue_stsb"),
        ("pearson", "spearman"),
        _each(3, 3, 3),
        _each(1.1, 1, 1.7),
        ("--length", "128"),
    ),
    "wnut17": Task(
        ("--train", "{data}/wnut17/train.conll", "--dev", "{data}/wnut17/dev.conll"),
        ("entity_f1",),
        _each(4, 4, 4),
        _each(0.65, 0.6, 0.9),
        ("--length", "128"),
        ("--head",),
    ),
    "ud": Task(
        _named("ud", "ud_english_ewt"),
        ("accuracy",),
        _each(1, 1, 1),
        _each(0.8, 0.65, 0.7),
        ("--length", "128"),
        ("--head",),
    ),
    "squad": Task(
        ("--train", "{data}/squad/train-v1.1.json", "--dev", "{data}/squad/dev-v1.1.json"),
        ("f1", "exact"),
        _each(1, 1, 1),
        _each(1, 1.1, 2.2),
        ("--length", "128", "--stride", "64"),
        ("--head",),
    ),
    "multi30k": Task(
        _named("multi30k_en_de", "multi30k"), ("bleu",), {"t5": 0.5}, {"t5": 2}, ("--length", "64")
    ),
    "e2e": Task(_named("e2e", "e2e_nlg"), ("bleu",), {"t5": 0.3}, {"t5": 1.9}),
}
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "cola": {"matthews_correlation": 0.0},
    "sst2": {"accuracy": 0.832},
    "mrpc": {"f1": 0.811, "accuracy": 0.711},
    "stsb": {"pearson": 0.743, "spearman": 0.736},
    "rte": {"accuracy": 0.572},
}
"""GLUE's test scores of BERT-tiny (Turc et al., 2019; README of google-research/bert)."""


@dataclasses.dataclass(frozen=True)
class Way:
    """A method on the task of methods.

    Attributes:
      flags: of fine-tuning.
      rates: learning rates, of which the page shows that with the best median.
      pretrained: whether it begins with the pretrained body.
      teacher: the way whose best run it learns from, too.
      minutes: of one run.
    """

    flags: tuple[str, ...]
    rates: tuple[float, ...]
    pretrained: bool = True
    teacher: str | None = None
    minutes: float = 0.26


OF_METHODS, BODY_OF_METHODS = "sst2", "bert"
"""The task on which all methods are compared, and the body."""
ROWS_OF_METHODS, EPOCHS_OF_METHODS = 4000, 2
"""Its training rows, drawn by the seed, and how often they are read."""
_FEW = (2e-3, 1e-2)
"""Rates of methods that train little: those of papers are for models a hundred times as large."""


def _method(name: str, *more: str) -> tuple[str, ...]:
    return ("--method", name, *more)


METHODS: Mapping[str, Way] = {
    "full": Way(_method("full"), (3e-4, 1e-3)),
    "unfreezing": Way(_method("unfreezing"), (1e-3, 3e-3)),
    "head": Way(_method("head"), _FEW),
    "features, last": Way(_method("features", "--states", "last"), _FEW),
    "features, concat:2": Way(_method("features", "--states", "concat:2"), _FEW),
    "features, mix": Way(_method("features", "--states", "mix"), _FEW),
    "bitfit": Way(_method("bitfit"), _FEW),
    "lora": Way(_method("lora"), _FEW),
    "rslora": Way(_method("rslora"), _FEW),
    "dora": Way(_method("dora"), _FEW),
    "ia3": Way(_method("ia3"), _FEW),
    "adapters": Way(_method("adapters"), _FEW),
    "prefix": Way(_method("prefix"), _FEW),
    "prompt": Way(_method("prompt"), _FEW),
    "full, random parameters": Way(_method("full"), (3e-4, 1e-3), pretrained=False),
    "the same with full as teacher": Way((), (3e-4, 1e-3), pretrained=False, teacher="full"),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is run together: all seeds of a body on a task, or of a method.

    Attributes:
      part: "tasks" or "methods".
      body: the body.
      task: the task.
      trained: whether it begins with the pretrained body.
      method: a key of `METHODS`; "full" on the tasks.
    """

    part: str
    body: str
    task: str
    trained: bool
    method: str = "full"

    @property
    def name(self) -> str:
        """The folder of its sweep."""
        method = self.method.replace(", ", "-").replace(":", "").replace(" ", "_")
        begun = "pretrained" if self.trained else "random"
        return (
            f"methods-{method}"
            if self.part == "methods"
            else f"tasks-{self.task}-{self.body}-{begun}"
        )

    @property
    def runs(self) -> int:
        """How many runs it has with each seed."""
        return len(METHODS[self.method].rates) if self.part == "methods" else 1

    @property
    def minutes(self) -> float:
        """The minutes of its runs with one seed in a full study."""
        if self.part == "methods":
            return METHODS[self.method].minutes * self.runs
        return TASKS[self.task].minutes[self.body]


def cells() -> Iterator[Cell]:
    """All cells, by body: what is done with one is whole before the next is pretrained."""
    for body in BODIES:
        for name in (name for name, task in TASKS.items() if body in task.epochs):
            yield from (Cell("tasks", body, name, trained) for trained in (True, False))
        if body == BODY_OF_METHODS:
            for method, way in METHODS.items():
                yield Cell("methods", body, OF_METHODS, way.pretrained, method)
