"""Examples as one HTML page, which needs no other file."""

from __future__ import annotations

import html
from collections.abc import Mapping

from t5x_like.display.example_view import ExampleView, Token

_STYLE = """
body { font: 15px/1.6 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
h2 { margin-top: 2em; } th { text-align: left; padding-right: 1.5em; font-weight: normal; }
.line { font-family: ui-monospace, monospace; white-space: pre-wrap; }
.name, th, .special, .context { color: #777; }
.masked { background: #c33; color: #fff; } .replaced { background: #fd6; }
.kept { background: #cfc; } .target { color: #07c; font-weight: bold; }
.sentinel0 { background: #fbb; } .sentinel1 { background: #bfb; } .sentinel2 { background: #ffb; }
.sentinel3 { background: #bdf; } .sentinel4 { background: #fbf; } .sentinel5 { background: #bff; }
"""
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
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{' &nbsp; '.join(_span(token) for token in _LEGEND)}</p>",
    ]
    for heading, examples in groups.items():
        parts.append(f"<h2>{html.escape(heading)}</h2>")
        for place, example in examples.items():
            parts.append(f"<h3>{html.escape(place.capitalize())}</h3>")
            for name, tokens in example.lines.items():
                body = "".join(map(_span, tokens))
                parts.append(f'<div class="name">{html.escape(name)}</div>')
                parts.append(f'<div class="line">{body}</div>')
            rows = "".join(
                f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
                for name, value in example.numbers.items()
            )
            parts.append(f"<table>{rows}</table>")
    return "\n".join([*parts, "</body></html>", ""])


def _span(token: Token) -> str:
    text = html.escape(token.text)
    return text if token.role == "text" else f'<span class="{token.role}">{text}</span>'
