"""Times a CPU training step of each model family beside Hugging Face's model of the same size.

    python benchmarks/step_vs_hf.py
    python benchmarks/step_vs_hf.py --models bert_base,electra_small --rounds 9 --json steps.jsonl

Ours is the published model in float32, unrolled. Theirs is the default, eager. Both use AdamW, all
cores, the published dropout and the same random rows, 15 % masked. They take turns in one process.
Ratios are their time / our time: of medians, of minima, and of medians of processor time, for a
busy machine. Needs torch and transformers.
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
import numpy as np
import torch
import transformers
from torch.nn import functional

from t5x_like.config import gin_config
from t5x_like.core.partitioning import make_layout
from t5x_like.training import step
from t5x_like.training.optimization import optimizers

LEARNING_RATE = 1e-4
IGNORED = -100  # the label that transformers leaves out of a loss
BINDINGS = ("DTYPE = 'float32'", "SCAN_UNROLL = 0")
WITHOUT_MEMORY = ("MEM_LEN = 0",)  # for XLNet, whose rows here continue no text
ARGUMENTS = {
    "input_ids": "encoder_input_tokens",
    "attention_mask": "encoder_attention_mask",
    "token_type_ids": "encoder_token_type_ids",
}

Batch = dict[str, np.ndarray]


class Theirs(NamedTuple):
    """A transformers model and the function that computes its loss."""

    model: torch.nn.Module
    loss: Callable[[], torch.Tensor]


def tensor(x: np.ndarray) -> torch.Tensor:
    """Ids or labels as torch needs them."""
    return torch.from_numpy(x.astype(np.int64))


class Rows:
    """Random text [rows, length] of ids from 1000 on, one row in eight a little shorter."""

    def __init__(self, shape: tuple[int, int], *, vocab_size: int, pad_id: int = 0) -> None:
        self.random = np.random.default_rng(0)
        size, length = shape
        lengths = np.full(size, length)
        lengths[::8] -= length // 8
        self.counts = (np.arange(length) < lengths[:, None]).astype(np.int32)
        drawn = self.random.integers(1000, vocab_size, shape, dtype=np.int32)
        self.tokens = np.where(self.counts, drawn, pad_id).astype(np.int32)

    def masked(self, mask_id: int) -> tuple[Batch, np.ndarray]:
        """What our encoders read, 15 % masked, and labels for transformers, [rows, length]."""
        size, length = self.tokens.shape
        slots = -(-15 * length // 100)
        shortest = self.counts.sum(axis=1).min()
        positions = np.stack(
            [np.sort(self.random.choice(shortest, slots, replace=False)) for _ in range(size)]
        ).astype(np.int32)
        targets = np.take_along_axis(self.tokens, positions, axis=1)
        tokens, labels = self.tokens.copy(), np.full(self.tokens.shape, IGNORED)
        np.put_along_axis(tokens, positions, mask_id, axis=1)
        np.put_along_axis(labels, positions, targets, axis=1)
        batch = {
            "encoder_input_tokens": tokens,
            "encoder_attention_mask": self.counts,
            "encoder_token_type_ids": (np.arange(length) >= length // 2) * self.counts,
            "masked_positions": positions,
            "masked_targets": targets,
            "masked_loss_weights": np.ones(positions.shape, np.float32),
        }
        return batch, labels

    def pairs(self) -> np.ndarray:
        """Labels of pairs of sentences, [rows]."""
        return self.random.integers(0, 2, len(self.tokens), dtype=np.int32)


def read(batch: Batch) -> dict[str, torch.Tensor]:
    """The arguments of an encoder."""
    return {theirs: tensor(batch[ours]) for theirs, ours in ARGUMENTS.items() if ours in batch}


def bert_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens and next sentences."""
    config = transformers.BertConfig()
    rows = Rows(shape, vocab_size=config.vocab_size)
    batch, labels = rows.masked(mask_id=103)
    batch["next_sentence_label"] = rows.pairs()
    model = transformers.BertForPreTraining(config)
    given = read(batch) | {
        "labels": tensor(labels),
        "next_sentence_label": tensor(batch["next_sentence_label"]),
    }
    return batch, Theirs(model, lambda: model(**given).loss)


