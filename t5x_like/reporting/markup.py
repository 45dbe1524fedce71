"""HTML of a report: text is escaped here, and numbers get their units."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from t5x_like.display import example_html
from t5x_like.training.logs.ledger import KINDS

_COLOURS = ("#2a9d58", "#c8553d", "#8d6cab", "#d9a441", "#4a8fc7", "#7a8b99", "#b5838d")
_UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --faint: #777; }
body { font: 15px/1.55 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; }
table { border-collapse: collapse; margin: .6em 0; }
th, td { text-align: left; padding: .15em 1.2em .15em 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: normal; color: var(--faint); white-space: nowrap; }
td.number { text-align: right; }
th.column { white-space: normal; vertical-align: bottom; }
.wide { overflow-x: auto; } .wide th:first-child { position: sticky; left: 0; background: Canvas; }
nav a { margin-right: 1em; } nav a.level-1 { display: block; margin: .4em 0 0; font-weight: bold; }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .7em; font-size: 13px; }
svg { width: 100%; height: auto; }
.bar { display: flex; height: 1.6em; } .bar div { min-width: 1px; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
.note { border-left: 3px solid #d9a441; padding-left: .8em; } .faint { color: var(--faint); }
.best { font-weight: bold; } summary { cursor: pointer; }
.sample { display: grid; grid-template-columns: 1fr 1fr; gap: 2em; font-size: 13px; }
.sample > div { max-height: 32em; overflow: auto; }
@media (max-width: 50em) { .sample { grid-template-columns: 1fr; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing of a page is fetched or run, whatever is in it."""
_HEADING = re.compile(r"<h([12])>([^<]*)</h\1>")
"""One that the table of contents has: text is escaped, so that nothing else looks like it."""


def page(title: str, parts: Iterable[str]) -> str:
    """A page of parts that are HTML, with a table of contents of their headings."""
    contents: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        level, content = match.groups()
        place = f"part-{len(contents) + 1}"
        contents.append(f'<a class="level-{level}" href="#{place}">{content}</a>')
        return f'<h{level} id="{place}">{content}</h{level}>'

    body = _HEADING.sub(numbered, "\n".join(parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}{example_html.STYLE}</style></head>\n"
        f"<body>\n{heading(title, 1)}\n<nav>{' '.join(contents)}</nav>\n{body}\n</body></html>\n"
    )


def text(value: object) -> str:
    """A value as text."""
    return html.escape(str(value))


def heading(title: str, level: int = 2) -> str:
    """The heading of a part."""
    return f"<h{level}>{text(title)}</h{level}>"


def table(
    rows: Iterable[Sequence[object]],
    *,
    header: Sequence[str] = (),
    numbers: bool = False,
    best: int | None = None,
) -> str:
    """A table.

    Args:
      rows: the cells, whose first is the name of the row.
      header: the names of the columns.
      numbers: whether all cells but the first are numbers.
      best: the number of a row that is marked.
    """
    kind = ' class="number"' if numbers else ""
    lines = ["<div class='wide'><table>"]
    if header:
        lines.append(f"<tr>{''.join(map(_column, header))}</tr>")
    for number, (first, *cells) in enumerate(rows):
        mark = ' class="best"' if number == best else ""
        others = "".join(f"<td{kind}>{text(cell)}</td>" for cell in cells)
        lines.append(f"<tr{mark}><th>{text(first)}</th>{others}</tr>")
    return "\n".join([*lines, "</table></div>"])


def _column(name: str) -> str:
    """The name of a column, which may be cut into lines after the task of a metric."""
    return f'<th class="column">{text(name).replace("/", "/<wbr>")}</th>'


def bar(seconds: Mapping[str, float]) -> str:
    """The wall time of a run as a bar of its kinds, and a table of them."""
    whole = sum(seconds.values())
    colours = dict(zip(KINDS, _COLOURS, strict=True))
    pieces, rows = [], []
    for kind, what in KINDS.items():
        share = seconds.get(kind, 0.0) / whole if whole else 0.0
        colour = f"background:{colours[kind]}"
        if share > 0:
            title = f"{what}: {share:.1%}"
            pieces.append(f'<div style="width:{share:.3%};{colour}" title="{text(title)}"></div>')
        rows.append(
            f'<tr><th><span class="key" style="{colour}"></span>{text(what)}</th>'
            f'<td class="number">{duration(seconds.get(kind, 0.0))}</td>'
            f'<td class="number">{share:.1%}</td></tr>'
        )
    return f'<div class="bar">{"".join(pieces)}</div><table>{"".join(rows)}</table>'


def folded(title: str, content: str) -> str:
    """A text of several lines that opens with a click."""
    return f"<details><summary>{text(title)}</summary><pre>{text(content)}</pre></details>"


def count(value: float | None) -> str:
    """A number of things."""
    return "" if value is None else f"{value:,.0f}"


def short(value: float | None, unit: str = "") -> str:
    """A number with three or four digits, such as `12.3 G` and a unit."""
    if value is None:
        return ""
    for prefix, size in _UNITS:
        if abs(value) >= size:
            return f"{value / size:,.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()


def share(value: float | None) -> str:
    """A share of 1 as per cent."""
    return "" if value is None else f"{value:.1%}"


def duration(seconds: float | None) -> str:
    """A time as days, hours, minutes and seconds, the two largest of them."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest} s"
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours} h" if days else f"{hours} h {minutes} min"
