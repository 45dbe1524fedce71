"""Encoders run as decoders, and lone decoders, match transformers; weights round-trip."""

import functools

import decoders
import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
import transformers

from t5x_like.interop.hugging_face import bart, bert, electra, model_directory

OF_ENCODER = encoders.SIZES | {"is_decoder": True}
OF_BART = {
    "vocab_size": encoders.VOCAB,
    "d_model": 16,
    "decoder_ffn_dim": 24,
    "decoder_attention_heads": 4,
    "decoder_layers": 3,
    "encoder_layers": 3,  # also in their cache
    "max_position_embeddings": decoders.LENGTH,
    "attn_implementation": "eager",
}
# By name: the class, the prefix of its configuration's class, and settings.
MODELS = {
    "bert": ("BertLMHeadModel", "Bert", {"hidden_act": "relu"}),
    "roberta": ("RobertaForCausalLM", "Roberta", {"max_position_embeddings": 14}),
    "electra": ("ElectraForCausalLM", "Electra", {"embedding_size": 8, "type_vocab_size": 3}),
    "electra_wide": ("ElectraForCausalLM", "Electra", {"embedding_size": 16}),
    "bart": ("BartForCausalLM", "Bart", {}),
    "mbart": ("MBartForCausalLM", "MBart", {"scale_embedding": True, "pad_token_id": 0}),
}
ENCODERS = ("bert", "roberta", "electra", "electra_wide")
BARTS = ("bart", "mbart")
WHOLE = ("bert", "roberta", "electra")  # each model type once
pytestmark = pytest.mark.slow


def config_of(name, **more):
    _, start, switches = MODELS[name]
    sizes = OF_ENCODER if name in ENCODERS else OF_BART
    return getattr(transformers, f"{start}Config")(**sizes | switches | more)


def theirs(name, architecture=None, **more):
    cls = getattr(transformers, architecture or MODELS[name][0])
    return parity.random_model(cls, config_of(name, **more))


