"""A class of a text or of two, of classes that have an order."""

from __future__ import annotations

import collections
import math
from typing import ClassVar

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import columns
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.kinds.classes import Classes
from t5x_like.data.labelled.rows import Rows


class Ordered(Classes):
    """Numbers, which are in order, or names, whose order files do not say."""

    name = "ordered"
    what: ClassVar = "an ordered class"

    def fits(self, rows: Rows, named: Named) -> bool:
        """False: a user says that classes have an order."""
        return False

    def content(self, rows: Rows, named: Named) -> Content:
        """Like that of classes; numbers are in the order of their values.

        Raises:
          CorpusError: as for classes, or two names stand for the same number.
        """
        content = super().content(rows, named)
        values = {name: columns.number(name) for name in content.labels}
        if any(value is None or not math.isfinite(value) for value in values.values()):
            return content._replace(needs_order=True)
        ((value, times),) = collections.Counter(values.values()).most_common(1)
        if times > 1:
            same = [name for name in values if values[name] == value]
            raise CorpusError(
                f"{rows.files}: the column {content.fields['label']!r} holds "
                f"{' and '.join(map(repr, same))}, which are the same number: write it in one way"
            )
        counts = sorted(content.labels.items(), key=lambda item: float(item[0]))
        return content._replace(labels=dict(counts))
