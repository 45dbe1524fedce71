"""The findings of checks about a run, its hosts and its disks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Literal

from t5x_like.training.hosts import multihost

State = Literal["good", "note", "bad"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of a check.

    Attributes:
      subject: what was looked at, such as "room".
      state: "bad" if the run cannot work, "note" if it may not.
      text: what was found.
      advice: what to do.
    """

    subject: str
    state: State
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}" + (f". {self.advice}" if self.advice else "")


def of_all_hosts(mine: Iterable[Finding], names: Sequence[str]) -> list[Finding]:
    """The findings of every process about its own host; those that are equal are one.

    Args:
      mine: those of this process.
      names: the hosts, by the number of the process.
    """
    text = json.dumps([dataclasses.astuple(finding) for finding in mine])
    texts = multihost.every_text("findings of all hosts", text)
    hosts_of: dict[Finding, list[str]] = {}
    for name, text in zip(names, texts, strict=True):
        for fields in json.loads(text):
            hosts_of.setdefault(Finding(*fields), []).append(name)
    return [
        finding
        if len(hosts) == len(names)
        else dataclasses.replace(finding, text=f"{finding.text} (on {', '.join(hosts)})")
        for finding, hosts in hosts_of.items()
    ]
