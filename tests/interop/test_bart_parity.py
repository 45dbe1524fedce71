"""BART and mBART compute what transformers' do, and their weights go there and back."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.data.feature_converters import EncoderDecoder
from t5x_like.inference.decoding import greedy
from t5x_like.interop import bart as family
from t5x_like.interop import hugging_face, mapping
from t5x_like.models import bart
from t5x_like.protocols import FeatureSpec, TokenIds

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 60,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 20,
    "attn_implementation": "eager",
}
SWITCHES = {
    "bart": ("Bart", {}),
    "bart_scaled": (
        "Bart",
        {"scale_embedding": True, "activation_function": "relu", "pad_token_id": 0},
    ),
    "mbart": ("MBart", {"scale_embedding": True}),
    "mbart_unscaled": ("MBart", {"activation_function": "gelu_new"}),
}
EOS = 2
LENGTHS = {"inputs": 13, "targets": 9}
pytestmark = pytest.mark.slow


def theirs(name, head, **more):
    """A random model in which nothing is zero or one."""
    kind, switches = SWITCHES[name]
    config = getattr(transformers, f"{kind}Config")(**SIZES, **switches, **more)
    torch.manual_seed(0)
    model = getattr(transformers, kind + head)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.25)
        if head == "ForConditionalGeneration":
            model.final_logits_bias.normal_()
    return model


def ours(model, directory, **more):
    """The same, by way of a directory."""
    model.save_pretrained(directory)
    found = hugging_face.read(directory, **more)
    graph = nnx.graphdef(nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0))))
    return nnx.merge(graph, jax.tree.map(jnp.asarray, found.params))


def batch_for(model, rows=5):
    """Rows of different lengths as the data pipeline makes them, each ending in </s>."""
    rng = np.random.default_rng(3)
    pad = model.config.pad_token_id
    ids = TokenIds(60, pad=pad, eos=EOS)
    features = {name: FeatureSpec(length) for name, length in LENGTHS.items()}

    def text(length):
        return np.append(rng.integers(4, 60, rng.integers(2, length)), EOS).astype(np.int32)

    laid = [
        EncoderDecoder(decoder_start="eos").convert(
            [{name: text(length) for name, length in LENGTHS.items()}], features=features, ids=ids
        )
        for _ in range(rows)
    ]
    return {name: jnp.stack([row[name] for row in laid]) for name in laid[0]}


def inputs_of(model, batch):
    tokens = torch.tensor(np.array(batch["encoder_input_tokens"], np.int64))
    return {"input_ids": tokens, "attention_mask": (tokens != model.config.pad_token_id).long()}


def close(got, want, where=None, atol=2e-5):
    got, want = np.asarray(got), np.asarray(want.detach())
    if where is not None:
        got, want = got[np.asarray(where)], want[np.asarray(where)]
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def same_gradients(grads, model, their_model):
    """Of every parameter, within 1e-4 of its largest."""
    params = nnx.to_pure_dict(nnx.state(grads, nnx.Param))
    got = dict(mapping.written(params, model, family.names(model)))
    want = {name: p.grad for name, p in their_model.named_parameters()}
    assert np.all(got.pop("final_logits_bias", 0) == 0)
    assert got.keys() == want.keys()
    for name, grad in want.items():
        scale = max(1e-2, grad.abs().max().item())
        close(got[name] / scale, grad / scale, atol=1e-4)


def loss_and_gradients(model, batch):
    def loss(model):
        return model.loss(batch, None, (), model.weights(batch))[0]

    return jax.jit(jax.value_and_grad(loss))(model)


@pytest.mark.parametrize("name", SWITCHES)
def test_generation_model(name, tmp_path):
    their_model = theirs(name, "ForConditionalGeneration")
    model = ours(their_model, tmp_path)
    batch = batch_for(their_model)
    targets = np.array(batch["decoder_target_tokens"], np.int64)
    counts = targets != their_model.config.pad_token_id
    out = their_model(
        **inputs_of(their_model, batch),
        labels=torch.tensor(np.where(counts, targets, -100)),
        output_hidden_states=True,
        output_attentions=True,
    )
    out.loss.backward()
    hidden = functools.partial(model.hidden, return_hidden=True, return_attention=True)
    decoded = jax.jit(hidden)(batch)
    close(model.score(decoded.last), out.logits, counts)
    for got, want in zip(decoded.states, out.decoder_hidden_states, strict=True):
        close(got, want, counts)
    per_query = np.broadcast_to(counts[:, None], (5, 4, counts.shape[1]))
    for got, want in zip(decoded.attention, out.decoder_attentions, strict=True):
        close(got, want, per_query)
    for got, want in zip(decoded.cross, out.cross_attentions, strict=True):
        close(got, want, per_query)
    encoded = model.encode(batch["encoder_input_tokens"], return_hidden=True, return_attention=True)
    for got, want in zip(encoded.states, out.encoder_hidden_states, strict=True):
        close(got, want)
    for got, want in zip(encoded.attention, out.encoder_attentions, strict=True):
        close(got, want)
    loss, grads = loss_and_gradients(model, batch)
    np.testing.assert_allclose(loss, out.loss.item(), rtol=1e-5)
    same_gradients(grads, model, their_model)


@pytest.mark.parametrize("name", SWITCHES)
def test_greedy_decoding(name, tmp_path):
    their_model = theirs(name, "ForConditionalGeneration")
    pad = their_model.config.pad_token_id
    their_model.final_logits_bias[:, [pad, EOS]] += torch.tensor([-9.0, 2.0])
    model = ours(their_model, tmp_path)
    batch = batch_for(their_model, rows=12)
    settings = transformers.GenerationConfig(
        max_new_tokens=16,
        num_beams=1,
        do_sample=False,
        decoder_start_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=pad,
    )
    want = their_model.generate(**inputs_of(their_model, batch), generation_config=settings)
    want = np.asarray(want)[:, 1:]
    tokens = batch["encoder_input_tokens"]
    got = np.asarray(greedy(model, tokens, max_length=16, start=EOS, eos=EOS, pad=pad))
    ended = (want == EOS).sum(axis=1)
    assert 0 < ended.sum() < len(ended), "of interest where some rows end and some do not"
    np.testing.assert_array_equal(got[:, : want.shape[1]], want)
    assert np.all(got[:, want.shape[1] :] == pad)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("labels", [1, 4])
def test_classes_and_numbers(name, labels, tmp_path):
    their_model = theirs(name, "ForSequenceClassification", num_labels=labels)
    model = ours(their_model, tmp_path)
    batch = batch_for(their_model)
    truth = np.random.default_rng(0).normal(size=5).astype(np.float32)
    if labels > 1:
        truth = np.arange(5) % labels
    out = their_model(**inputs_of(their_model, batch), labels=torch.tensor(truth))
    out.loss.backward()
    batch = {"encoder_input_tokens": batch["encoder_input_tokens"], "labels": jnp.asarray(truth)}
    close(jax.jit(model.logits)(batch), out.logits)
    loss, grads = loss_and_gradients(model, batch)
    np.testing.assert_allclose(loss, out.loss.item(), rtol=1e-5)
    same_gradients(grads, model, their_model)


@pytest.mark.parametrize("name", SWITCHES)
def test_answers(name, tmp_path):
    their_model = theirs(name, "ForQuestionAnswering")
    model = ours(their_model, tmp_path)
    batch = batch_for(their_model)
    inputs = inputs_of(their_model, batch)
    ends = inputs["attention_mask"].sum(dim=1) - 1
    out = their_model(**inputs, start_positions=ends // 2, end_positions=ends)
    out.loss.backward()
    batch = {
        "encoder_input_tokens": batch["encoder_input_tokens"],
        "encoder_attention_mask": jnp.asarray(inputs["attention_mask"]),
        "start_positions": jnp.asarray(ends // 2),
        "end_positions": jnp.asarray(ends),
    }
    counts = batch["encoder_attention_mask"] > 0
    logits = jax.jit(model.logits)(batch)
    close(logits[..., 0], out.start_logits, counts)
    close(logits[..., 1], out.end_logits, counts)


@pytest.mark.parametrize("name", SWITCHES)
def test_body_alone(name, tmp_path):
    their_model = theirs(name, "Model")
    model = ours(their_model, tmp_path)
    batch = batch_for(their_model)
    inputs = inputs_of(their_model, batch)
    counts = np.asarray(inputs["attention_mask"]) > 0
    out = their_model(**inputs)
    reads = {"encoder_input_tokens": batch["encoder_input_tokens"]}
    close(jax.jit(model.body.hidden)(reads).last, out.last_hidden_state, counts)
    tokens = torch.tensor(np.array(batch["decoder_input_tokens"], np.int64))
    out = their_model(**inputs, decoder_input_ids=tokens)
    counts = np.asarray(batch["decoder_target_tokens"]) != their_model.config.pad_token_id
    close(jax.jit(model.body.model.hidden)(batch).last, out.last_hidden_state, counts)


HEADS = ("ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering", "Model")


def loaded(directory, kind, head):
    """What transformers makes of a directory, which it must find complete."""
    auto = {"ForConditionalGeneration": "AutoModelForSeq2SeqLM", "Model": "AutoModel"}
    cls = getattr(transformers, auto.get(head, f"AutoModel{head}"))
    model, report = cls.from_pretrained(directory, output_loading_info=True)
    assert type(model).__name__ == kind + head
    assert not any(report[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", SWITCHES)
def test_there_and_back(name, head, tmp_path):
    their_model = theirs(name, head)
    model = ours(their_model, tmp_path / "theirs")
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    written = hugging_face.write(tmp_path / "ours", model, params)
    assert written == type(their_model).__name__
    back = loaded(tmp_path / "ours", SWITCHES[name][0], head)
    before, after = their_model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    settings = [
        json.loads((tmp_path / at / "config.json").read_text()) for at in ("theirs", "ours")
    ]
    read = [family.from_hf(one, written) for one in settings]
    assert repr(read[0]) == repr(read[1])
    inputs = inputs_of(their_model, batch_for(their_model))
    with torch.no_grad():
        assert torch.equal(their_model(**inputs)[0], back(**inputs)[0])


def test_a_model_made_here_has_zeros_for_the_bias_that_it_lacks(tmp_path):
    config = bart.Config(
        vocab_size=60, d_model=24, d_ff=40, num_heads=4, num_encoder_layers=1, num_decoder_layers=1
    )
    model = bart.Bart(config, rngs=nnx.Rngs(0))
    hugging_face.write(tmp_path, model, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    back = loaded(tmp_path, "Bart", "ForConditionalGeneration")
    assert not back.final_logits_bias.any()
    batch = batch_for(back)
    counts = np.asarray(batch["decoder_target_tokens"]) != 1
    tokens = torch.tensor(np.array(batch["decoder_input_tokens"], np.int64))
    out = back(**inputs_of(back, batch), decoder_input_ids=tokens)
    close(model.logits(batch), out.logits, counts)


def test_the_body_of_a_generation_model(tmp_path):
    model = ours(theirs("bart", "ForConditionalGeneration"), tmp_path, architecture="BartModel")
    assert family.to_hf(model)["architectures"] == ["BartModel"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decoder_ffn_dim": 8}, "only equal ones are read"),
        ({"encoder_layerdrop": 0.1}, "encoder_layerdrop 0.1"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings False"),
        ({"activation_function": "mish"}, "mish"),
    ],
)
def test_what_is_not_read_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        family.from_hf({"model_type": "bart", **SIZES, **settings}, "BartModel")


def test_a_class_that_is_not_read_is_refused():
    with pytest.raises(ValueError, match="BartForCausalLM is not read; of this family, Bart"):
        family.from_hf({"model_type": "bart"}, "BartForCausalLM")
