"""`t5x_like plan`: says whether a run fits on TPUs that are absent, how long it takes, its cost."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from t5x_like.cli import arguments

if TYPE_CHECKING:
    from t5x_like.planning.plan import Plan

_EPILOG = """\
examples:
  t5x_like plan bert_large --topology v5e:4x4
      memory, traffic and modelled time of a step on 16 chips, for each phase of the recipe
  t5x_like plan t5_1_1_xxl --topology v5p-256 --slices 2 --mesh replica=2,fsdp=-1 --memory_only
      whether it fits, in less time

The step is compiled by libtpu on this machine's CPUs, as `t5x_like train` would compile it there. No text
is needed. docs/plan.md says what the figures mean.
"""


def main(argv: list[str]) -> int:
    """Prints the plan of a run; the status is 1 if it does not fit."""
    parser = _parser()
    args, bindings = arguments.parse(parser, argv)

    from t5x_like.config import gin_files
    from t5x_like.planning.plan import plan

    recipe = [str(gin_files.find_recipe(args.recipe))] if args.recipe else []
    found = plan(
        [*recipe, *args.gin_file],
        args.topology,
        slices=args.slices,
        bindings=[*arguments.given_settings(args), *bindings],
        folders=args.gin_search_paths,
        memory_only=args.memory_only,
    )
    print(json.dumps(_json(found), indent=1) if args.json else found)
    return 0 if found.fits else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="t5x_like plan",
        description="Compiles the step of a run for TPUs that are absent: whether it fits, what "
        "takes memory, traffic, modelled time and cost.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_gin(parser, default="runs/local.gin", recipe="recipe")
    group = parser.add_argument_group("hardware")
    group.add_argument(
        "--topology",
        required=True,
        metavar="T",
        help="the chips of a slice: v5e:4x4, v5e-16, v5p-64, v6e-256",
    )
    group.add_argument(
        "--slices",
        type=arguments.positive,
        default=1,
        metavar="N",
        help="slices that a slower network connects; the mesh axis replica runs between them "
        "(default: 1)",
    )
    group.add_argument(
        "--memory_only", action="store_true", help="stop once it is known whether the step fits"
    )
    arguments.add_settings(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print JSON in place of a table")
    return parser


def _json(found: Plan) -> Any:
    return dataclasses.asdict(found)
