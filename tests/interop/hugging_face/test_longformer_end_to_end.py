"""A pretrained Longformer learns to answer questions, and answers them in transformers."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
from flax import nnx

from t5x_like.interop import mapping
from t5x_like.models import longformer
from t5x_like.runs import saved_model
from t5x_like.vocabularies.learning.subword_training import train_byte_bpe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

SIZES: dict[str, Any] = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_layers": 1}
SIZES |= {"window": 8, "max_positions": 66, "init_std": 0.3}
WORDS = "the court heard a plaintiff and the defendant before noon who where when".split()


def questions(lines: list[str]) -> str:
    asked = []
    for n, line in enumerate(lines):
        answer = {"text": "plaintiff", "answer_start": line.index("plaintiff")}
        qas = [{"id": str(n), "question": "who", "answers": [answer], "is_impossible": False}]
        asked.append({"title": "t", "paragraphs": [{"context": line, "qas": qas}]})
    return json.dumps({"version": "v2.0", "data": asked})


def test_a_longformer_learns_to_answer_and_goes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any]
) -> None:
    """Its global tokens get projections of their own, which start as those of the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    lines = [" ".join([*draw.choice(WORDS, 9), "plaintiff"]) for _ in range(40)]
    Path("rows.json").write_text(questions(lines[:16]))
    vocabulary = train_byte_bpe(lines, size=300, extra_ids=0)
    config = longformer.Config(
        **SIZES,
        vocab_size=vocabulary.vocab_size,
        padding_position=vocabulary.token_ids.pad,
        tied_global=True,
    )
    make = functools.partial(longformer.Longformer, config)
    state = nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)), nnx.Param))
    saved_model.write("mine", make, state, title="a", vocabulary=vocabulary, files=())

    def done(command: str) -> None:
        told = cli(*command.split())
        assert told.status == 0, told.err

    done(
        "finetune mine --train rows.json --epochs 1 --batch_size 8 --length 64 --model_dir run "
        "--learning_rate 1e-5"
    )
    tuned = saved_model.read("run")
    assert tuned.model.config.global_tokens == "question"
    assert tuned.model.config.separator == vocabulary.token_ids.sep
    flat = {name: jnp.asarray(np.asarray(x)) for name, x in mapping.flat(tuned.params).items()}
    of_global = [name for name in flat if "_global" in name]
    assert len(of_global) == 6
    for name in of_global:
        np.testing.assert_allclose(flat[name], flat[name.replace("_global", "")], atol=1e-3)

    done("export --from run --to back")
    tokenizer = transformers.AutoTokenizer.from_pretrained("back")
    model = transformers.LongformerForQuestionAnswering.from_pretrained("back").eval()
    given = tokenizer("who", lines[30], return_tensors="pt")
    with torch.no_grad():
        out = model(**given)
    batch = {
        "encoder_input_tokens": jnp.asarray(given["input_ids"].numpy(), jnp.int32),
        "encoder_attention_mask": jnp.asarray(given["attention_mask"].numpy(), jnp.int32),
    }
    whole = nnx.merge(nnx.graphdef(tuned.model), mapping.nested(flat))
    parity.same_ends(jax.jit(whole.logits)(batch), out)
