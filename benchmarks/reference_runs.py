# ruff: noqa: E501 (prose)
"""Reference runs of the small recipes: trains each, evaluates it, and writes their page.

    python benchmarks/reference_runs.py --corpus 'data/wiki_en/*.jsonl.gz'
    python benchmarks/reference_runs.py --corpus 'data/wiki_en/*.jsonl.gz' --resume
    python benchmarks/reference_runs.py --corpus 'mine/*.txt' bert-mini --gin.TRAIN_STEPS=300
    python benchmarks/reference_runs.py --page

Each run is the two commands that its section of the page shows, in the folder --work. `train`
writes to runs/NAME there and resumes what it finds; the commands' output goes to logs/NAME.log. A
finished run is a line of reference_runs.jsonl, in the folder --output; of lines with the same name
the last counts. The page and its pictures are beside it, and all figures of the page come from it.
Several processes may make different runs at a time.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import recorded

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser
from t5x_like.config import gin_config, gin_files
from t5x_like.data.corpora.corpus import CorpusError, ReadReport
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.reporting import drawing
from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "results"
LINES, PAGE = "reference_runs.jsonl", "reference_runs.md"
COLUMNS = ("trained", "untrained", "unigram", "blanked")
_TELLING = re.compile(r".*(accuracy|precision|recall|bits_per_byte|auc|text_loss)")

Line = dict[str, Any]
Columns = Mapping[str, Mapping[str, float | None]]

HEAD = """\
# Reference runs

Each small recipe (`t5x_like recipes`) was trained with its one command on real text and evaluated on
held-out documents. A run of yours should give similar figures. Seeds are fixed, but other machines and
versions of JAX round differently, and their figures differ a little.
`python benchmarks/reference_runs.py` writes this page from [reference_runs.jsonl](reference_runs.jsonl).

- *untrained* is the same model with newly drawn parameters.
- *unigram* predicts each token with its frequency in the training text. Special tokens that are among the
  targets (RoBERTa's, a language model's) have their frequency there. `distilbert-mini` masks rare tokens
  more often than frequent ones, so its unigram loss is high.
- `legal_bert-mini` continues from `bert-mini`; compare the two. `longformer-mini` continues from `roberta-mini`, in rows
  eight times as long.
- *blanked* is a trained encoder-decoder whose encoder reads padding in place of ordinary tokens.
- Losses are in nats, means over the predicted tokens. *content* leaves out sentinels and end of sequence.
  Losses of different vocabularies or objectives do not compare; bits per byte do.
- Minutes are the time of the training steps, without compilation, evaluation and reading the text. Some
  runs shared their core with other work, and their minutes are too many.
- On text of one language, `mt5-mini` is `t5_1_1-mini` with another vocabulary, which spells rare
  characters as bytes.

## Text

