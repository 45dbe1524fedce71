"""The corpus that a user names on the command line: files, or a TFDS data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.data.corpora.tfds_text import TfdsText

TFDS = "tfds:"


def user_corpus(
    named: str | Sequence[str],
    *,
    field: str | Mapping[str, str] | None = None,
    separator: str = "blank_line",
    validation: float = 0.01,
) -> Corpus:
    """A corpus of files by path or glob, or of `tfds:<name>`, such as `tfds:wiki40b/en`.

    Args:
      named: the files or the data set.
      field: the field of a row that holds the text; None for `text`, or for `inputs` and `targets`
        where a row has both. {column: field} where columns have other names.
      separator: the separator of documents in plain text: `line`, `blank_line` or `file`.
      validation: the fraction of documents to hold out.

    Raises:
      ValueError: an argument is invalid.
    """
    if isinstance(named, str) and named.startswith(TFDS):
        return TfdsText(named.removeprefix(TFDS), field=field, validation=validation)
    return TextFiles(named, field=field, separator=separator, validation=validation)
