"""`t5x_like eval`: held-out losses of a run beside what it must beat."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from t5x_like.cli import arguments

if TYPE_CHECKING:
    from t5x_like.cli.trained import Trained
    from t5x_like.data.stream import Component

_EPILOG = """\
Losses are nats per target token. "content" leaves out sentinels and end of sequence: easy ones.
"unigram" is the cross-entropy of the same content tokens under the frequencies of the training text
(add-one smoothed); "blanked" is the same model on the same tokens with every ordinary encoder token
padded away, sentinels left in place: what it knows without reading the text around the blanks.
"""


def main(argv: list[str]) -> int:
    """Prints the losses of every task of the run, and writes them as JSON if asked to."""
    parser = argparse.ArgumentParser(
        prog="t5x_like eval",
        description="Held-out losses of a span-corruption run, beside a unigram model and a "
        "blanked encoder.",
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
    args, bindings = arguments.parse(parser, argv)

    from t5x_like.cli import trained

    model = trained.load(args.model_dir, step=args.step, bindings=bindings)
    opened = model.run.data.open()
    counts = {
        record.name: cache.split("train").counts["targets"]
        for record, cache in zip(opened.records, opened.caches, strict=True)
    }
    results = {
        component.name: _losses(
            model,
            component,
            counts[component.name],
            batch_size=args.batch_size,
            batches=args.batches,
        )
        for component in opened.components("validation", rows=args.batch_size, alone=True)
    }
    if not results:
        raise ValueError(f"the tasks of {args.model_dir} hold no documents out")
    print(f"step {model.step}, {model.program.parameter_count:,} parameters")
    for name, losses in results.items():
        print(f"{name}:")
        for what, value in losses.items():
            print(f"  {what:32} {value:.4f}")
    if args.output:
        with open(args.output, "w") as file:
            json.dump({"step": model.step, "tasks": results}, file, indent=1)
    return 0


def _losses(
    model: Trained, component: Component, counts: Any, *, batch_size: int, batches: int
) -> dict[str, float]:
    from t5x_like.cli.trained import batch_to_device
    from t5x_like.data.stream import eval_stream
    from t5x_like.evaluation import baselines
    from t5x_like.evaluation.evaluator import evaluate

    run, ids = model.run, component.token_ids
    held_out = list(
        eval_stream(
            component,
            converter=run.feature_converter,
            batch_size=batch_size,
            seed=run.options.seed,
            max_batches=batches,
        )
    )
    content = [baselines.content_only(batch, ids) for batch in held_out]
    blanked = [baselines.blank_encoder(batch, ids) for batch in content]

    def loss(rows: Iterable[Any]) -> float:
        on_device = (batch_to_device(model, batch) for batch in rows)
        return evaluate(model.program.evaluate, model.params, on_device)["loss"]

    return {
        "loss, all target tokens": loss(held_out),
        "loss, content": loss(content),
        "loss, content, blanked": loss(blanked),
        "loss, content, unigram": baselines.unigram_cross_entropy(content, counts),
    }
