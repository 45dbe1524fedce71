"""Summaries by name of the task: CNN/DailyMail's articles, and SciTLDR's papers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.data.labelled.distributed_files import Files
from t5x_like.data.labelled.named_tasks import NamedTask, Online


def _one_summary(row: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The sentences of SciTLDR's abstract in one text, and the first of its summaries."""
    yield {"document": " ".join(row["source"]), "summary": row["target"][0]}


def _tables(*folders: str) -> list[Files]:
    """JSON lines, tables or Parquet."""
    parts = [f"{folder}{{}}.{end}*" for folder in folders for end in ("jsonl", "csv", "parquet")]
    train = [part.format("train") for part in parts]
    return [Files(train, [part.format(dev) for part in parts for dev in ("validation", "dev")])]


LABELLED = (
    NamedTask(
        name="cnn_dailymail",
        summary="the highlights of news",
        kind="texts",
        columns={
            "article": ("article",),
            "highlights": ("highlights",),
        },
        prompt="summarize: {article}",
        target="{highlights}",
        files=_tables(""),
        tfds=Online("cnn_dailymail"),
        hugging_face=Online("abisee/cnn_dailymail", config="3.0.0"),
        metrics=("rouge",),
        best_metric="rouge2",
    ),
    NamedTask(
        name="scitldr",
        summary="a sentence about a paper, from its abstract",
        kind="texts",
        columns={"document": ("document",), "summary": ("summary",)},
        prompt="summarize: {document}",
        target="{summary}",
        files=_tables("SciTLDR-A/", "SciTLDR-Data/SciTLDR-A/", ""),
        hugging_face=Online("allenai/scitldr", config="Abstract"),
        expand=_one_summary,
        metrics=("rouge",),
        best_metric="rouge1",
    ),
)
"""The tasks."""
