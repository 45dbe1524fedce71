"""The parser of a command: help as wide as the terminal, words by Tab, the nearest flag."""

from __future__ import annotations

import argparse
import difflib
import os
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

COMPLETES = "_ARGCOMPLETE"
"""Set where the shell asks for words: the place of the program among those of COMP_LINE."""


def offer(action: argparse.Action, words: Callable[[], Sequence[str]]) -> None:
    """Completes values of a flag by these words."""
    action.completer = lambda **_: words()  # type: ignore[attr-defined]


class Help(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the width of the terminal; those with indented lines stay."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if "\n " in part else textwrap.fill(part, width, break_on_hyphens=False)
            for part in text.strip("\n").split("\n\n")
        )


class CommandParser(argparse.ArgumentParser):
    """The parser of `t5x_like COMMAND`, or of another program with the same flags."""

    def __init__(self, command: str = "", **options: Any) -> None:
        """As argparse's, for a command; `prog` names another program."""
        options.setdefault("prog", f"t5x_like {command}".rstrip())
        super().__init__(formatter_class=Help, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but flags may stand between words, and an unknown one's error advises."""
        self.complete()
        known, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            self.refuse(unknown, self.nearest_flag(unknown[0]))
        return known

    def refuse(self, unknown: Sequence[str], advice: str) -> None:
        """Ends with an error about words that nothing reads."""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{advice}")

    def nearest_flag(self, word: str) -> str:
        """`; nearest: --recipe` for `--reciep`."""
        flag = word.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        near = difflib.get_close_matches(flag, known, n=1, cutoff=0.8) if flag[:2] == "--" else []
        return f"; nearest: {near[0]}" if near else ""

    def complete(self) -> None:
        """Answers the shell and ends the process, if Tab has started it."""
        if COMPLETES in os.environ:
            import argcomplete

            argcomplete.autocomplete(self)