@pytest.mark.parametrize("name", MODELS)
def test_language_model(name, tmp_path):
    their_model = theirs(name)
    model = parity.ours_of(their_model, tmp_path)
    inputs, batch, counts = decoders.read(pad=their_model.config.pad_token_id)
    # The model does not shift BART's.
    batch = decoders.with_targets(batch, counts)
    labels, where = inputs["input_ids"], counts
    if name in BARTS:
        labels, where = batch["decoder_target_tokens"], batch["decoder_loss_weights"] > 0
    labels = torch.tensor(np.where(where, labels, -100), dtype=torch.long)
    out = their_model(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    decoders.same_states(model, batch, out, counts)
    parity.same_loss(model, batch, their_model, out)


# Not against `generate`, which counts RoBERTa's positions differently from the model.
@pytest.mark.parametrize("name", MODELS)
def test_decoding_one_by_one(name, tmp_path):
    their_model = theirs(name)
    model = parity.ours_of(their_model, tmp_path)
    tokens = np.random.default_rng(5).integers(5, encoders.VOCAB, (3, 12))
    want = their_model(torch.tensor(tokens)).logits
    tokens = jnp.asarray(tokens, jnp.int32)
    prefill = jax.jit(functools.partial(model.prefill, max_length=12))
    cache = prefill({"decoder_input_tokens": tokens[:, :4]})
    step = jax.jit(type(model).decode_step)
    for position in range(3, 12):
        logits, cache = step(model, cache, tokens[:, position], jnp.int32(position))
        parity.close(logits, want[:, position])


@pytest.mark.parametrize("name", ENCODERS)
def test_there_and_back(name, tmp_path):
    their_model = theirs(name)
    _, back = parity.there_and_back(their_model, tmp_path)
    inputs, _, _ = decoders.read(pad=their_model.config.pad_token_id)
    with torch.no_grad():
        parity.close(back(**inputs).logits, their_model(**inputs).logits)


@pytest.mark.parametrize("name", BARTS)
def test_there_and_back_but_for_the_attention_that_a_decoder_alone_lacks(name, tmp_path):
    their_model = theirs(name, dropout=0.2)
    model = parity.ours_of(their_model, tmp_path / "theirs")
    back = parity.exported(model, tmp_path / "ours")
    assert type(back) is type(their_model)
    before, after = their_model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    lost = {key for key in before if not torch.equal(before[key], after[key])}
    assert lost == set(model_directory.read(tmp_path / "theirs").unused)
    assert len(lost) == 30
    assert all(".encoder_attn" in key for key in lost)
    assert after["model.decoder.layers.1.encoder_attn.q_proj.weight"].std() > 0.01
    inputs, _, _ = decoders.read(pad=their_model.config.pad_token_id)
    with torch.no_grad():
        parity.close(back(**inputs).logits, their_model(**inputs).logits)
    makes = [model_directory.read(tmp_path / at).make for at in ("theirs", "ours")]
    assert repr(makes[0]) == repr(makes[1])


def test_the_decoder_of_a_whole_bart(tmp_path):
    whole = "BartForConditionalGeneration"
    sizes = {"encoder_layers": 2, "encoder_ffn_dim": 8, "encoder_attention_heads": 2}
    their_model, name = theirs("bart", whole, **sizes), "BartForCausalLM"
    # They cannot read it from the file, where its table has the encoder's name.
    decoder = getattr(transformers, name)(config_of("bart")).eval()
    decoder.model.decoder.load_state_dict(their_model.model.decoder.state_dict())
    model = parity.ours_of(their_model, tmp_path, architecture=name)
    inputs, batch, counts = decoders.read(pad=their_model.config.pad_token_id)
    want = decoder(**inputs).logits
    parity.close(jax.jit(model.logits)(batch), want, counts)
    found = model_directory.read(tmp_path, architecture=name)
    assert found.unused
    assert all("encoder" in key for key in found.unused)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_decoder_sees_both_sides_and_is_a_masked_language_model(name, tmp_path):
    their_model = theirs(name, is_decoder=False)
    model = parity.ours_of(their_model, tmp_path / "theirs")
    inputs, batch, _ = decoders.read(pad=their_model.config.pad_token_id)
    batch = {
        "encoder_input_tokens": batch["decoder_input_tokens"],
        "encoder_attention_mask": jnp.asarray(inputs["attention_mask"]),
    }
    want = their_model(**inputs).logits
    parity.close(jax.jit(model.logits)(batch), want)
    back = parity.exported(model, tmp_path / "ours")
    assert type(back).__name__.endswith("ForMaskedLM")
    parity.close(back(**inputs).logits.detach(), want)


@pytest.mark.parametrize("name", WHOLE)
def test_a_masked_language_model_starts_a_decoder(name, tmp_path):
    cls, start, _ = MODELS[name]
    their_model = theirs(name, f"{start}ForMaskedLM")
    model = parity.ours_of(their_model, tmp_path, architecture=cls)
    inputs, batch, counts = decoders.read(pad=their_model.config.pad_token_id)
    decoder = getattr(transformers, cls).from_pretrained(tmp_path).eval()
    parity.close(jax.jit(model.logits)(batch), decoder(**inputs).logits, counts)


@pytest.mark.parametrize(
    ("family", "kind", "architecture", "settings"),
    [
        (bert, "bert", "BertLMHeadModel", {"is_decoder": True}),
        (bert, "roberta", "RobertaForCausalLM", {}),
        (electra, "electra", "ElectraForCausalLM", {"is_decoder": True}),
        (bart, "mbart", "MBartForCausalLM", {}),
    ],
)
def test_attention_to_an_encoder_is_refused(family, kind, architecture, settings):
    given = {"model_type": kind, "add_cross_attention": True, **settings}
    with pytest.raises(ValueError, match="add_cross_attention True: only False is read"):
        family.from_hf(given, architecture)


@pytest.mark.parametrize(
    ("family", "kind", "architecture"),
    [(bert, "roberta", "RobertaForCausalLM"), (electra, "electra", "ElectraForCausalLM")],
)
def test_another_activation_than_the_heads_is_refused(family, kind, architecture):
    given = {"model_type": kind, "hidden_act": "relu", "is_decoder": True}
    with pytest.raises(ValueError, match="only gelu"):
        family.from_hf(given, architecture)