def roberta_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens."""
    config = transformers.RobertaConfig(
        vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
    )
    batch, labels = Rows(shape, vocab_size=config.vocab_size, pad_id=1).masked(mask_id=50264)
    del batch["encoder_token_type_ids"]
    given = read(batch) | {"labels": tensor(labels)}
    model = transformers.RobertaForMaskedLM(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def modernbert_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens."""
    config = transformers.ModernBertConfig()  # it drops nothing
    rows = Rows(shape, vocab_size=50280, pad_id=config.pad_token_id or 0)
    batch, labels = rows.masked(mask_id=50284)
    del batch["encoder_token_type_ids"]
    given = read(batch) | {"labels": tensor(labels)}
    model = transformers.ModernBertForMaskedLM(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def albert_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens and the order of sentences, as in version 2."""
    config = transformers.AlbertConfig(
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    rows = Rows(shape, vocab_size=config.vocab_size)
    batch, labels = rows.masked(mask_id=4)
    batch["sentence_order_label"] = rows.pairs()
    model = transformers.AlbertForPreTraining(config)
    given = read(batch) | {
        "labels": tensor(labels),
        "sentence_order_label": tensor(batch["sentence_order_label"]),
    }
    return batch, Theirs(model, lambda: model(**given).loss)


def electra_small(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """A generator of a quarter of the width, sampled from, and a discriminator."""
    config = transformers.ElectraConfig()
    narrow = transformers.ElectraConfig(
        hidden_size=64, num_attention_heads=1, intermediate_size=256
    )
    discriminator = transformers.ElectraForPreTraining(config)
    generator = transformers.ElectraForMaskedLM(narrow)
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    rows = Rows(shape, vocab_size=config.vocab_size)
    batch, labels = rows.masked(mask_id=103)
    given, original, targets = read(batch), tensor(rows.tokens), tensor(labels)
    is_masked, counts = targets != IGNORED, given["attention_mask"].bool()
    context = {name: given[name] for name in ("attention_mask", "token_type_ids")}

    def loss() -> torch.Tensor:
        logits = generator(**given).logits[is_masked]
        generated = functional.cross_entropy(logits, targets[is_masked])
        with torch.no_grad():
            noise = -torch.empty_like(logits).exponential_().log()
            read_tokens = original.clone()
            read_tokens[is_masked] = (logits + noise).argmax(dim=-1)
        found = discriminator(input_ids=read_tokens, **context).logits[counts]
        replaced = (read_tokens != original)[counts].float()
        detected = functional.binary_cross_entropy_with_logits(found, replaced)
        return generated + 50.0 * detected

    return batch, Theirs(torch.nn.ModuleList([discriminator, generator]), loss)


def xlnet_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """One token in six, predicted in a random order, without memory."""
    config = transformers.XLNetConfig(
        d_model=768, n_layer=12, n_head=12, d_inner=3072, use_mems_train=False
    )
    rows = Rows(shape, vocab_size=config.vocab_size, pad_id=5)
    batch, _ = rows.masked(mask_id=6)
    (size, length), count = shape, shape[1] // 6
    order = np.stack([rows.random.permutation(length) for _ in range(size)]).astype(np.int32)
    # The last tokens in the order, among tokens that are not padding, are predicted.
    last = np.argsort(np.where(rows.counts, order, -1), axis=1)[:, -count:]
    positions = np.sort(last, axis=1).astype(np.int32)
    targets = np.take_along_axis(rows.tokens, positions, axis=1)
    is_target = np.zeros(shape, bool)
    np.put_along_axis(is_target, positions, True, axis=1)
    # All see a token that is not predicted; those after a predicted token see it.
    query, key = np.where(is_target, order, 0), np.where(is_target, order, -1)
    batch |= {
        "encoder_input_tokens": rows.tokens,
        "masked_positions": positions,
        "masked_targets": targets,
        "masked_loss_weights": np.ones(positions.shape, np.float32),
        "permutation_query_order": query,
        "permutation_key_order": key,
        "reset_memory": np.ones(size, np.int32),
        "backward": np.zeros(size, np.int32),
    }
    given = read(batch) | {
        "perm_mask": torch.from_numpy((query[:, :, None] <= key[:, None]).astype(np.float32)),
        "target_mapping": torch.from_numpy(np.eye(length, dtype=np.float32)[positions]),
        "labels": tensor(targets),
    }
    model = transformers.XLNetLMHeadModel(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def _translated(
    inputs: Rows, outputs: Rows, *, start: int
) -> tuple[Batch, dict[str, torch.Tensor]]:
    """An encoder-decoder's batch and their model; the decoder starts from `start`."""
    shifted = np.pad(outputs.tokens, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
    batch = {
        "encoder_input_tokens": inputs.tokens,
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": outputs.tokens,
        "decoder_loss_weights": outputs.counts.astype(np.float32),
    }
    labels = np.where(outputs.counts, outputs.tokens, IGNORED)
    return batch, {
        "input_ids": tensor(inputs.tokens),
        "attention_mask": tensor(inputs.counts),
        "labels": tensor(labels),
    }


def t5_small(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Spans of a row four times as long (512 and 114 tokens)."""
    config = transformers.T5Config(
        d_model=512, d_ff=2048, num_layers=6, num_heads=8, d_kv=64, decoder_start_token_id=0
    )
    inputs = Rows((shape[0], 4 * shape[1]), vocab_size=config.vocab_size)
    outputs = Rows((shape[0], 114 * shape[1] // 128), vocab_size=config.vocab_size)
    batch, given = _translated(inputs, outputs, start=0)
    model = transformers.T5ForConditionalGeneration(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def bart_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """A row, and a target of the same length."""
    config = transformers.BartConfig(
        vocab_size=50265,
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        attention_dropout=0.1,
    )
    rows = [Rows(shape, vocab_size=config.vocab_size, pad_id=1) for _ in range(2)]
    batch, given = _translated(*rows, start=2)
    model = transformers.BartForConditionalGeneration(config)
    return batch, Theirs(model, lambda: model(**given).loss)


_MADE_BY = (
    *(bert_base, electra_small, roberta_base, modernbert_base, xlnet_base, albert_base),
    *(t5_small, bart_base),
)
FAMILIES = {make.__name__: make for make in _MADE_BY}


def our_step(name: str, batch: Batch, *, rows: int) -> tuple[Callable[[], object], int]:
    """A step of the published model, and its number of parameters."""
    gin_config.load([name], BINDINGS + (WITHOUT_MEMORY if name == "xlnet_base" else ()))
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
    ours, our_parameters = our_step(name, batch, rows=shape[0])
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
