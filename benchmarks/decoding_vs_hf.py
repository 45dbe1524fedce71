"""Times answers of a T5 on a CPU beside transformers' `generate` with the same weights.

    python benchmarks/decoding_vs_hf.py
    python benchmarks/decoding_vs_hf.py --num_beams 4 --rounds 5 --json decoding.jsonl

Both answer the same texts of mixed length, sorted by length, in batches of the same size, in
float32, on all cores, and take turns in one process. The model has the published size and weights
as they are initialised, so that no answer ends before `--new_tokens`. Compilation is not timed.
Ratios are their time / our time, of medians, and of medians of processor time, for a busy machine.
Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from flax import nnx

from t5x_like.core.protocols.data import TokenIds
from t5x_like.inference import text_rows
from t5x_like.inference.decoding.settings import Decoding
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.writing import Writer
from t5x_like.interop.hugging_face import model_directory

SIZES = {
    "t5-small": {},  # transformers' defaults
    "t5-base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
IDS = TokenIds(32128, eos=None)
START = 5  # no padding: a fresh T5 mostly repeats what it read last


def texts(count: int, seed: int = 0) -> list[list[int]]:
    """Random tokens in rows of 8 to 120."""
    random = np.random.default_rng(seed)
    lengths = random.integers(8, 121, count)
    return [random.integers(3, 32000, length).tolist() for length in lengths]


def their_answers(
    model: transformers.T5ForConditionalGeneration,
    rows: Sequence[Sequence[int]],
    decoding: Decoding,
    batch_size: int,
) -> list[list[int]]:
    """Tokens of each row's answer."""
    settings = transformers.GenerationConfig(
        max_new_tokens=decoding.max_new_tokens,
        num_beams=decoding.num_beams,
        decoder_start_token_id=START,
        pad_token_id=0,
        eos_token_id=None,
    )
    order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
    found: list[list[int]] = [[]] * len(rows)
    for start in range(0, len(order), batch_size):
        numbers = order[start : start + batch_size]
        length = len(rows[numbers[0]])
        tokens = torch.zeros(len(numbers), length, dtype=torch.long)
        for place, n in enumerate(numbers):
            tokens[place, : len(rows[n])] = torch.tensor(rows[n])
        with torch.no_grad():
            answers = model.generate(
                input_ids=tokens,
                attention_mask=(tokens != 0).long(),
                generation_config=settings,
            )
        for place, n in enumerate(numbers):
            found[n] = answers[place, 1:].tolist()
    return found


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of processors."""
    begun, used = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - begun, time.process_time() - used


def main() -> None:
    """Prints a line of times and ratios; appends it as JSON with `--json`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=SIZES, default="t5-small")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=text_rows.ROWS)
    parser.add_argument("--new_tokens", type=int, default=64)
    parser.add_argument("--num_beams", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="append the result to this file")
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    theirs = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**SIZES[args.model], vocab_size=IDS.vocab_size)
    ).eval()
    with tempfile.TemporaryDirectory() as directory:
        theirs.save_pretrained(directory)
        found = model_directory.read(Path(directory))
        graph = nnx.graphdef(nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0))))
        ours = nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))
    decoding = Decoding(max_new_tokens=args.new_tokens, num_beams=args.num_beams)
    rows = texts(args.texts)
    writer = Writer(
        model=ModelOnMesh(ours), ids=IDS, start=START, decoding=decoding, batch_size=args.batch_size
    )
    # Also compiles and warms up.
    mine = [best.tokens for best, *_ in writer(rows)]
    want = their_answers(theirs, rows, decoding, args.batch_size)
    same = sum(a == b for a, b in zip(mine, want, strict=True))
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
    for _ in range(args.rounds):
        times["ours"].append(timed(lambda: writer(rows)))
        times["theirs"].append(
            timed(lambda: their_answers(theirs, rows, decoding, args.batch_size))
        )
    wall, used = (
        {who: statistics.median(pair[kind] for pair in pairs) for who, pairs in times.items()}
        for kind in (0, 1)
    )
    result = {
        "model": args.model,
        "num_beams": args.num_beams,
        "texts": args.texts,
        "batch_size": args.batch_size,
        "new_tokens": args.new_tokens,
        "same_answers": same,
        "seconds": wall,
        "ratio": wall["theirs"] / wall["ours"],
        "ratio_of_processor_time": used["theirs"] / used["ours"],
    }
    print(json.dumps(result, indent=1))
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
