"""Parts of a run that fine-tunes an encoder-decoder to write texts, or labels as words (T5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.labelled import columns, written_rows
from t5x_like.data.labelled.kinds import texts
from t5x_like.data.labelled.labelled_files import Labelled, LabelledFiles
from t5x_like.data.labelled.rows import Rows
from t5x_like.inference.text_rows import bucket
from t5x_like.objectives.supervised.numbers import Numbers
from t5x_like.objectives.supervised.text_to_text import FramedTextToText, TextToText

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.runs.settings.finetuning.finetuned_model import FineTunedModel

KIND = texts.Texts.name
MOST_TOKENS = 512
_AS_WORDS = (None, KIND, "classes", "numbers")
"""The kinds that a T5 learns as texts: the names of classes, and numbers as they are written."""
_FRAMED = ("bart", "led")
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
            "give it a head (--head), or pairs of texts (--kind texts)"
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


def objective(model: FineTunedModel, labelled: Labelled) -> TextToText:
    """The objective of a model's family, which measures what the model writes."""
    of_family = FramedTextToText if model.model_type in _FRAMED else TextToText
    return of_family(labelled.metrics, labelled.several_targets)


def measured(labelled: Labelled, files: LabelledFiles, *, kind: str | None) -> Labelled:
    """Labelled files with the metrics of what is written, and the one that says what is best.

    Of one text that several held-out rows have, all their targets are right, where they are texts
    and not classes or numbers.

    Args:
      labelled: the files, with the metrics of a task if they are known.
      files: what they hold.
      kind: the kind that a person names; None if none is named.

    Raises:
      ValueError: a person says that they are numbers, and one of them is not.
    """
    if labelled.metrics:
        return labelled
    numbers = [columns.number(text) for text in files.some_targets]
    if kind == "numbers" and None in numbers:
        text = files.some_targets[numbers.index(None)]
        raise ValueError(
            f"{labelled.train}: the column {files.fields['targets']!r} holds {text!r}, which is "
            "not a number: leave out --kind (kind), or name another column (--label)"
        )
    are_whole = all(number is not None and number.is_integer() for number in numbers)
    if kind == "numbers" or not (files.labels or are_whole or None in numbers):
        return labelled._replace(metrics=("written_numbers",), best_metric=Numbers.best_metric)
    if files.labels or are_whole:
        return labelled._replace(metrics=("exact_match",))
    return labelled._replace(metrics=("bleu", "rouge"), several_targets=True)


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
