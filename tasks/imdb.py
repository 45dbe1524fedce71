"""The sentiment of reviews of films (Maas et al., 2011), by name of the task."""

from __future__ import annotations

from t5x_like.data.labelled.distributed_files import Files, Folders
from t5x_like.data.labelled.named_tasks import NamedTask, Online


def _folders(part: str) -> tuple[str, ...]:
    texts = f"{part}/neg/*.txt {part}/pos/*.txt"
    return texts, " ".join(f"aclImdb/{pattern}" for pattern in texts.split())


LABELLED = (
    NamedTask(
        name="imdb",
        summary="the sentiment of a review; its test files are the held-out ones",
        kind="classes",
        columns={"text": ("text",), "label": ("label",)},
        labels={"neg": "neg", "pos": "pos"} | {"0": "neg", "1": "pos"},
        prompt="imdb text: {text}",
        files=[Files(_folders("train"), _folders("test"), Folders())],
        tfds=Online("imdb_reviews", "test"),
        hugging_face=Online("stanfordnlp/imdb", "test"),
    ),
)
"""The task. It is not one of T5's: the prompt has the form of theirs."""
