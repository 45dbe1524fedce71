"""`t5x_like objectives`: lists the pretraining objectives, or explains one."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING

from t5x_like.cli.common.parsers import CommandParser

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Objective

_EPILOG = """\
Each is a task on any corpus: t5x_like show stdlib_docs.mlm. Train on it with a model that reads its
kind of examples: t5x_like train --task stdlib_docs.span_corruption.
"""


def main(argv: list[str]) -> int:
    """Prints the objectives, or the fields and lengths of one."""
    parser = CommandParser(
        "objectives",
        description="Lists the pretraining objectives, or explains one of them.",
        epilog=_EPILOG,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the objective to explain")
    parser.add_argument("--names", action="store_true", help="print the names alone")
    args = parser.parse_args(argv)

    from t5x_like import objectives

    if args.name:
        print(_explained(args.name, objectives.preset(args.name)))
    elif args.names:
        print("\n".join(objectives.presets()))
    else:
        summaries = objectives.summaries()
        width = max(map(len, summaries))
        print("\n".join(f"{name:{width}}  {line}" for name, line in summaries.items()))
    return 0


def _explained(name: str, objective: Objective) -> str:
    from t5x_like import objectives

    kind = type(objective)
    lengths = objective.lengths(512)
    features = {
        feature: f"{spec.dtype} {list(spec.shape)}" if spec.shape else "one number"
        for feature, spec in objective.features(lengths).items()
    }
    fields = [
        f"  {field.name} = {getattr(objective, field.name)!r}"
        for field in dataclasses.fields(objective)  # type: ignore[arg-type]
    ]
    return "\n".join(
        [
            f"{name}: {objectives.summaries()[name]}",
            "",
            inspect.getdoc(kind) or "",
            "",
            f"for models of kind: {objective.kind}",
            f"the vocabulary must have: {', '.join(objective.needs) or 'nothing special'}",
            f"feature lengths that go with rows of 512: {lengths}",
            "an example holds, at most: "
            + ", ".join(f"{feature} {what}" for feature, what in features.items()),
            f"{kind.__module__}.{kind.__qualname__}, configured in gin by",
            *(fields or ["  (no fields)"]),
        ]
    )
