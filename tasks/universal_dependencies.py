"""Parts of speech in a treebank of Universal Dependencies, by name of the task."""

from __future__ import annotations

from t5x_like.data.labelled.distributed_files import Files, Words
from t5x_like.data.labelled.named_tasks import NamedTask, Online

LABELLED = (
    NamedTask(
        name="ud",
        summary="the part of speech of each word; the files of one treebank",
        kind="tags",
        columns={"words": ("words", "tokens"), "tags": ("tags", "upos")},
        files=[
            Files(
                ("*-ud-train.conllu*",),
                ("*-ud-dev.conllu*",),
                Words(word=1, tag=3, separator="\t", numbered=True),
            )
        ],
        hugging_face=Online("universal-dependencies/universal_dependencies", config="en_ewt"),
        best_metric="accuracy",
    ),
)
"""The task."""
