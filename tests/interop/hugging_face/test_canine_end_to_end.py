"""A pretrained CANINE learns classes of pairs of texts, and names them in transformers."""

from __future__ import annotations

import functools
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
from t5x_like.models import canine, canine_pretraining
from t5x_like.runs import saved_model
from t5x_like.vocabularies.code_points import CodePointVocabulary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

CONFIG = canine.Config(
    d_model=16,
    d_ff=24,
    num_heads=2,
    num_layers=1,
    max_positions=64,
    num_buckets=64,
    num_hashes=4,
    block=16,
    init_std=0.3,
)


def test_a_canine_learns_classes_and_goes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any]
) -> None:
    """Its head reads the molecule of [CLS], with the pooler of pretraining."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5X_LIKE_CACHE", str(tmp_path / "cache"))
    rows = [f"der Fluß {n}\tist ruhig 東\t{'ja' if n % 2 else 'nein'}" for n in range(16)]
    Path("rows.tsv").write_text("\n".join(["inputs\tinputs2\tlabel", *rows]) + "\n")
    make = functools.partial(canine_pretraining.CanineC, CONFIG)
    state = nnx.to_pure_dict(nnx.state(nnx.jit(lambda: make(rngs=nnx.Rngs(0)))(), nnx.Param))
    vocabulary = CodePointVocabulary()
    saved_model.write("mine", make, state, title="a", vocabulary=vocabulary, files=())

    def done(command: str) -> None:
        told = cli(*command.split())
        assert told.status == 0, told.err

    done(
        "finetune mine --train rows.tsv --epochs 1 --batch_size 8 --length 32 --model_dir run "
        "--learning_rate 1e-5"
    )
    tuned = saved_model.read("run")
    assert tuned.model.config.heads_read == "molecules"
    flat = {name: jnp.asarray(np.asarray(x)) for name, x in mapping.flat(tuned.params).items()}
    np.testing.assert_allclose(
        flat["head/pooler/dense/kernel"], state["sentence"]["pooler"]["dense"]["kernel"], atol=1e-3
    )

    done("export --from run --to back")
    tokenizer = transformers.AutoTokenizer.from_pretrained("back")
    model = transformers.AutoModelForSequenceClassification.from_pretrained("back").eval()
    assert model.config.id2label == {0: "ja", 1: "nein"}
    given = tokenizer("der Fluß 3", "ist ruhig 東", return_tensors="pt")
    types = (torch.cumsum(given["input_ids"] == tokenizer.sep_token_id, dim=1) > 0).long()
    given["token_type_ids"] = types.roll(1, dims=1)  # the first [SEP] is of the first text
    given["token_type_ids"][:, 0] = 0
    with torch.no_grad():
        out = model(**given)
    batch = {
        "encoder_input_tokens": given["input_ids"],
        "encoder_attention_mask": given["attention_mask"],
        "encoder_token_type_ids": given["token_type_ids"],
    }
    whole = nnx.merge(nnx.graphdef(tuned.model), mapping.nested(flat))
    ours = {name: jnp.asarray(x.numpy(), jnp.int32) for name, x in batch.items()}
    parity.close(jax.jit(whole.logits)(ours), out.logits)