`data/wiki_en` is a part of an English Wikipedia dump of 2021, which WikiExtractor turned into one article
per line of JSON. Any part of a dump ([dumps.wikimedia.org](https://dumps.wikimedia.org)) gives an
equivalent text, with losses near these:

```sh
python -m pip install 'wikiextractor>=3.1'
mkdir -p data/wiki_en
python -m wikiextractor.WikiExtractor --json -o - DUMP.xml.bz2 | gzip > data/wiki_en/articles.jsonl.gz
```

Without `-o -` WikiExtractor writes files without an extension, such as `text/AA/wiki_00`, which would be
read as plain text. TensorFlow Datasets can also fetch a Wikipedia: `--gin.CORPUS="'tfds:wiki40b/en'"`
([data.md](../data.md)). These runs read:
"""
SUMMARY = """
## Summary

Losses are on held-out text. The last column has further metrics, with those of the unigram model in
brackets, or of the untrained model if the unigram model has none.

| recipe | parameters | steps | minutes | loss | trained | untrained | unigram | further metrics |
|-|-:|-:|-:|-|-:|-:|-:|-|
"""


def main(argv: list[str] | None = None) -> int:
    """Makes the runs that are asked for; 1 if one of them failed."""
    parser = CommandParser(prog=Path(__file__).name, description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes (default: all -mini)")
    parser.add_argument("--corpus", metavar="GLOB", help="text files, seen from --work")
    parser.add_argument("--work", type=Path, default=Path(), metavar="DIR", help="default: here")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="skip runs that have a line")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    args, bindings = arguments.parse(parser, sys.argv[1:] if argv is None else argv)
    if args.page:
        write_page(args.output)
        return 0
    if args.corpus is None:
        parser.error("--corpus is needed: the text to train on")
    try:
        names = in_order(args.names)
        corpus = measure_corpus(args.corpus, args.work)
    except (gin_config.ConfigError, CorpusError) as error:
        parser.error(str(error))
    if args.resume:
        finished = read_lines(args.output)
        names = [name for name in names if name not in finished]
    shared = {"machine": recorded.machine(), "corpus": corpus}
    started, failed = time.monotonic(), []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", flush=True)
        try:
            line = run(name, [f"CORPUS={args.corpus!r}", *bindings], args.work) | shared
        except recorded.CommandError as error:
            failed.append(name)
            last = _last(log_file(args.work, name))
            print(f"  FAILED: {error}", *last, sep="\n    ", flush=True)
            continue
        drawing.plot([args.work / "runs" / name], args.output / "curves" / f"{name}.png")
        recorded.append(args.output / LINES, line)
        write_page(args.output)
        for columns in line["results"].values():
            print("  " + " | ".join(cells(line, columns)[2:]), flush=True)
        print(f"  {(time.monotonic() - started) / 60:.1f} minutes in all", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def small() -> list[str]:
    """The recipes that a CPU trains in minutes."""
    return [name for name in gin_files.published_recipes() if name.endswith("-mini")]


def in_order(names: Sequence[str]) -> list[str]:
    """The recipes, or all small ones; those that read no other recipe's run come first.

    Raises:
      ConfigError: no recipe has one of the names.
    """
    chosen = names or small()

    def others(name: str) -> int:
        text = gin_files.find_recipe(name).read_text(encoding="utf-8")
        return len(set(re.findall(r"^\w+ = 'runs/(.+)'", text, re.M)) - {name})

    return sorted(chosen, key=others)


def measure_corpus(corpus: str, work: Path) -> dict[str, Any]:
    """The size of the text.

    Raises:
      CorpusError: no file matches, or one cannot be read.
    """
    report = ReadReport()
    lengths = [len(one["targets"]) for one in TextFiles(work / corpus).read("train", report)]
    return {
        "files": corpus,
        "bytes": report.bytes_total,
        "documents": len(lengths),
        "characters": sum(lengths),
    }


def log_file(work: Path, name: str) -> Path:
    """The file with the output of a run's commands."""
    return work / "logs" / f"{name}.log"


def _last(log: Path) -> list[str]:
    """The last line of a log, if there is one."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]


def run(name: str, bindings: Iterable[str], work: Path) -> Line:
    """Trains and evaluates one recipe.

    Raises:
      CommandError: a command failed; names its log.
    """
    train = " ".join([f"t5x_like train --recipe {name}", *map(flag, bindings)])
    evaluation = f"t5x_like eval runs/{name} --output runs/{name}/eval.json"
    log, folder = log_file(work, name), work / "runs" / name
    settings = recorded.settings([str(gin_files.find_recipe(name))], [*bindings])
    config = folder / "config.gin"
    if config.exists() and recorded.digest(config.read_text(encoding="utf-8")) != settings:
        raise recorded.CommandError(f"{folder} is a run with other settings: remove it, or --work")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    for command in (train, evaluation):
        recorded.execute([sys.executable, "-m", *shlex.split(command)], cwd=work, log=log)
    found = json.loads((folder / "eval.json").read_text())
    parameters = re.findall(r"^step \d+, ([\d,]+) parameters$", log.read_text("utf-8"), re.M)
    seeds = re.findall(r"^SEED = (\d+)$", config.read_text(encoding="utf-8"), re.M)
    return {
        "name": name,
        "settings": settings,
        "command": train,
        "eval_command": evaluation,
        "seed": int(seeds[0]),
        "steps": found["step"],
        "parameters": int(parameters[-1].replace(",", "")),
        "minutes": round(training_minutes(folder), 2),
        "results": found["tasks"],
    }


def flag(binding: str) -> str:
    """`--gin.NAME=VALUE` as a user would type it into a shell."""
    name, _, value = binding.partition("=")
    if re.fullmatch(r"[\w.,:/+-]*", value):
        return f"--gin.{binding}"
    return (
        shlex.quote(f"--gin.{binding}") if set(value) & set('"$`\\!') else f'--gin.{name}="{value}"'
    )


def training_minutes(folder: Path) -> float:
    """The minutes of a run's steps, however often it was stopped and resumed."""
    seconds, last = 0.0, 0
    for line in read_metrics(folder / METRICS_FILE):
        if rate := line.get("train/steps_per_second"):
            seconds += (line["step"] - last) / rate
            last = line["step"]
    return seconds / 60


def read_lines(output: Path) -> dict[str, Line]:
    """{name: its newest line}, by name; empty without a file."""
    newest = {line["name"]: line for line in recorded.read(output / LINES)}
    return dict(sorted(newest.items()))


def write_page(output: Path) -> None:
    """Writes the page from the lines that exist."""
    (output / PAGE).write_text(page(read_lines(output)), encoding="utf-8")


def page(lines: Mapping[str, Line]) -> str:
    """The page: the text and machines, a table of all runs, and a section for each."""
    missing = [name for name in small() if name not in lines]
    rows = [
        f"| {' | '.join(cells(line, columns))} |\n"
        for line in lines.values()
        for columns in line["results"].values()
    ]
    return "".join(
        [
            HEAD,
            *_grouped(lines, _text_of),
            "\n## Machine\n",
            *_grouped(lines, _machine_of),
            SUMMARY,
            *rows,
            f"\nNot run yet: {', '.join(missing)}.\n" if missing else "",
            *map(_section, lines.values()),
        ]
    )


def loss_name(columns: Columns) -> str:
    """The loss that the unigram model also has: that of predicted tokens."""
    return next(name for name in columns["unigram"] if re.fullmatch(r"(.*_)?(?<!z_)loss", name))


def cells(line: Line, columns: Columns) -> list[str]:
    """A row of the summary."""
    name, loss = line["name"], loss_name(columns)
    return [
        f"[{name}](#{name})",
        f"{line['parameters']:,}",
        f"{line['steps']:,}",
        f"{line['minutes']:.1f}",
        f"`{loss}`",
        *(_number(columns[who].get(loss)) for who in COLUMNS[:3]),
        ", ".join(_further_metrics(columns)),
    ]


def _further_metrics(columns: Columns) -> Iterable[str]:
    """Accuracies and the like, each beside a baseline's; for an encoder-decoder, of content."""
    trained = columns["trained"]
    for name, value in trained.items():
        if value is None or not _TELLING.fullmatch(name) or f"content_{name}" in trained:
            continue
        baseline = columns["unigram"].get(name, columns["untrained"].get(name))
        yield f"`{name}` {value:.3f}" + ("" if baseline is None else f" ({baseline:.3f})")


def _section(line: Line) -> str:
    """Commands, picture and all metrics of a run."""
    name = line["name"]
    parts = [
        f"\n## {name}\n",
        f"```sh\n{line['command']}\n{line['eval_command']}\n```\n",
        f"![Loss of {name} over its steps](curves/{name}.png)\n",
        f"Seed {line['seed']}, {line['steps']:,} steps, {line['parameters']:,} parameters. "
        "Metrics on held-out text:\n",
    ]
    for task, columns in line["results"].items():
        there = [who for who in COLUMNS if who in columns]
        parts.append(f"| {task} | {' | '.join(there)} |\n|-|{'-:|' * len(there)}")
        for metric in dict.fromkeys(metric for who in there for metric in columns[who]):
            row = (_number(columns[who].get(metric)) for who in there)
            parts.append(f"| `{metric}` | {' | '.join(row)} |")
        parts.append("")
    return "\n".join(parts)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}"


def _text_of(line: Line) -> str:
    corpus = line["corpus"]
    return (
        f"`{corpus['files']}`: {corpus['documents']:,} documents, "
        f"{corpus['characters'] / 1e6:.1f} million characters, "
        f"{corpus['bytes'] / 1e6:.1f} MB on disk"
    )


def _machine_of(line: Line) -> str:
    used = line["machine"]
    device = "" if used["backend"] == "cpu" else f", {used['devices']} x {used['device']}"
    return (
        f"{used['cores']} core{'s' * (used['cores'] > 1)} of {used['cpu']}{device}; "
        f"JAX {used['jax']} ({used['backend']}), Python {used['python']}"
    )


def _grouped(lines: Mapping[str, Line], said_of: Callable[[Line], str]) -> Iterable[str]:
    """What `said_of` says about the lines, each text once; if there are several, with recipes."""
    names: dict[str, list[str]] = {}
    for name, line in lines.items():
        names.setdefault(said_of(line), []).append(name)
    for said, of in names.items():
        yield f"\n- {said}" + (f" ({', '.join(of)})" if len(names) > 1 else "")
    yield "\n"


if __name__ == "__main__":
    sys.exit(main())
