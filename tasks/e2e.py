"""Sentences about restaurants, from their data (Novikova et al., 2017), by name of the task."""

from __future__ import annotations

from t5x_like.data.labelled.distributed_files import Files
from t5x_like.data.labelled.named_tasks import NamedTask, Online

LABELLED = (
    NamedTask(
        name="e2e",
        summary="a text about a restaurant, from its data",
        kind="texts",
        columns={
            "mr": ("mr", "meaning_representation"),
            "ref": ("ref", "human_reference", "target"),
        },
        prompt="e2e mr: {mr}",
        target="{ref}",
        files=[Files(("trainset.csv*", "train.jsonl*"), ("devset.csv*",))],
        tfds=Online("e2e_cleaned"),
        hugging_face=Online("GEM/e2e_nlg"),
        metrics=("bleu", "rouge"),
        best_metric="bleu",
        several_targets=True,
    ),
)
"""The task. It is not one of T5's: the prompt has the form of theirs."""
