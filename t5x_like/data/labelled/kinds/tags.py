"""A tag of each word."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_like.core import tag_schemes
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import kind
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.rows import Rows

_COLUMNS = ("words", "tags")


class Tags:
    """Lists of words and of as many tags: `.conll` files have them."""

    name = "tags"

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether there are words and tags, and nothing else."""
        return {*rows.names} == {*_COLUMNS}

    def content(self, rows: Rows, named: Named) -> Content:
        """How often each tag occurs; raises CorpusError as `kind.counted` does."""
        if not {*_COLUMNS} <= {*rows.names}:
            raise CorpusError(
                f"{rows.files} has the columns {', '.join(rows.names)}: tags of words are read "
                "from .conll files, or from lists in the columns words and tags"
            )
        written = {tag for row in rows for tag in row["tags"]}
        as_bio = tag_schemes.mark_entities(written)
        counts = kind.counted(_tags(rows, as_bio=as_bio), "tags", rows.files)
        learns = "tags of words" + (", read as BIO," if as_bio and written != {*counts} else "")
        return Content({name: name for name in _COLUMNS}, learns, [("words",)], counts)

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Raises CorpusError for a tag that training never shows."""
        as_bio = tag_schemes.mark_entities(content.labels)
        kind.check_known(_tags(rows, as_bio=as_bio), content.labels, "tags", rows.files)


def _tags(rows: Rows, *, as_bio: bool) -> Iterator[str]:
    for row in rows:
        yield from tag_schemes.as_bio(row["tags"]) if as_bio else row["tags"]
