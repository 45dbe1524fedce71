# ruff: noqa: E501 (prose)
"""Writes the page of the fine-tuning study from the lines of its results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from finetuning_settings import (
    BODIES,
    BODY_OF_METHODS,
    EPOCHS_OF_METHODS,
    HOURS,
    METHODS,
    OF_METHODS,
    PUBLISHED,
    ROWS_OF_METHODS,
    SEEDS,
    TASKS,
    VOCAB_SIZE,
)

Line = Mapping[str, Any]
BAG = "bag of words"
_TEXTS = ("bleu",)
"""Metrics from 0 to 100; the others are shares."""

HEAD = f"""\
# Fine-tuning small models

A BERT, an ELECTRA and a T5 of one and a half to two million parameters were pretrained for half an hour each, and fine-tuned on ten
tasks, beside the same models from random parameters and beside models of bags of words. It shows that the whole way
works: pretraining, labels, training, metrics. Models of this size say little about larger ones.
`python benchmarks/finetuning_study.py --data DIR --work DIR` writes this page from [finetuning.jsonl](finetuning.jsonl), in
at most {HOURS:g} hours of two cores; the same command goes on with a study that was ended.

## The settings

- **Pretraining**: the recipes `bert-mini`, `electra-mini` and `t5-mini` with vocabularies of {VOCAB_SIZE:,} pieces and rows of up to 128
  tokens (T5: 64), on 6 million words of Wikipedia and 3.6 million of novels. Their encoders have two layers of 128 units, as BERT-tiny.
  A third of the time is theirs: a short run of each says how many steps these are. What is done with a model is done on one machine.
