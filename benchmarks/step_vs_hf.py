"""Times a CPU training step of each model family beside Hugging Face's model of the same size.

    python benchmarks/step_vs_hf.py
    python benchmarks/step_vs_hf.py --models bert_base,electra_small --rounds 9 --json steps.jsonl

Ours is the published model in float32, unrolled. Theirs is the default, eager. Both use AdamW, all
cores, the published dropout and the same random rows, 15 % masked. A name that ends with _packed
means texts of many lengths, in our packed rows and in padded rows of theirs. They take turns in one
process. Ratios are their time / our time: of medians, of minima, and of medians of processor time,
for a busy machine. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import torch
import transformers
from step_families import FAMILIES, Batch, Theirs

from t5x_like.config import gin_config
from t5x_like.core.partitioning import make_layout
from t5x_like.training import step
from t5x_like.training.optimization import optimizers

LEARNING_RATE = 1e-4
BINDINGS = ("DTYPE = 'float32'", "SCAN_UNROLL = 0")
OF_FAMILY = {
    "xlnet_base": ("MEM_LEN = 0",),  # rows here continue no text
    "longt5_tglobal_base": ("longt5.Config.tied_logits = True",),  # theirs always is
    # An encoder of v3's base; theirs has no mask decoder.
    "deberta_base": (
        *("deberta.Config.vocab_size = 128100", "deberta.Config.buckets = 256"),
        "deberta.Config.mask_decoder = False",
    ),
}


def our_step(name: str, batch: Batch, *, rows: int) -> tuple[Callable[[], object], int]:
    """A step of the published model, and its number of parameters."""
    bindings = (*BINDINGS, *OF_FAMILY.get(name, ()))
    gin_config.load([name.removesuffix("_packed")], bindings)
    program = step.build(
        gin_config.macro("MODEL"),
        optimizers.adamw(LEARNING_RATE),
        make_layout({"data": 1}, devices=jax.devices()[:1]),
        step.StepOptions(batch_size=rows),
    )
    key, on_device = jax.random.key(0), jax.device_put(batch)
    state = program.init(key)

    def run() -> object:
        nonlocal state
        state, metrics = program.step(state, on_device, key)
        return jax.block_until_ready((state, metrics))

    return run, program.parameter_count


def their_step(theirs: Theirs) -> tuple[Callable[[], object], int]:
    """Like `our_step`, for their model."""
    model = theirs.model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.01, fused=True)

    def run() -> object:
        optimizer.zero_grad()
        loss = theirs.loss()
        loss.backward()
        optimizer.step()
        return loss.item()

    return run, sum(parameter.numel() for parameter in parameters)


class Times(NamedTuple):
    """Milliseconds of each round, by the clock and on all processors together."""

    wall: list[float]
    processor: list[float]


def alternate(runs: list[Callable[[], object]], rounds: int) -> list[Times]:
    """Each run's times, after two rounds that do not count."""
    times = [Times([], []) for _ in runs]
    for number in range(rounds + 2):
        for run, measured in zip(runs, times, strict=True):
            wall, processor = time.perf_counter(), time.process_time()
            run()
            if number >= 2:
                measured.wall.append(1e3 * (time.perf_counter() - wall))
                measured.processor.append(1e3 * (time.process_time() - processor))
    return times


def measure(name: str, shape: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Milliseconds of both, and the ratios."""
    batch, theirs = FAMILIES[name](shape)
    rows = len(batch["encoder_input_tokens"])
    ours, our_parameters = our_step(name, batch, rows=rows)
    other, their_parameters = their_step(theirs)
    a, b = alternate([ours, other], rounds)
    row = {
        "model": name,
        "batch": shape[0],
        "length": shape[1],
        "cores": torch.get_num_threads(),
        "rounds": rounds,
        "our_parameters": our_parameters,
        "their_parameters": their_parameters,
    }
    for kind, statistic, times in (
        ("median", statistics.median, (a.wall, b.wall)),
        ("minimum", min, (a.wall, b.wall)),
        ("processor", statistics.median, (a.processor, b.processor)),
    ):
        ours_ms, theirs_ms = map(statistic, times)
        row[f"our_{kind}_ms"], row[f"their_{kind}_ms"] = round(ours_ms, 1), round(theirs_ms, 1)
        row[f"ratio_of_{kind}"] = round(theirs_ms / ours_ms, 3)
    return row


HEADER = (
    f"{'model':16}{'ours ms':>10}{'theirs ms':>11}{'ratio':>8}{'of minima':>11}"
    f"{'of processor':>14}{'parameters':>14}"
)


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    ours, theirs = row["our_parameters"], row["their_parameters"]
    return (
        f"{row['model']:16}{row['our_median_ms']:10.0f}{row['their_median_ms']:11.0f}"
        f"{row['ratio_of_median']:8.2f}{row['ratio_of_minimum']:11.2f}"
        f"{row['ratio_of_processor']:14.2f}{ours:14,}"
        + ("" if ours == theirs else f"  (theirs: {theirs:,})")
    )


def main() -> None:
    """Prints the table, one line when each model is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", help="names, with commas between (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--json", type=Path, help="append the rows to this file, a line each")
    args = parser.parse_args()
    names = args.models.split(",") if args.models else list(FAMILIES)
    if unknown := set(names) - set(FAMILIES):
        parser.error(f"no model {', '.join(sorted(unknown))}: known are {', '.join(FAMILIES)}")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformers.logging.set_verbosity_error()
    print(HEADER, flush=True)
    for name in names:
        row = measure(name, (args.batch, args.length), args.rounds)
        print(line(row), flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
        gc.collect()


if __name__ == "__main__":
    main()
