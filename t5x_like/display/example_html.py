"""Examples as HTML: as a page that needs no other file, or as parts of another page."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from t5x_like.display.example_view import ExampleView, Token

_PAGE_STYLE = """
body { font: 15px/1.6 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
h2 { margin-top: 2em; } th { text-align: left; padding-right: 1.5em; font-weight: normal; }
th { color: #777; }
"""
STYLE = """
.line { font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.name, .special, .context { color: #777; }
.masked { background: #c33; color: #fff; } .target { color: #07c; font-weight: bold; }
.replaced, .kept, [class^=sentinel] { color: #000; }
.replaced { background: #fd6; } .kept { background: #cfc; }
.sentinel0 { background: #fbb; } .sentinel1 { background: #bfb; } .sentinel2 { background: #ffb; }
.sentinel3 { background: #bdf; } .sentinel4 { background: #fbf; } .sentinel5 { background: #bff; }
"""
"""How tokens look by their roles; a page with `legend`, `line` or `example` has it in its style."""
_LEGEND = (
    Token("masked", "masked"),
    Token("replaced by a random token", "replaced"),
    Token("kept, and predicted", "kept"),
    Token("predicted", "target"),
    Token("sentinels", "sentinel0"),
    Token("not predicted, special", "context"),
)


def page(title: str, groups: Mapping[str, Mapping[str, ExampleView]]) -> str:
    """A page of examples.

    Args:
      title: the title of the page.
      groups: headings, each with its examples by the heading of each example.
    """
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f"<style>{_PAGE_STYLE}{STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        legend(),
    ]
    for heading, examples in groups.items():
        parts.append(f"<h2>{html.escape(heading)}</h2>")
        for place, view in examples.items():
            parts += [f"<h3>{html.escape(place.capitalize())}</h3>", example(view)]
    return "\n".join([*parts, "</body></html>", ""])


def legend() -> str:
    """The meaning of the colours, as HTML."""
    return f"<p>{' &nbsp; '.join(map(_span, _LEGEND))}</p>"


def example(shown: ExampleView) -> str:
    """An example: its lines under their names, then its numbers."""
    parts = [line(name, tokens) for name, tokens in shown.lines.items()]
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in shown.numbers.items()
    )
    return "\n".join([*parts, f"<table>{rows}</table>"])


def line(name: str, tokens: Sequence[Token]) -> str:
    """A line of tokens under its name."""
    body = "".join(map(_span, tokens))
    return f'<div class="name">{html.escape(name)}</div>\n<div class="line">{body}</div>'


def _span(token: Token) -> str:
    text = html.escape(token.text)
    return text if token.role == "text" else f'<span class="{token.role}">{text}</span>'
