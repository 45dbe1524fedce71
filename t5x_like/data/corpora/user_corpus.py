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
    validation_files: str | Sequence[str] | None = None,
    header: Sequence[str] = (),
    labels: Sequence[str] | None = None,
) -> Corpus:
    """A corpus of files by path or glob, or of `tfds:<name>`, such as `tfds:wiki40b/en`.

    Args:
      named: the files or the data set.
      field: the field of a row that holds the text; None for `text`, or for `inputs` and `targets`
        where a row has both. {column: field} where columns have other names.
      separator: the separator of documents in plain text: `line`, `blank_line` or `file`.
      validation: the fraction of documents to hold out.
      validation_files: files to hold out instead, by path or glob.
      header: the names of the columns of tables whose first line does not have them.
      labels: the names of the classes in the column `label`, in the order of their numbers; None
        for their own (`Corpus.label_names`).

    Raises:
      ValueError: an argument is invalid.
    """
    if isinstance(named, str) and named.startswith(TFDS):
        if validation_files is not None:
            raise ValueError(f"{named} has splits of its own: leave out CORPUS_HELD_OUT")
        corpus: Corpus = TfdsText(named.removeprefix(TFDS), field=field, validation=validation)
        return _labelled(corpus, labels)
    corpus = TextFiles(
        named,
        field=field,
        separator=separator,
        validation=validation,
        validation_files=validation_files,
        header=header,
    )
    return _labelled(corpus, labels)


def _labelled(corpus: Corpus, labels: Sequence[str] | None) -> Corpus:
    return corpus if labels is None else corpus.with_label_names({"label": labels})
