"""`t5x_like infer`: fills in the blanks of texts with a trained model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.cli import arguments

if TYPE_CHECKING:
    from t5x_like.api.loaded_model import LoadedModel

_EPILOG = """\
examples:
  t5x_like infer runs/local "Return the ___ of the file." "The <extra_id_0> is not <extra_id_1>."
  t5x_like infer runs/local --input texts.txt --output filled.jsonl
  t5x_like infer runs/local --held_out 5

Write a blank as ___ or <extra_id_n>. Decoding is greedy.
"""


def main(argv: list[str]) -> int:
    """Prints each text with its blanks filled; writes JSONL with `--output`."""
    parser = argparse.ArgumentParser(
        prog="t5x_like infer",
        description="Fills in the blanks of texts with a trained model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model_dir", metavar="RUN", help="the run's MODEL_DIR")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="with at least one blank")
    parser.add_argument("--input", metavar="FILE", help="one text a line; - is standard input")
    parser.add_argument(
        "--held_out",
        type=int,
        default=0,
        metavar="N",
        help="N sentences of the run's validation split, with blanks made by its objective",
    )
    parser.add_argument("--output", metavar="FILE", help="also write JSON lines here")
    parser.add_argument("--step", type=int, help="the checkpoint's step (default: the newest)")
    parser.add_argument(
        "--max_length",
        type=int,
        default=64,
        metavar="N",
        help="most tokens to generate (default: 64)",
    )
    parser.add_argument(
        "--batch_size", type=int, default=8, metavar="B", help="texts in a batch (default: 8)"
    )
    arguments.add_modules(parser)
    args, bindings = arguments.parse(parser, argv)
    texts = [*args.texts, *_lines(args.input)]
    if not texts and not args.held_out:
        parser.error("give a TEXT, --input FILE or --held_out N")

    from t5x_like.api.loaded_model import check_writes, load
    from t5x_like.inference import fill_blanks

    # Blanks are checked before a model is loaded.
    for text in texts:
        fill_blanks.number_blanks(text)
    model = load(args.model_dir, step=args.step, gin=bindings, modules=args.module)
    check_writes(model)
    truths: list[str | None] = [None] * len(texts)
    if args.held_out:
        pairs = _held_out(model, args.held_out)
        texts += [text for text, _ in pairs]
        truths += [truth for _, truth in pairs]
    filled = model.write(texts, max_length=args.max_length, batch_size=args.batch_size)
    with open(args.output or "/dev/null", "w") as file:
        for one, truth in zip(filled, truths, strict=True):
            print(one.filled if truth is None else _compared(one, truth), flush=True)
            extra = {} if truth is None else {"original": truth}
            file.write(json.dumps({**one.to_json(), **extra}, ensure_ascii=False) + "\n")
    return 0


def _held_out(model: LoadedModel, n: int) -> list[tuple[str, str]]:
    from t5x_like.inference.blanked_sentences import blanked_sentences

    if model.run is None:
        raise ValueError(f"{model.directory} is no run: it holds no text out")
    return list(blanked_sentences(model.run.run.data.open()[0], n))


def _lines(path: str | None) -> Iterator[str]:
    if path is None:
        return
    lines = sys.stdin if path == "-" else Path(path).read_text().splitlines()
    yield from (line.rstrip("\n") for line in lines if line.strip())


def _compared(one: Any, truth: str) -> str:
    fills = " | ".join(one.blanks)
    return f"  text:  {one.text}\n  fills: {fills}\n  truth: {truth}\n"
