"""Named entities by name of the task: CoNLL-2003, WNUT-17 and GermEval 2014."""

from __future__ import annotations

from typing import Any

from t5x_like.data.labelled.distributed_files import Files, Words
from t5x_like.data.labelled.named_tasks import NamedTask, Online

_TAGGED = {"words": ("words", "tokens"), "tags": ("tags", "ner_tags", "ner")}


def _tagged(name: str, summary: str, files: list[Files], **options: Any) -> NamedTask:
    return NamedTask(
        name=name, summary=summary, kind="tags", columns=_TAGGED, files=files, **options
    )


LABELLED = (
    _tagged(
        "conll2003",
        "persons, places, organisations and others in English news",
        [
            Files(("eng.train*",), ("eng.testa*",), Words()),
            Files(("train.txt*",), ("valid.txt*", "dev.txt*"), Words()),
        ],
        tfds=Online("conll2003", "dev"),
        hugging_face=Online("eriktks/conll2003"),
    ),
    _tagged(
        "wnut17",
        "rare and new names in posts",
        [Files(("wnut17train.conll*",), ("emerging.dev.conll*",), Words(separator="\t"))],
        hugging_face=Online("leondz/wnut_17"),
    ),
    _tagged(
        "germeval2014",
        "names in German texts; the outer ones of nested names",
        [
            Files(
                ("NER-de-train.tsv*",),
                ("NER-de-dev.tsv*",),
                Words(word=1, tag=2, separator="\t", numbered=True),
            )
        ],
        hugging_face=Online("GermanEval/germeval_14"),
    ),
)
"""The tasks."""
