"""A small model of every family, rows with every kind of label, and steps that learn them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from flax import nnx

import t5x_like as t5x
from t5x_like.core.partitioning import Layout, make_layout
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.models import bart, bert, electra, gpt, t5, xlnet
from t5x_like.runs import saved_model
from t5x_like.runs.batches import PhaseBatches
from t5x_like.runs.phases import run_phases
from t5x_like.runs.program import Programs
from t5x_like.runs.run import Run
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

NAMES, VERBS = ("ada", "bert", "cleo", "dora"), ("sings", "walks", "reads", "waits")
SIZES = {"d_model": 32, "d_ff": 64, "num_heads": 2}
STILL = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
SIDES = {"num_encoder_layers": 1, "num_decoder_layers": 1}
ROWS = 16
ONE = make_layout({"data": 1}, devices=jax.devices()[:1])
EIGHT = make_layout({"data": 4, "tensor": 2})


def models(size: int) -> dict[str, functools.partial[Any]]:
    encoder = {"vocab_size": size, "num_layers": 1, "init_std": 0.1, **SIZES, **STILL}
    sides = {"vocab_size": size, **SIZES, **SIDES}
    return {
        "bert": functools.partial(bert.Bert, bert.Config(max_positions=64, **encoder)),
        "electra": functools.partial(
            electra.Electra,
            electra.Config(max_positions=64, d_embedding=16, generator_width=0.5, **encoder),
        ),
        "xlnet": functools.partial(xlnet.XLNet, xlnet.Config(mem_len=4, **encoder)),
        "gpt2": functools.partial(gpt.Gpt, gpt.Config(max_positions=64, **encoder)),
        "bart": functools.partial(
            bart.Bart, bart.Config(pad_id=0, max_positions=64, init_std=0.1, **sides, **STILL)
        ),
        "t5": functools.partial(t5.T5, t5.Config(d_kv=16, **sides)),
    }


def rows(kind: str) -> list[dict[str, Any]]:
    """32 rows that a model can learn by heart; no text is there twice."""
    made: list[dict[str, Any]] = []
    for n in range(32):
        name, verb, other = NAMES[n % 4], VERBS[n // 4 % 4], NAMES[(n + 1 + n // 16) % 4]
        text = f"{name} {verb} and {other} {n}"
        row: dict[str, Any] = {"text": text, "label": verb}
        if kind == "several":
            row = {"text": text, "label": [*{name, other}]}
        elif kind == "ordered":
            row["label"] = n % 4
        elif kind == "numbers":
            row["label"] = n % 4 + 0.5
        elif kind == "pairs":
            row = {"sentence1": name, "sentence2": text, "label": "same" if n % 3 else "other"}
        elif kind == "tags":
            words = text.split()
            row = {"words": words, "tags": ["B-PER" if w in NAMES else "O" for w in words]}
        elif kind == "spans":
            place = {"text": [verb], "answer_start": [text.index(verb)]}
            row = {"question": f"what {name} {n}", "context": text, "answers": place}
        elif kind == "choices":
            choices = [NAMES[0], NAMES[3]][:: 1 if n % 3 else -1]
            right = "AB"[choices.index(NAMES[0])]
            row = {"premise": f"who {verb} {n}", "choices": choices, "answer": right}
        made.append(row)
    return made


OF_FILES = {"ordered": "ordered"}
"""The kinds that the file alone does not say."""


def untrained(root: Path) -> Callable[[str], str]:
    """Gives the directory of a model of a family that has learned nothing yet."""
    text = " ".join([*NAMES, *VERBS, "and", "what", "who", *map(str, range(32))])
    vocabulary = train_wordpiece(
        [text] * 3, size=120, extra_ids=0, character_coverage=1.0, lowercase=True
    )

    @functools.cache
    def write(name: str) -> str:
        make = models(vocabulary.vocab_size)[name]
        params = nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)), nnx.Param))
        saved_model.write(
            str(root / name), make, params, title="a", vocabulary=vocabulary, files=()
        )
        return str(root / name)

    return write


def opened(
    source: str, kind: str, folder: Path, layout: Layout = EIGHT, **given: Any
) -> PhaseBatches:
    """The batches and the program of a run that learns a kind of label."""
    file = folder / f"{kind}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(kind)))
    run = t5x.finetune(
        source,
        train=str(file),
        kind=OF_FILES.get(kind),
        head=source.endswith("t5"),
        batch_size=ROWS,
        length=24,
        model_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        **{"learning_rate": 0.1 if source.endswith("t5") else 0.02} | given,  # Adafactor, AdamW
        gin=["WARMUP_STEPS=0", "TRAIN_STEPS=10000"],
    ).run
    return batches_of(run, source, layout)


def batches_of(run: Run, source: str, layout: Layout = EIGHT) -> PhaseBatches:
    """The batches and the program of a run from a source."""
    known = KnownVocabulary(loading.load(f"{source}/vocabulary"))
    data = dataclasses.replace(run.data, vocabulary=known)
    run = dataclasses.replace(run, data=data, layout=layout)
    (phase,) = run_phases(run)
    (program,) = Programs().of([phase.run])
    tasks = phase.open_data(lambda facts: None, lambda vocabulary: None)
    return phase.batches(tasks, program)


def losses(batches: PhaseBatches, steps: int) -> list[float]:
    """Those of a model that reads the first batch again and again."""
    batch = next(batches.batches(0))
    state = batches.program.init(jax.random.key(0))
    seen = []
    for _ in range(steps):
        state, metrics = batches.program.step(state, batch, jax.random.key(1))
        value, weight = metrics["loss"]
        seen.append(float((value / weight).sum()))
    return seen
