"""`t5x_like recipes`: lists the published pretraining runs, or the settings of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common.parsers import CommandParser

if TYPE_CHECKING:
    from t5x_like.config.gin_files import GinFile

_EPILOG = """\
examples:
  t5x_like recipes
      all recipes: parameters, steps x rows x tokens of a row, tokens
  t5x_like recipes bert --sources
      those with bert in their names, and the papers that they are from
  t5x_like recipes albert_base_v1
      one recipe in full: its file, phases, objective and optimizer
  t5x_like train --recipe bert-mini
      the small twin of a published run, in minutes on a CPU
  t5x_like train --recipe bert_base --corpus 'data/*.jsonl.gz'
      a published run on your own text

docs/recipes.md says more.
"""
_SMALL = "-mini"
_SETTINGS = ("MODEL_DIR", "GRADIENT_CLIP", "DTYPE", "MIXTURE_OR_TASK_NAME")


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Steps with the same rows and lengths: a phase, or a run without phases.

    `rows_less` are those that batches lack while they grow.
    """

    steps: int
    rows: int
    lengths: Mapping[str, int]
    rows_less: int = 0

    @property
    def length(self) -> int:
        """Tokens of a row's inputs, or of its targets where there are no inputs."""
        return self.lengths.get("inputs", self.lengths.get("targets", 0))

    @property
    def tokens(self) -> int:
        return (self.steps * self.rows - self.rows_less) * self.length

    def __str__(self) -> str:
        return f"{_rounded(self.steps)} x {self.rows:,} x {self.length:,}"


def main(argv: list[str]) -> int:
    """Prints the recipes, or the settings of one."""
    parser = CommandParser(
        "recipes",
        description="Lists the recipes of published pretraining runs, and their small twins, or "
        "explains one.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the recipe to explain, or a part of several names"
    )
    parser.add_argument("--sources", action="store_true", help="list the papers too")
    parser.add_argument("--names", action="store_true", help="print the names alone")
    args = parser.parse_args(argv)

    from t5x_like.config import gin_files

    files = gin_files.published_recipes()
    if args.name in files:
        print("\n".join(_explained(files[args.name])))
        return 0
    if args.name is not None:
        files = {name: file for name, file in files.items() if args.name in name}
        if not files:
            gin_files.find_recipe(args.name)  # names the nearest
    print("\n".join(files) if args.names else _listing(files, sources=args.sources))
    return 0


def stretches() -> list[Stretch]:
    """The phases of the configured run; a run without phases is one stretch."""
    from t5x_like.config import gin_config
    from t5x_like.runs.run import Phase
    from t5x_like.runs.settings import token_counts

    steps, rows, lengths = map(
        gin_config.macro, ("TRAIN_STEPS", "BATCH_SIZE", "TASK_FEATURE_LENGTHS")
    )
    phases = gin_config.macro("PHASES") or (Phase(),)
    parts: list[Stretch] = []
    for phase in phases:
        left = steps - sum(part.steps for part in parts)
        parts.append(
            Stretch(phase.steps or left, phase.batch_size or rows, phase.lengths or lengths)
        )
    if gin_config.macro("BATCH_WARMUP_TOKENS"):
        grown = token_counts.planned_phases()[: 1 - len(phases) or None]
        fewer = (
            (parts[0].rows - (part.batch_size or 0)) * (part.steps or 0) for part in grown[:-1]
        )
        smaller = sum(fewer)
        parts[0] = dataclasses.replace(parts[0], rows_less=smaller)
    return parts


def _joined(parts: Sequence[Stretch]) -> list[Stretch]:
    """The parts, where those that follow one another with the same rows and lengths are one."""
    whole: list[Stretch] = []
    for part in parts:
        if whole and (whole[-1].rows, whole[-1].lengths) == (part.rows, part.lengths):
            before = whole.pop()
            part = dataclasses.replace(before, steps=before.steps + part.steps)
        whole.append(part)
    return whole


