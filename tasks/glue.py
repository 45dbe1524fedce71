"""GLUE's tasks by name (Wang et al., 2019), with T5's prompts and words for labels.

Files are those of gluebenchmark.com: `--data_dir` is the folder of a task, or the one above it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_like.data.labelled.distributed_files import Files, Table, TornTable
from t5x_like.data.labelled.named_tasks import NamedTask, Online

_ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}
_NLI = {name: name for name in ("entailment", "neutral", "contradiction")}


def prompt(name: str, *columns: str) -> str:
    """T5's text for a row: the name of the task, and each column in the order of the alphabet."""
    return " ".join([name, *(f"{column}: {{{column}}}" for column in sorted(columns))])


def _files(folder: str, dev: Sequence[str] = ("dev",), **options: Any) -> Files:
    """train.tsv and dev.tsv, in the folder of a task or in `--data_dir` itself."""
    held_out = [f"{place}{name}.tsv*" for place in (f"{folder}/", "") for name in dev]
    return Files((f"{folder}/train.tsv*", "train.tsv*"), held_out, **options)


def _glue(
    name: str,
    summary: str,
    columns: Mapping[str, Sequence[str]],
    labels: Mapping[str, str] | None,
    files: Sequence[Files],
    *,
    dev: str = "validation",
    **options: Any,
) -> NamedTask:
    return NamedTask(
        name=name,
        summary=summary,
        columns=columns,
        labels=labels,
        prompt=prompt(name, *[*columns][:-1]),
        files=files,
        tfds=Online(f"glue/{name}", dev),
        hugging_face=Online("nyu-mll/glue", dev, name),
        **{"kind": "classes", **options},
    )


def _same(*columns: str) -> dict[str, Sequence[str]]:
    return {column: (column,) for column in columns}


def _mnli(name: str, dev: str, which: str) -> NamedTask:
    task = _glue(
        "mnli",
        f"does a sentence follow from another? {which}",
        {
            "premise": ("premise", "sentence1"),
            "hypothesis": ("hypothesis", "sentence2"),
            "label": ("label", "gold_label"),
        },
        _NLI,
        [_files("MNLI", (f"dev_{dev}",))],
        dev=f"validation_{dev}",
    )
    return dataclasses.replace(task, name=name)


LABELLED = (
    _glue(
        "cola",
        "is a sentence acceptable? Matthews' correlation",
        _same("sentence", "label"),
        {"0": "unacceptable", "1": "acceptable"},
        [
            _files("CoLA", form=Table(("source", "label", "mark", "sentence"))),
            Files(
                ("in_domain_train.tsv*",),
                ("in_domain_dev.tsv*",),
                Table(("source", "label", "mark", "sentence")),
            ),
        ],
        metrics=("written_mcc", "exact_match"),
        best_metric="matthews_correlation",
    ),
    _glue(
        "sst2",
        "the sentiment of a sentence from a review",
        _same("sentence", "label"),
        {"0": "negative", "1": "positive"},
        [_files("SST-2")],
    ),
    _glue(
        "mrpc",
        "do two sentences say the same? F1 and accuracy",
        {
            "sentence1": ("sentence1", "#1 String"),
            "sentence2": ("sentence2", "#2 String"),
            "label": ("label", "Quality"),
        },
        {"0": "not_equivalent", "1": "equivalent"},
        [
            _files("MRPC"),
        ],
        metrics=("written_f1:equivalent", "exact_match"),
        best_metric="f1",
    ),
    _glue(
        "qqp",
        "do two questions ask the same? F1 and accuracy",
        {**_same("question1", "question2"), "label": ("label", "is_duplicate")},
        {"0": "not_duplicate", "1": "duplicate"},
        [_files("QQP", form=TornTable())],
        metrics=("written_f1:duplicate", "exact_match"),
        best_metric="f1",
    ),
    _glue(
        "stsb",
        "how alike are two sentences, from 0 to 5? The correlations of Pearson and of Spearman",
        {**_same("sentence1", "sentence2"), "label": ("label", "score")},
        None,
        [
            _files("STS-B"),
            Files(("en-train.csv*",), ("en-dev.csv*",), Table(("sentence1", "sentence2", "score"))),
        ],
        kind="numbers",
        target="{label:0.2}",
        metrics=("written_numbers",),
        best_metric="pearson",
    ),
    _mnli("mnli", "matched", "held-out rows are of the same genres"),
    _mnli("mnli_mismatched", "mismatched", "held-out rows are of other genres"),
    NamedTask(
        name="ax",
        summary="GLUE's diagnostics, for a model of mnli: Matthews' correlation",
        kind="classes",
        columns={
            "premise": ("Premise", "premise"),
            "hypothesis": ("Hypothesis", "hypothesis"),
            "label": ("Label", "label"),
        },
        labels=_NLI,
        prompt=prompt("mnli", "premise", "hypothesis"),
        files=[Files(("",), ("diagnostic/diagnostic-full.tsv*", "diagnostic-full.tsv*"))],
        metrics=("written_mcc", "exact_match"),
        asked_of="mnli",
    ),
    _glue(
        "qnli",
        "does a sentence answer a question?",
        _same("question", "sentence", "label"),
        _ENTAILMENT,
        [_files("QNLI")],
    ),
    _glue(
        "rte",
        "does a sentence follow from a text?",
        _same("sentence1", "sentence2", "label"),
        _ENTAILMENT,
        [_files("RTE")],
    ),
    _glue(
        "wnli",
        "does a sentence with a pronoun replaced follow from it?",
        _same("sentence1", "sentence2", "label"),
        {"0": "not_entailment", "1": "entailment"},
        [_files("WNLI")],
    ),
)
"""The tasks; those of GLUE with two held-out sets are two."""
