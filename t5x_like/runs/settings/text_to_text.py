"""Parts of a run that fine-tunes an encoder-decoder to write texts, or labels as words (T5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.labelled import written_rows
from t5x_like.data.labelled.kinds import texts
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.labelled.rows import Rows
from t5x_like.inference.text_rows import bucket
from t5x_like.objectives.supervised.text_to_text import FramedTextToText, TextToText

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.runs.settings.finetuned_model import FineTunedModel

KIND = texts.Texts.name
MOST_TOKENS = 512
_AS_WORDS = (None, KIND, "classes", "numbers")
"""The kinds that a T5 learns as texts: the names of classes, and numbers as they are written."""
_FRAMED = ("bart",)
"""The families that read and write special tokens around a text (`FramedTextToText`)."""


def check_kind(kind: str | None, directory: str) -> None:
    """Raises ValueError where a model that writes all its answers does not learn a kind of label.

    Args:
      kind: the kind; None for one that is to be found.
      directory: the directory of the model.
    """
    if kind not in _AS_WORDS:
        raise ValueError(
            f"{directory} has a model that writes its answers, which does not learn {kind} here: "
            "give it pairs of texts (--kind texts), or take a model with a head, such as a BERT"
        )


def as_pairs(labelled: Labelled, files: LabelledFiles, root: Path) -> Labelled:
    """Labelled files as pairs of texts; they are written once where their cells are other.

    Args:
      labelled: the files.
      files: what they hold.
      root: the folder of caches.
    """
    train = Rows(labelled.train, header=labelled.header)
    if "inputs2" not in files.fields and all(
        isinstance(cell, str) for cell in train.cells(files.fields["targets"])
    ):
        return labelled
    name = TextFiles(labelled.train).name
    rows = {name: train}
    if labelled.dev is not None:
        rows[f"{name}_dev"] = Rows(labelled.dev, header=labelled.header)
    made = written_rows.written(
        {split: (texts.as_pair(row, files.fields) for row in of) for split, of in rows.items()},
        identity=[dict(files.fields), *(TextFiles(of.files).fingerprint() for of in rows.values())],
        name=name,
        root=root,
    )
    return labelled._replace(train=made[name], dev=made.get(f"{name}_dev"), header=())


def objective(model: FineTunedModel, measures: tuple[str, ...]) -> TextToText:
    """The objective of a model's family, which measures what the model writes."""
    if model.model_type in _FRAMED:
        return FramedTextToText(measures)
    return TextToText(measures)


def measures(files: LabelledFiles) -> tuple[str, ...]:
    """The metrics of what is written, the first of which says which checkpoint is best."""
    return ("exact_match",) if files.labels else ("bleu", "rouge")


def lengths(
    files: LabelledFiles, vocabulary: Vocabulary, model: FineTunedModel, *, inputs: int | None
) -> dict[str, int]:
    """The tokens of the longest of some rows, rounded up; at most what the model reads.

    Args:
      files: the files.
      vocabulary: the vocabulary of the model.
      model: the model.
      inputs: the tokens of inputs, where they are given.
    """
    most = min(MOST_TOKENS, model.max_tokens or MOST_TOKENS)
    sides = {
        "inputs": [" ".join(of) for of in files.some_texts],
        "targets": files.some_targets,
    }
    specials = 2  # <s> and </s>, at most
    longest = {
        name: min(bucket(max(len(vocabulary.encode(text)) for text in of) + specials), most)
        for name, of in sides.items()
    }
    return longest | ({} if inputs is None else {"inputs": inputs})