- **Fine-tuning**: {SEEDS} seeds, rows as often as the table says, in batches of 32, with rates of 1e-3 (T5: 1e-2) and else the
  settings of [finetuning.md](../finetuning.md#the-run). T5 writes classes, numbers and texts; it learns tags and spans with a head.
- **Cells** are means over seeds of the best epoch on held-out rows, with the standard deviation (by n - 1). The held-out rows have
  chosen the epoch, so rows that no run has seen give less.
- **random** has the parameters that pretraining began with, one draw for all seeds, and learns as long from the labels.
- **{BAG}** is a logistic regression on weighted counts of words and of two words (classes), of the words of both texts and of
  one (pairs), or of a word, its neighbours and its shape (WNUT-17); a ridge regression on the same (STS-B); the commonest tag of a word (UD);
  for SQuAD the sentence with most of the question's words; for E2E and Multi30k the text of the most similar training input.
- **Files**: CoLA is held out in its domain; UD is the English Web Treebank; WNUT-17's held-out rows are a tenth of its training
  sentences. SQuAD is the questions with an answer of a part of SQuAD 2.0: 4,371 of its first ten articles, and 705 of five held-out ones. Multi30k is
  English to German, by a vocabulary of English. BLEU is from 0 to 100, with all references of an input.
"""
_PUBLISHED = """
## Beside published figures

BERT-tiny (Turc et al., 2019; the README of its authors' code) has the same two layers of 128 units, and 2.9 million more parameters in a
vocabulary of 30,522 pieces. It was pretrained on the whole of Wikipedia and BookCorpus. Its figures are those of GLUE's test rows, one
number each; batch size and rate were chosen by task, in 4 epochs. Ours are held-out rows, with one batch size and one rate, and CoLA's are those
of its domain alone.
"""
_METHODS = f"""
## All methods on one task

SST-2, {ROWS_OF_METHODS:,} training rows (each seed draws its own), {EPOCHS_OF_METHODS} epochs, evaluated at their end alone, with `{BODY_OF_METHODS}`. Each
method has the rate with the better median of two. *trains* is the share of the parameters, with the head. *checkpoint* is the files of one, on disk.
*gradients* and *optimizer* are the arrays of what trains, by the program's abstract state; *step* is what XLA's memory analysis says that the
compiled step needs besides its arguments, for full rows. A model of two layers has no more than two to concatenate.
"""


class Values(NamedTuple):
    """The values of the seeds of a cell.

    Attributes:
      values: the metric of each run that has one.
      failed: how many runs are not better than one answer to all texts.
      runs: how many there are.
    """

    values: Sequence[float]
    failed: int
    runs: int

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.values)

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 of one value."""
        if len(self.values) < 2:
            return 0.0
        return statistics.stdev(self.values) / math.sqrt(len(self.values))

    def shown(self, metric: str) -> str:
        """The mean with its deviation, for a table."""
        if not self.values:
            return "no value" if self.runs else ""
        text = number(self.mean, metric)
        if len(self.values) < 2:
            return text
        return f"{text} ± {number(statistics.stdev(self.values), metric)}"


def number(value: float, metric: str) -> str:
    """A value of a metric."""
    return f"{value:.1f}" if metric in _TEXTS else f"{value:.3f}"


def latest(lines: Iterable[Line]) -> list[Line]:
    """The lines that count: of two of the same run the later one."""
    keys = ("part", "body", "task", "trained", "method", "seed")
    known: dict[tuple[str, ...], Line] = {}
    for line in lines:
        known[tuple(str(line.get(key)) for key in (*keys, "setting"))] = line
    return [*known.values()]


def page(lines: Sequence[Line]) -> str:
    """The page of all lines."""
    lines = latest(lines)
    sections = (_pretraining, _tasks, conclusions, _published, _methods, _earlier)
    return HEAD + "".join(f"\n{text}\n" for section in sections if (text := section(lines)))


def values(lines: Sequence[Line], metric: str, **of: Any) -> Values:
    """The values of a metric in the lines that have these fields."""
    chosen = [line for line in lines if all(line.get(name) == x for name, x in of.items())]
    known = [line["metrics"].get(metric) for line in chosen]
    finite = [x for line, x in zip(chosen, known, strict=True) if x is not None and _ended(line)]
    return Values(finite, sum(bool(line.get("failed")) for line in chosen), len(chosen))


def _ended(line: Line) -> bool:
    return not line.get("diverged")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> str:
    """A table whose first columns are texts, and the others numbers."""
    bars = ["-"] * texts + ["-:"] * (len(header) - texts)
    joined = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([joined[0], f"|{'|'.join(bars)}|", *joined[1:]])


def _pretraining(lines: Sequence[Line]) -> str:
    known = {line["body"]: line for line in lines if line.get("part") == "pretraining"}
    if not known:
        return ""
    rows = []
    for name in (name for name in BODIES if name in known):
        line = known[name]
        times = line["tokens"] / line["corpus_tokens"]
        first, last = (f"{x:.3f}" for x in line["held_out"])
        rows.append(
            (
                *(f"`{name}`", f"{line['parameters']:,}", f"{line['steps']:,}"),
                *(f"{line['tokens'] / 1e6:.1f}", f"{times:.1f}", f"{line['minutes']:.0f}"),
                f"`{line['metric']}` {first} to {last}",
            )
        )
    machine = next(iter(known.values()))["machine"]
    header = ("model", "parameters", "steps", "million tokens", "epochs", "minutes", "held out")
    return (
        table(header, rows)
        + f"\n\nThe machine: {machine['cores']} cores of {machine['cpu']}, JAX {machine['jax']}. The held-out metric is that of the "
        "first and of the last of ten evaluations."
    )


def _cells(lines: Sequence[Line]) -> Iterator[tuple[str, str, str, Values, Values]]:
    """(task, metric, body, pretrained, random) of what has run."""
    for name, task in TASKS.items():
        for metric in task.metrics:
            for body in task.epochs:
                pretrained, random = (
                    values(lines, metric, part="tasks", task=name, body=body, trained=trained)
                    for trained in (True, False)
                )
                if pretrained.runs or random.runs:
                    yield name, metric, body, pretrained, random


def _tasks(lines: Sequence[Line]) -> str:
    rows = []
    for name, metric, body, pretrained, random in _cells(lines):
        bag = values(lines, metric, part="floors", task=name)
        rows.append(
            (
                *(name, f"`{metric}`", f"`{body}`", f"{TASKS[name].epochs[body]:g}"),
                *(of.shown(metric) for of in (pretrained, random, bag)),
            )
        )
    if not rows:
        return ""
    header = ("task", "metric", "model", "epochs", "pretrained", "random", BAG)
    return "## Ten tasks\n\n" + table(header, rows, texts=3)


def conclusions(lines: Sequence[Line]) -> str:
    """Sentences about where pretraining helps, and why not elsewhere, by the first metrics."""
    compared: dict[str, dict[str, list[str]]] = {}
    below: dict[str, list[str]] = {}
    for name, metric, body, pretrained, random in _cells(lines):
        if metric != TASKS[name].metrics[0] or not (pretrained.values and random.values):
            continue
        reason = _no_better(pretrained, random)
        compared.setdefault(reason, {}).setdefault(name, []).append(f"`{body}`")
        bag = values(lines, metric, part="floors", task=name)
        if bag.values and pretrained.mean <= bag.mean:
            below.setdefault(name, []).append(f"`{body}`")
    if not compared:
        return ""
    better = compared.pop("", {})
    said = [f"Pretrained beats random on {_on(better) if better else 'no task'}"]
    said += [f"not on {_on(of)}, because {reason}" for reason, of in compared.items()]
    sentences = ["; ".join(said) + "."]
    if below:
        sentences.append(f"The pretrained model is not better than the {BAG} on {_on(below)}.")
    return "\n".join([*sentences, _BEATS])


_BEATS = """\
One *beats* the other if its mean is higher by more than twice the standard error of the difference."""


def _no_better(pretrained: Values, random: Values) -> str:
    """Why pretrained runs are no better than random ones; empty if they are."""
    difference = pretrained.mean - random.mean
    if difference > 0 and difference > 2 * math.hypot(pretrained.error, random.error):
        return ""
    if pretrained.failed == pretrained.runs:
        return "none of the pretrained runs is better than one answer to all texts"
    if difference <= 0:
        return "random parameters reach as much"
    return "the difference is less than twice its standard error"


def _on(of_tasks: Mapping[str, Sequence[str]]) -> str:
    """Tasks with their models."""
    return _listed(f"{name} ({', '.join(bodies)})" for name, bodies in of_tasks.items())


def _listed(names: Iterable[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _published(lines: Sequence[Line]) -> str:
    rows = []
    for name, of_task in PUBLISHED.items():
        for metric, published in of_task.items():
            ours = values(lines, metric, part="tasks", task=name, body="bert", trained=True)
            if ours.runs:
                rows.append((name, f"`{metric}`", ours.shown(metric), number(published, metric)))
    if not rows:
        return ""
    header = ("task", "metric", "`bert`", "BERT-tiny")
    return _PUBLISHED.strip() + "\n\n" + table(header, rows, texts=2)


def _methods(lines: Sequence[Line]) -> str:
    of_methods = [line for line in lines if line.get("part") == "methods"]
    known = {line["method"]: line for line in lines if line.get("part") == "bytes"}
    metric = TASKS[OF_METHODS].metrics[0]
    rows = []
    for name in METHODS:
        by_rate: dict[float, list[Line]] = {}
        for line in of_methods:
            if line["method"] == name:
                by_rate.setdefault(line["setting"]["learning_rate"], []).append(line)
        if not by_rate:
            continue
        rate, chosen = max(by_rate.items(), key=lambda pair: _median(pair[1], metric))
        cells = [name, f"{rate:g}", values(chosen, metric).shown(metric)]
        rows.append([*cells, *(_bytes(known[name]) if name in known else [""] * 6)])
    if not rows:
        return ""
    header = ("method", "rate", f"`{metric}`", "trains", "s a step", "checkpoint", "gradients")
    return _METHODS.strip() + "\n\n" + table((*header, "optimizer", "step"), rows)


def _median(lines: Sequence[Line], metric: str) -> float:
    """The median, in which a run without a value is the worst."""
    known = (line["metrics"][metric] for line in lines)
    return statistics.median(-math.inf if value is None else value for value in known)


def _bytes(line: Line) -> list[str]:
    share = line["trained_parameters"] / line["parameters"]
    sizes = ("checkpoint_bytes", "gradient_bytes", "optimizer_bytes", "step_bytes")
    return [
        f"{share:.2%}",
        f"{line['seconds_a_step']:.4f}",
        *(f"{line[name] / 1e6:.2f} MB" for name in sizes),
    ]


_EARLIER = """\
## With less pretraining

Models of 0.8 and 1.2 million parameters with vocabularies of 2,048 pieces, pretrained for some twenty minutes on Wikipedia alone: `bert-mini`
9,000 steps of 128 rows (6,000 of 32 tokens, then of 64), `t5-mini` 3,000 steps of 128 rows. Up to three seeds, median (least to highest). SQuAD has
here also questions without an answer, of which half of the held-out ones are; WNUT-17's held-out rows are others than above."""
_EARLIER_METRICS = {
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "wnut17": ("entity_f1",),
    "sst2": ("accuracy",),
    "squad2": ("f1", "exact"),
    "e2e": ("bleu",),
}


def _earlier(lines: Sequence[Line]) -> str:
    """The table of runs before the study had parts."""
    old = [line for line in lines if "part" not in line]
    rows = []
    for name, metrics in _EARLIER_METRICS.items():
        for metric in metrics:
            for body in ("bert-mini", "t5-mini"):
                cells = [
                    values(old, metric, task=name, body=of, trained=trained)
                    for of, trained in ((body, True), (body, False), (BAG, True))
                ]
                if cells[0].runs:
                    rows.append((name, f"`{metric}`", f"`{body}`", *map(_spread, cells)))
    if not rows:
        return ""
    header = ("task", "metric", "model", "pretrained", "random", BAG)
    return _EARLIER + "\n\n" + table(header, rows, texts=3)


def _spread(of: Values) -> str:
    """The median with the extremes."""
    if not of.values:
        return ""
    median = f"{statistics.median(of.values):.3f}"
    if len(of.values) == 1:
        return median
    return f"{median} ({min(of.values):.3f} to {max(of.values):.3f})"
