"""`t5x_like infer`: fills in the blanks of texts with a trained model."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_like.cli import arguments
from t5x_like.core.protocols import Decodable, lacking

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.runs.trained_run import TrainedRun

_EPILOG = """\
examples:
  t5x_like infer runs/local "Return the ___ of the file." "The <extra_id_0> is not <extra_id_1>."
  t5x_like infer runs/local --input texts.txt --output filled.jsonl
  t5x_like infer runs/local --held_out 5

A blank is written ___ or <extra_id_n>. Decoding is greedy.
"""


def main(argv: list[str]) -> int:
    """Prints each text with its blanks filled; writes JSONL if asked to."""
    parser = argparse.ArgumentParser(
        prog="t5x_like infer",
        description="Fills in the blanks of texts with a trained model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model_dir", metavar="RUN", help="the run's MODEL_DIR")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="with at least one blank")
    parser.add_argument("--input", metavar="FILE", help="a text a line; - is standard input")
    parser.add_argument(
        "--held_out",
        type=int,
        default=0,
        metavar="N",
        help="N sentences of the run's validation split, blanks made by its objective",
    )
    parser.add_argument("--output", metavar="FILE", help="write JSON lines here too")
    parser.add_argument("--step", type=int, help="of the checkpoint (default: the newest)")
    parser.add_argument(
        "--max_length", type=int, default=64, metavar="N", help="tokens generated (default: 64)"
    )
    parser.add_argument("--batch_size", type=int, default=8, metavar="B", help="(default: 8)")
    arguments.add_modules(parser)
    args, bindings = arguments.parse(parser, argv)
    texts = [*args.texts, *_lines(args.input)]
    if not texts and not args.held_out:
        parser.error("give a TEXT, --input FILE or --held_out N")

    from t5x_like.inference import fill_blanks
    from t5x_like.runs import trained_run

    # Blanks are checked before a model is loaded.
    for text in texts:
        fill_blanks.number_blanks(text)
    model = trained_run.load(args.model_dir, step=args.step, bindings=bindings, modules=args.module)
    _check_fills(model)
    truths: list[str | None] = [None] * len(texts)
    if args.held_out:
        from t5x_like.inference.blanked_sentences import blanked_sentences

        pairs = list(blanked_sentences(model.run.data.open(), args.held_out))
        texts += [text for text, _ in pairs]
        truths += [truth for _, truth in pairs]
    filled = fill_blanks.fill(
        texts,
        model.vocabulary,
        generate=_generator(model, args.max_length),
        batch_size=args.batch_size,
    )
    with open(args.output or "/dev/null", "w") as file:
        for one, truth in zip(filled, truths, strict=True):
            print(one.filled if truth is None else _compared(one, truth), flush=True)
            extra = {} if truth is None else {"original": truth}
            file.write(json.dumps({**one.to_json(), **extra}, ensure_ascii=False) + "\n")
    return 0


def _check_fills(model: TrainedRun) -> None:
    """Raises ValueError where a model has no decoder that fills blanks, and says what to do."""
    module, sentinels = model.model, model.vocabulary.token_ids.sentinels
    advice = (
        "`t5x_like export --from RUN --to HF_DIR` writes it for transformers, where "
        "pipeline({task!r}, {directory!r}) asks it"
    )
    if lacking(module, Decodable):
        reads = model.run.feature_converter.kind == "encoder"
        task = "fill-mask" if reads else "text-generation"
        what = "reads and does not write" if reads else "goes on with a text"
        raise ValueError(
            f"this model, a {type(module).__name__}, {what}: only an encoder-decoder fills blanks. "
            + advice.format(task=task, directory="HF_DIR")
        )
    if not sentinels:
        raise ValueError(
            f"this {type(module).__name__} has no sentinels in its vocabulary, so it was not "
            "trained to fill numbered blanks. "
            + advice.format(task="fill-mask", directory="HF_DIR")
        )


def _lines(path: str | None) -> Iterator[str]:
    if path is None:
        return
    lines = sys.stdin if path == "-" else Path(path).read_text().splitlines()
    yield from (line.rstrip("\n") for line in lines if line.strip())


def _generator(model: TrainedRun, max_length: int) -> Callable[[np.ndarray], np.ndarray]:
    import numpy as np

    from t5x_like.inference import decoding
    from t5x_like.runs.trained_run import batch_to_device

    module: Any = model.model
    ids = model.vocabulary.token_ids
    start = getattr(ids, getattr(model.run.feature_converter, "decoder_start", "pad"))
    greedy = functools.partial(
        decoding.greedy,
        max_length=max_length,
        vocab_size=model.vocabulary.vocab_size,
        start=ids.pad if start is None else start,
        pad=ids.pad,
        eos=ids.eos if ids.eos is not None else -1,
    )

    def generate(tokens: np.ndarray) -> np.ndarray:
        with model.run.layout.active():
            return np.asarray(greedy(module, batch_to_device(model, {"x": tokens})["x"]))

    return generate


def _compared(one: Any, truth: str) -> str:
    fills = " | ".join(one.blanks)
    return f"  text:  {one.text}\n  fills: {fills}\n  truth: {truth}\n"
