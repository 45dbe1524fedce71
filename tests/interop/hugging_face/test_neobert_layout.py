"""NeoBERT computes what its architecture, stated in torch with its authors' names, computes.

transformers has no class of it: `Stated` has the layout and the arithmetic of the authors' code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import safetensors.torch
import torch
from flax import nnx

from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.hugging_face import neobert as family

HEADS, WIDTH, LAYERS = 2, 8, 2
D_MODEL, D_FF = HEADS * WIDTH, 24
CONFIG = {
    "model_type": "neobert",
    "architectures": ["NeoBERTLMHead"],
    "vocab_size": encoders.VOCAB,
    "hidden_size": D_MODEL,
    "intermediate_size": 35,  # 8 * ceil(int(2 * 35 / 3) / 8) = 24
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "norm_eps": 1e-5,
    "max_length": 64,
    "embedding_init_range": 0.02,
    "decoder_init_range": 0.02,
    "pad_token_id": 0,
}
pytestmark = pytest.mark.slow


class Block(torch.nn.Module):
    """One layer: query, key and value of each head side by side; neighbours are turned."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.wo = torch.nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.ffn = torch.nn.ModuleDict(
            {
                "w12": torch.nn.Linear(D_MODEL, 2 * D_FF, bias=False),
                "w3": torch.nn.Linear(D_FF, D_MODEL, bias=False),
            }
        )
        self.attention_norm = torch.nn.RMSNorm(D_MODEL, 1e-5)
        self.ffn_norm = torch.nn.RMSNorm(D_MODEL, 1e-5)

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(rows, length, HEADS, 3 * WIDTH)
        query, key, value = heads.split(WIDTH, dim=-1)
        query, key = turned(query), turned(key)
        logits = torch.einsum("blhk,bmhk->bhlm", query, key) / WIDTH**0.5
        p = logits.masked_fill(counts[:, None, None] == 0, -1e9).softmax(-1)
        x = x + self.wo(torch.einsum("bhlm,bmhk->blhk", p, value).reshape(rows, length, -1))
        gate, up = self.ffn["w12"](self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.ffn["w3"](torch.nn.functional.silu(gate) * up)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Each pair of neighbours is a complex number, multiplied by exp(i * position * frequency)."""
    frequencies = 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angles = torch.arange(x.shape[1])[:, None] * frequencies
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


class Stated(torch.nn.Module):
    """The body and the head for masked tokens."""

    def __init__(self) -> None:
        super().__init__()
        body = torch.nn.Module()
        body.encoder = torch.nn.Embedding(encoders.VOCAB, D_MODEL)
        body.transformer_encoder = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        body.layer_norm = torch.nn.RMSNorm(D_MODEL, 1e-5)
        self.model = body
        self.decoder = torch.nn.Linear(D_MODEL, encoders.VOCAB)
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(std=0.25)

    def states(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        x = self.model.encoder(tokens)
        for block in self.model.transformer_encoder:
            x = block(x, counts)
        return self.model.layer_norm(x)

    def forward(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.states(tokens, counts))


def saved(directory: Path, model: torch.nn.Module, **more: Any) -> Path:
    directory.mkdir()
    safetensors.torch.save_file(model.state_dict(), directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(CONFIG | more))
    return directory


def ours(directory: Path) -> Any:
    found = model_directory.read(directory)
    assert not found.unused
    assert not found.unread
    graph = nnx.graphdef(nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0))))
    return nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))


def test_logits_and_gradients_are_those_that_are_stated(tmp_path: Path) -> None:
    stated = Stated()
    model = ours(saved(tmp_path / "theirs", stated))
    inputs, batch = encoders.read(types=None)
    batch, labels = encoders.masked(batch)
    counts = np.asarray(batch["encoder_attention_mask"]) > 0
    logits = stated(inputs["input_ids"], inputs["attention_mask"])
    parity.close(jax.jit(model.logits)(batch), logits, counts)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    found, grads = parity.loss_and_gradients(model, batch)
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    parity.same_gradients(grads, model, stated)


def test_weights_and_settings_go_back_as_they_came(tmp_path: Path) -> None:
    stated = Stated()
    model = ours(saved(tmp_path / "theirs", stated))
    name = model_directory.write(tmp_path / "back", model, parity.params_of(model))
    assert name == "NeoBERTLMHead"
    back = safetensors.torch.load_file(tmp_path / "back" / "model.safetensors")
    want = stated.state_dict()
    assert back.keys() == want.keys()
    assert all(torch.equal(back[key], want[key]) for key in want)
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["auto_map"]["AutoModelForMaskedLM"] == "chandar-lab/NeoBERT--model.NeoBERTLMHead"
    # As wide, though another number stands for it: 36 gives 24, too.
    assert {**config, "intermediate_size": 35} | CONFIG == {**config, "intermediate_size": 35}
    assert repr(model_directory.read(tmp_path / "back").make) == repr(
        model_directory.read(tmp_path / "theirs").make
    )


def test_classes(tmp_path: Path) -> None:
    """Of the first state: dense, tanh, dense."""
    whole = torch.nn.Module()
    stated = Stated()
    whole.model = stated.model
    whole.dense = torch.nn.Linear(D_MODEL, D_MODEL)
    whole.classifier = torch.nn.Linear(D_MODEL, 3)
    more = {"architectures": ["NeoBERTForSequenceClassification"], "num_labels": 3}
    model = ours(saved(tmp_path / "theirs", whole, **more))
    inputs, batch = encoders.read(types=None)
    states = stated.states(inputs["input_ids"], inputs["attention_mask"])
    want = whole.classifier(torch.tanh(whole.dense(states[:, 0])))
    parity.close(jax.jit(model.logits)(batch), want)
    assert model_directory.write(tmp_path / "back", model, parity.params_of(model)) == (
        "NeoBERTForSequenceClassification"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"theta": 500.0}, "theta is 500.0"),
        ({"d_ff": 20}, "d_ff is 20"),
        ({"num_kv_heads": 1}, "kv"),
    ],
)
def test_what_the_code_lacks_is_not_exported(changes: dict[str, Any], message: str) -> None:
    from t5x_like.models import neobert

    config = neobert.Config(vocab_size=9, d_model=8, num_heads=2, num_layers=1, **changes)
    model = nnx.eval_shape(lambda: neobert.NeoBert(config, rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match=message):
        family.to_hf(model)
