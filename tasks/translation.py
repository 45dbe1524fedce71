"""Translation by name of the task: WMT's pairs of languages, and Multi30k's captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.data.labelled.distributed_files import Files, Parallel
from t5x_like.data.labelled.named_tasks import NamedTask, Online

_NAMES = {"cs": "Czech", "de": "German", "en": "English", "fr": "French", "ro": "Romanian"}


class Direction:
    """Makes a row with `source` and `target` of one that has languages, or both of these."""

    def __init__(self, source: str, target: str) -> None:
        self._codes = {"source": source, "target": target}

    def __call__(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if "source" in row:
            yield dict(row)
            return
        languages = row.get("translation", row)
        yield {side: languages[code] for side, code in self._codes.items()}


def _translation(
    name: str, summary: str, source: str, target: str, dev: str, **options: Any
) -> NamedTask:
    def both(part: str) -> str:
        return f"{part}.{source}* {part}.{target}*"

    return NamedTask(
        name=f"{name}_{source}_{target}",
        summary=f"{summary}, {_NAMES[source]} to {_NAMES[target]}",
        kind="texts",
        columns={"source": ("source",), "target": ("target",)},
        prompt=f"translate {_NAMES[source]} to {_NAMES[target]}: {{source}}",
        target="{target}",
        files=[Files((both("train"),), (both(dev), both("dev")), Parallel())],
        expand=Direction(source, target),
        metrics=("bleu",),
        best_metric="bleu",
        **options,
    )


def _wmt(year: str, other: str) -> NamedTask:
    return _translation(
        *(f"wmt{year}", f"WMT {year}, news", "en", other, "valid"),
        tfds=Online(f"wmt{year}_translate/{other}-en"),
        hugging_face=Online(f"wmt/wmt{year}", config=f"{other}-en"),
    )


LABELLED = (
    *(_wmt(*which) for which in (("14", "de"), ("14", "fr"), ("16", "ro"))),
    *(
        _translation("multi30k", "captions of images", source, target, "val")
        for source, target in (("en", "de"), ("de", "en"), ("en", "fr"), ("en", "cs"))
    ),
)
"""The tasks. T5's prompts are those from English; the others have the same form."""
