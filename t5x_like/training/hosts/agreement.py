"""A comparison of the processes of a run: their settings, code and data must be the same."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import jax
import numpy as np

from t5x_like.training.hosts.multihost import ProcessError, every_text, gathered


def agree(what: str, lines: Sequence[str]) -> None:
    """Raises an error if processes differ; all of them call it.

    A pod whose hosts have different settings, code or data would train wrongly, without an error.

    Args:
      what: the subject of the lines, such as "the configuration".
      lines: the text of this process; the error shows the first lines that differ.

    Raises:
      ProcessError: in every process; names those that differ from process 0, and the difference.
    """
    if jax.process_count() == 1:
        return
    own_text = "\n".join(lines).encode()
    digest = np.frombuffer(hashlib.sha256(own_text).digest(), np.uint8)
    digests = gathered(what, digest)
    if (digests == digests[0]).all():
        return
    raise ProcessError(difference(what, every_text(what, own_text.decode())))


def difference(what: str, texts: Sequence[str]) -> str:
    """A message about the first difference between the texts of all processes; "" without one."""
    differ = [n for n, text in enumerate(texts) if text != texts[0]]
    if not differ:
        return ""
    first, other = (texts[n].split("\n") for n in (0, differ[0]))
    pairs = itertools.zip_longest(first, other, fillvalue="nothing")
    here, there = next(pair for pair in pairs if pair[0] != pair[1])
    return (
        f"{what} of process(es) {', '.join(map(str, differ))} is not that of process 0: process 0 "
        f"has {here!r}, process {differ[0]} {there!r}. Start all processes with the same command, "
        "files and version of the code"
    )
