"""SuperGLUE's WSC by name of the task (Levesque et al., 2012): what does a pronoun mean?

An encoder reads the text, in which stars are around the pronoun, and the candidate, and says
whether it is right. A T5 reads the text and writes what the pronoun means; it learns from right
candidates alone (Raffel et al., 2020, section 2.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.tasks.superglue import FALSE_TRUE, files

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled.named_tasks import NOT, NamedTask, Online


def _marked(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with stars around the pronoun; `referent` is the candidate, with `NOT` a wrong one.

    Raises:
      CorpusError: the pronoun is not where the row says.
    """
    row = {**row, **row.get("target", {})}
    words, place, pronoun = row["text"].split(" "), row["span2_index"], row["span2_text"]
    if pronoun not in words[place]:
        raise CorpusError(
            f"{row['text']!r:.60}: word {place} is {words[place]!r}, not the pronoun {pronoun!r}"
        )
    words[place] = words[place].replace(pronoun, f"*{pronoun}*", 1)
    right = FALSE_TRUE[str(row["label"]).lower()] == "True"
    yield {
        "text": " ".join(words),
        "candidate": row["span1_text"],
        "label": row["label"],
        "referent": row["span1_text"] if right else f"{NOT}{row['span1_text']}",
    }


def _wsc(columns: tuple[str, ...], **options: Any) -> NamedTask:
    return NamedTask(
        name="wsc",
        columns={column: (column,) for column in columns},
        files=files("WSC"),
        tfds=Online("super_glue/wsc.fixed"),
        hugging_face=Online("aps/super_glue", config="wsc.fixed"),
        expand=_marked,
        **options,
    )


LABELLED = (
    _wsc(
        ("text", "candidate", "label"),
        summary="does a pronoun mean this?",
        kind="classes",
        labels=FALSE_TRUE,
        written=_wsc(
            ("text", "referent"),
            summary="a T5 learns what a pronoun means from right candidates",
            kind="texts",
            learns=lambda row: not row["referent"].startswith(NOT),
            prompt="wsc: {text}",
            target="{referent}",
            metrics=("written_referent",),
            best_metric="accuracy",
        ),
    ),
)
"""The task."""