def _listing(files: Mapping[str, GinFile], *, sources: bool) -> str:
    """Tables of the published runs and of their small twins; without sources 80 columns wide."""
    small = {name: file for name, file in files.items() if name.endswith(_SMALL)}
    published = {name: file for name, file in files.items() if name not in small}
    parts = [_table(group, sources=sources) for group in (published, small) if group]
    return "\n\n".join(parts)


def _table(files: Mapping[str, GinFile], *, sources: bool) -> str:
    from t5x_like.config import gin_config
    from t5x_like.display.tables import aligned

    head = ("recipe", "size", "steps x rows x tokens of a row", "tokens", "source")
    rows = [head]
    for name, file in files.items():
        gin_config.load([str(file.path)])
        parts = stretches()
        rows.append(
            (
                name,
                _short(file.parameters),
                " + ".join(map(str, _joined(parts))),
                _short(sum(part.tokens for part in parts)),
                str(gin_config.macro("SOURCE")),
            )
        )
    return aligned([row if sources else row[:-1] for row in rows], right={1, 3})


def _short(count: int) -> str:
    """A number with three digits and a unit, such as 1.05T."""
    for power, unit in ((12, "T"), (9, "B"), (6, "M"), (3, "k")):
        if count >= 10**power:
            return f"{count / 10**power:.3g}{unit}"
    return f"{count:,}"


def _rounded(steps: int) -> str:
    """A number of steps: 1.5M, 125k, 6,200; those from 100,000 on in thousands."""
    if steps >= 10**6 and steps % 10**5 == 0:
        return f"{steps / 10**6:g}M"
    in_thousands = steps % 1000 == 0 or steps >= 100_000
    return f"{round(steps / 1000)}k" if in_thousands else f"{steps:,}"


def _explained(file: GinFile) -> Iterable[str]:
    """The comments of a recipe's file, then the resulting settings."""
    from t5x_like.config import gin_config, presets
    from t5x_like.data.dataset import Data

    gin_config.load([str(file.path)])
    text = file.text.splitlines()
    yield f"{file.name}: {file.family}"
    yield from (line for line in text[: next(i for i, head in enumerate(text) if head[:1] != "#")])
    yield ""
    yield f"source: {gin_config.macro('SOURCE')}"
    parts = stretches()
    for number, part in enumerate(parts, 1):
        what = f"phase {number}" if len(parts) > 1 else "run"
        lengths = ", ".join(f"{feature} {n:,}" for feature, n in part.lengths.items())
        yield (
            f"{what}: {part.steps:,} steps of {part.rows:,} rows ({lengths})"
            f"{', fewer at first' if part.rows_less else ''}: {_short(part.tokens)} tokens"
        )
    yield f"objective: {presets.resolve(gin_config.macro('OBJECTIVE'))!r}"
    yield f"optimizer: {gin_config.description('OPTIMIZER')}"
    yield f"learning rate: {gin_config.description('LEARNING_RATE')}"
    yield from _rates(gin_config.macro("LEARNING_RATE"), parts)
    for setting in _SETTINGS:
        yield f"{setting} = {gin_config.macro(setting)!r}"
    yield from _vocabulary()
    exponent = gin_config.arguments_of(Data).get("corpus_exponent", 1.0)
    if exponent != 1:
        yield f"dataset.Data.corpus_exponent = {exponent}"


def _vocabulary() -> Iterable[str]:
    """The vocabulary: one with a name, that of INIT_FROM, or one that the run trains."""
    from t5x_like.config import gin_config

    named, start = map(gin_config.macro, ("VOCABULARY", "INIT_FROM"))
    if named is None and start is not None:
        yield f"VOCABULARY = None: that of {getattr(start, 'directory', start)!r}"
        return
    for setting in ("VOCABULARY",) if named else ("VOCABULARY", "VOCAB_TYPE", "VOCAB_SIZE"):
        yield f"{setting} = {gin_config.macro(setting)!r}"


def _rates(schedule: Any, parts: Sequence[Stretch]) -> Iterable[str]:
    """A line with the learning rate along the run."""
    total = sum(part.steps for part in parts)
    shares = (0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
    steps = dict.fromkeys([*(round(share * total) for share in shares), total - 1])
    yield "  " + ", ".join(f"{float(schedule(step)):.3g} at {step:,}" for step in steps)
