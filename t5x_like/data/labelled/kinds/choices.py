"""One of several texts that follow a text."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.labelled import columns, kind
from t5x_like.data.labelled.columns import Named
from t5x_like.data.labelled.kind import Content
from t5x_like.data.labelled.rows import Rows

_LISTS = ("choices", "options", "endings", "alternatives", "candidates")
_NUMBERED = re.compile(
    r"(ending|choice|option|answer|alternative|solution|sol|opt)_?(\d+|[a-zA-Z])"
)
_PAIRS = (
    *(("article", "question"), ("passage", "question"), ("context", "question")),
    *(("sent1", "sent2"), ("ctx_a", "ctx_b"), ("premise", "question")),
)
_TEXTS = ("question", "context", "ctx", "premise", "sent1", "goal", "stem", "startphrase")
_LABELS = ("label", "answer", "labels", "answerkey", "correct", "gold", "target")


class Choices:
    """A list of texts, or columns such as `ending0` and `ending1`, and which of them is right."""

    name = "choices"

    def fits(self, rows: Rows, named: Named) -> bool:
        """Whether there are alternatives and a label of a usual name."""
        return bool(_alternatives(rows)) and _label(rows, named) is not None

    def content(self, rows: Rows, named: Named) -> Content:
        """The alternatives of each row and which is right how often.

        Raises:
          CorpusError: there are no alternatives, texts or labels, or a label names none of them.
        """
        alternatives = _alternatives(rows)
        if not alternatives:
            raise CorpusError(
                f"{rows.files} has the columns {', '.join(rows.names)}: choices are read from a "
                "list in a column choices, or from columns such as choice0 and choice1"
            )
        if (label := _label(rows, named)) is None:
            raise CorpusError(f"{rows.files}: name the column of the right choice (--label)")
        texts = _texts(rows, named, [label, *alternatives])
        rows.check_texts([*texts, *alternatives[:2]])
        names = _names(rows, label, alternatives)
        counts = dict.fromkeys(names, 0)
        for number, cell in enumerate(rows.cells(label), start=1):
            if str(cell) not in counts:
                raise CorpusError(
                    f"{rows.files}: the label {label!r} of row {number:,} is {cell!r:.60}, not one "
                    f"of {', '.join(names)}"
                )
            counts[str(cell)] += 1
        fields = {
            **dict(zip(("inputs", "inputs2"), texts, strict=False)),
            **{f"choice_{number}": field for number, field in enumerate(alternatives)},
            "label": label,
        }
        learns = (
            f"which of {len(alternatives)} choices the column {label!r} names for "
            f"{kind.quoted(texts)}"
        )
        return Content(fields, learns, [(*texts, field) for field in alternatives], counts)

    def check_held_out(self, rows: Rows, content: Content) -> None:
        """Raises CorpusError for a label that names no alternative."""
        label = content.fields["label"]
        kind.check_known(map(str, rows.cells(label)), content.labels, label, rows.files)


def _alternatives(rows: Rows) -> list[str]:
    """The fields of the alternatives, in their order; empty where there are none."""
    for name in rows.names:
        if name.lower() in _LISTS:
            sizes = [columns.size(cell) for cell in rows.cells(name)]
            if all(sizes):
                return [f"{name}[{number}]" for number in range(max(filter(None, sizes)))]
    matches = {name: _NUMBERED.fullmatch(name.lower()) for name in rows.names}
    series: dict[str, list[str]] = {}
    for name, match in matches.items():
        if match is not None:
            series.setdefault(match[1], []).append(name)
    longest = max(series.values(), key=len, default=[])
    return sorted(longest, key=_order) if len(longest) > 1 else []


def _order(name: str) -> tuple[int, str]:
    ending = re.search(r"\d+$", name)
    return (int(ending[0]), "") if ending else (0, name)


def _label(rows: Rows, named: Named) -> str | None:
    if named.label is not None:
        rows.check_column(named.label)
        return named.label
    known = {name.lower(): name for name in rows.names}
    return next((known[name] for name in _LABELS if name in known), None)


def _texts(rows: Rows, named: Named, taken: Sequence[str]) -> tuple[str, ...]:
    if named.text is not None:
        return columns.texts(rows, named)
    known = {name.lower(): name for name in rows.names if name not in taken}
    for pair in _PAIRS:
        if {*pair} <= known.keys():
            return tuple(known[name] for name in pair)
    if usual := [known[name] for name in _TEXTS if name in known]:
        return (usual[0],)
    return columns.texts(rows, named._replace(label=taken[0]))


def _names(rows: Rows, label: str, alternatives: Sequence[str]) -> tuple[str, ...]:
    """How labels name the alternatives, in their order: by numbers, letters or columns.

    Raises:
      CorpusError: nobody can know.
    """
    count, used = len(alternatives), {str(cell) for cell in rows.cells(label)}
    numbered = [tuple(str(n + first) for n in range(count)) for first in (0, 1)]
    lettered = [
        tuple(letters[:count]) for letters in (string.ascii_uppercase, string.ascii_lowercase)
    ]
    for names in (*lettered, tuple(alternatives)):
        if used <= {*names}:
            return names
    fitting = [names for names in numbered if used <= {*names}]
    if len(fitting) == 1:
        return fitting[0]
    shown = ", ".join(sorted(used)[:4])
    if fitting:
        raise CorpusError(
            f"{rows.files}: the column {label!r} holds {shown} only: whether it counts {count} "
            "choices from 0 or from 1 is not clear. Write letters (A, B) in place of numbers"
        )
    raise CorpusError(
        f"{rows.files}: the column {label!r} holds {shown:.100}: name the right one of {count} "
        "choices by its number from 0 or from 1, by a letter, or by its column"
    )
