"""`t5x_like eval`: held-out metrics of a run beside what it must beat."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from t5x_like.cli import arguments

Columns = dict[str, dict[str, float]]

_EPILOG = """\
"untrained" is the same model, its parameters just drawn. "unigram" gives each token its frequency
in the training text (add-one smoothed), each label of a pair of sentences its frequency, and each
token of the text the same chance to be replaced (ELECTRA: see "text", where special tokens, which
never are, do not count; an AUC of 0.5 knows nothing). Losses are in nats, of tokens per token; a
perplexity is the exponential of one. Of an encoder-decoder, "content" leaves out sentinels and end
of sequence, which are easy, and "blanked" is the trained model with every ordinary encoder token
padded away, sentinels left in place: what it knows without reading the text around the blanks.
"""
_NAME, _NUMBER = 34, 12


def main(argv: list[str]) -> int:
    """Prints the metrics of every task of the run, and writes them as JSON if asked to."""
    parser = argparse.ArgumentParser(
        prog="t5x_like eval",
        description="Held-out metrics of a run, beside those of an untrained model and of a "
        "unigram model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model_dir", metavar="RUN", help="the run's MODEL_DIR")
    parser.add_argument("--step", type=int, help="of the checkpoint (default: the newest)")
    parser.add_argument(
        "--batch_size", type=int, default=32, metavar="B", help="rows at a time (default: 32)"
    )
    parser.add_argument(
        "--batches", type=int, default=50, metavar="N", help="batches at most (default: 50)"
    )
    parser.add_argument("--output", metavar="FILE", help="write the numbers here as JSON too")
    arguments.add_modules(parser)
    args, bindings = arguments.parse(parser, argv)

    from t5x_like.runs import baseline_comparison, trained_run

    model = trained_run.load(
        args.model_dir,
        step=args.step,
        bindings=bindings,
        rows=args.batch_size,
        modules=args.module,
    )
    results = baseline_comparison.columns(model, batch_size=args.batch_size, batches=args.batches)
    if not results:
        raise ValueError(f"the tasks of {args.model_dir} hold no documents out")
    print(f"step {model.step}, {model.program.parameter_count:,} parameters")
    for name, columns in results.items():
        print("\n".join([f"{name}:", *_table(columns)]))
    if args.output:
        with open(args.output, "w") as file:
            json.dump({"step": model.step, "tasks": _finite(results)}, file, indent=1)
    return 0


def _table(columns: Columns) -> list[str]:
    """A line for each metric, a column for each of those that have some."""
    lines = [" " * _NAME + "".join(f"{who:>{_NUMBER}}" for who in columns)]
    for name in dict.fromkeys(name for metrics in columns.values() for name in metrics):
        values = [metrics.get(name) for metrics in columns.values()]
        shown = "".join(f"{'' if value is None else f'{value:.4f}':>{_NUMBER}}" for value in values)
        lines.append(f"  {name:{_NAME - 2}}{shown}".rstrip())
    return lines


def _finite(values: Any) -> Any:
    """JSON has no nan and no infinity: null in their place."""
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    return values if math.isfinite(values) else None
