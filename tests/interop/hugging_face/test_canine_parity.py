"""CANINE computes what transformers' does, and its weights go there and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import encoders
import jax
import parity
import pytest
import torch

from t5x_like.core.abilities import Want
from t5x_like.interop.hugging_face import canine as family
from t5x_like.models import canine, canine_pretraining

LENGTH = 22  # two whole blocks and a part; five molecules, and two characters without one
SIZES = {
    **{
        name: value
        for name, value in encoders.SIZES.items()
        if name not in ("vocab_size", "attn_implementation")
    },
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "num_hash_buckets": 64,
    "num_hash_functions": 4,
    "local_transformer_stride": 8,
    "type_vocab_size": 3,
}
KIND: dict[str, Any] = {"types": 3}
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several blocks, and code points of several scripts."""
    monkeypatch.setattr(encoders, "LENGTH", LENGTH)
    monkeypatch.setattr(encoders, "VOCAB", 0x10FFFF)


def theirs(head: str, **more: Any) -> Any:
    return parity.theirs("Canine", head, **SIZES | more)


def test_states_of_characters_and_the_pooled_molecule(tmp_path: Any) -> None:
    """Of rows with padding, in front of which convolutions read it as transformers' do.

    Also those of each layer, of which ours repeat molecules for their characters.
    """
    their_model = theirs("Model")
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(**KIND)
    out = their_model(**inputs, output_hidden_states=True)
    where = encoders.counted(batch)
    found = jax.jit(lambda batch: model.states(batch, want=Want(states=True)))(batch)
    parity.close(found.last, out.last_hidden_state, where)
    parity.close(jax.jit(model.logits)(batch), out.pooler_output)
    inner = jax.jit(lambda batch: model.body.hidden(batch, want=Want(states=True)).states)(batch)
    embedded, first, *deep, joined, last = out.hidden_states
    parity.same_layers(inner, deep)
    characters = [embedded, first, *(their_model._repeat_molecules(x, LENGTH) for x in deep[1:])]
    parity.same_layers(found.states, [*characters, last], where)
    assert joined.shape == last.shape


@pytest.mark.parametrize(
    ("head", "labels"),
    [
        ("ForSequenceClassification", 3),
        ("ForTokenClassification", 4),
        pytest.param("ForMultipleChoice", 2, marks=pytest.mark.matrix),
    ],
)
def test_labels(head: str, labels: int, tmp_path: Any) -> None:
    """Logits, padding included, loss, and gradients of all parameters."""
    encoders.same_labels(theirs(head, num_labels=labels), tmp_path, labels=labels, **KIND)


@pytest.mark.matrix
def test_answers(tmp_path: Any) -> None:
    encoders.same_answers(theirs("ForQuestionAnswering"), tmp_path, **KIND)


def test_another_rate_and_another_kernel(tmp_path: Any) -> None:
    """Of molecules, and of the convolution after them; without padding."""
    changes = {"downsampling_rate": 3, "upsampling_kernel_size": 5}
    their_model = theirs("Model", **changes)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch = encoders.read(full=True, **KIND)
    out = their_model(**inputs)
    parity.close(jax.jit(model.states)(batch).last, out.last_hidden_state)


@pytest.mark.parametrize("head", ["Model", "ForTokenClassification"])
def test_there_and_back(head: str, tmp_path: Any) -> None:
    """Of classes whose heads do not read the pooler, all but that."""
    their_model = theirs(head)
    model = parity.ours_of(their_model, tmp_path / "theirs")
    back = parity.exported(model, tmp_path / "ours")
    assert type(back) is type(their_model)
    before, after = their_model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    other = {key for key in before if not torch.equal(before[key], after[key])}
    unread = head == "ForTokenClassification"
    assert other == ({f"canine.pooler.dense.{x}" for x in ("weight", "bias")} if unread else set())
    makes = [parity.model_directory.read(tmp_path / at).make for at in ("theirs", "ours")]
    assert repr(makes[0]) == repr(makes[1])


def test_a_pretrained_model_is_exported_as_its_body(tmp_path: Any) -> None:
    config = canine.Config(
        d_model=16,
        d_ff=24,
        num_heads=4,
        num_layers=1,
        max_positions=64,
        num_buckets=64,
        num_hashes=4,
        block=8,
        type_vocab_size=3,
    )
    model = parity.nnx.jit(lambda: canine_pretraining.CanineC(config, rngs=parity.nnx.Rngs(0)))()
    inputs, batch = encoders.read(**KIND)
    ((whole, params),) = family.halves(model, parity.params_of(model)).values()
    name = parity.model_directory.write(tmp_path, whole, params)
    assert name == "CanineModel"
    back = parity.transformers.CanineModel.from_pretrained(tmp_path).eval()
    out = back(**inputs)
    found = jax.jit(model.states)(batch).last
    parity.close(found, out.last_hidden_state, encoders.counted(batch))
    for changes, message in (
        ({"max_positions": 32}, "as many positions"),
        ({"heads_read": "characters"}, "reads molecules"),
    ):
        whole.config = dataclasses.replace(config, **{"heads_read": "molecules"} | changes)
        with pytest.raises(ValueError, match=message):
            family.to_hf(whole)
