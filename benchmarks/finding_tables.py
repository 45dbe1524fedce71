"""The tables of the findings' page, made from the lines of finished runs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Lines = Sequence[Mapping[str, Any]]

COLUMNS: dict[str, dict[str, str]] = {
    "electra": {
        "POS": "probe/pos_accuracy/mean",
        "SST-2": "probe/sst2_accuracy/mean",
        "CoLA, MCC": "probe/cola_matthews/mean",
        "CoLA, ROC": "probe/cola_roc_area/mean",
    },
    "masking": {
        "masked loss": "held_out/trained/mlm_loss",
        "accuracy": "held_out/trained/mlm_accuracy",
    },
    "albert": {
        "masked loss": "held_out/trained/mlm_loss",
        "order or next": "held_out/trained/sentence_accuracy",
        "its loss": "held_out/trained/sentence_loss",
        "POS": "probe/pos_accuracy/mean",
    },
    "t5": {
        "E2E loss": "e2e/trained/content_loss",
        "E2E accuracy": "e2e/trained/content_accuracy",
        "SST-2": "sst2/trained/content_accuracy",
    },
    "xlnet": {
        "loss": "held_out/trained/loss",
        "accuracy": "held_out/trained/accuracy",
    },
}
"""For each finding: {heading: metric}."""

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def fill_tables(page: str, lines: Lines, sides: Mapping[str, Mapping[str, str]]) -> str:
    """`page` with its tables made again.

    Args:
      page: has `<!-- table: NAME -->` and `<!-- end of table -->` around each table, and the
        picture of its runs; the name `all` stands for their number and time.
      lines: the results' lines that count.
      sides: {finding: {side: its label}}, in the order of rows.
    """

    def table(match: re.Match[str]) -> str:
        name = match[2]
        if name == "all":
            return f"{match[1]}\n{_time(lines)}\n{match[3]}"
        mine = [line for line in lines if line["finding"] == name]
        picture = f"![Each seed of each side, and means](findings/{name}.png)\n\n" if mine else ""
        return f"{match[1]}\n{table_of(mine, sides[name], COLUMNS[name])}\n{picture}{match[3]}"

    return _TABLE.sub(table, page)


def table_of(lines: Lines, sides: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """A row for each side that was run; means and spreads are over its seeds."""
    head = ["", "seeds", "parameters", "steps", "10^12 FLOPs", *columns]
    rows = [head, ["-", *(["-:"] * (len(head) - 1))]]
    for side, label in sides.items():
        if runs := [line for line in lines if line["side"] == side]:
            rows.append(
                [
                    label,
                    str(len(runs)),
                    f"{runs[0]['parameters']:,}",
                    f"{runs[0]['steps']:,}",
                    f"{statistics.mean(run['flops'] for run in runs) / 1e12:.2f}",
                    *(
                        spread([run["metrics"].get(name) for run in runs])
                        for name in columns.values()
                    ),
                ]
            )
    if not lines:
        return "Not run yet.\n"
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{table}\n{_time(lines)}"


def _time(lines: Lines) -> str:
    minutes = sum(line["seconds"] for line in lines) / 60
    runs = "1 run" if len(lines) == 1 else f"{len(lines)} runs"
    return f"{runs}, {minutes:,.0f} minutes together.\n"


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation over seeds; empty where nothing was measured."""
    found = [value for value in values if value is not None]
    if not found:
        return ""
    mean = f"{statistics.mean(found):.3f}"
    return mean if len(found) == 1 else f"{mean} ± {statistics.stdev(found):.3f}"
