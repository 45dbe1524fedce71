"""XLNet computes what transformers' does, and its weights go there and back."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
from flax import nnx

from t5x_like.core.abilities import ALL, Want
from t5x_like.interop.hugging_face import xlnet as family
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.families.xlnet_inputs import Reading, Targets
from t5x_like.models import xlnet

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTH, PREDICTED, MEMORY, VOCAB = 11, 4, 7, 60
ROWS = 4
PADDING = (2, 0, 5, 1)
SIZES = {
    "vocab_size": VOCAB,
    "d_model": 24,
    "n_layer": 2,
    "n_head": 4,
    "d_inner": 40,
    "mem_len": MEMORY,
    "reuse_len": 5,
}
SWITCHES = {
    "bi": {},
    "uni": {"attn_type": "uni"},
    "same_length": {"attn_type": "uni", "same_length": True, "reuse_len": None},
    "backward": {"bi_data": True, "ff_activation": "gelu_new"},
    "clamped": {"bi_data": True, "clamp_len": 4, "ff_activation": "relu"},
}
pytestmark = pytest.mark.slow


def theirs(head, name="bi", **more):
    model = parity.theirs("XLNet", head, **SIZES | SWITCHES[name] | more)
    # The model keeps its configuration. Which rows are reversed is our feature; their configuration
    # that reverses half of every batch is not read.
    model.config.bi_data = False
    return model


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def rows(rng, count=ROWS):
    """Padded on the left, in three segments."""
    counts = (np.arange(LENGTH) >= np.array(PADDING[:count])[:, None]).astype(np.int64)
    tokens = np.where(counts, rng.integers(6, VOCAB, counts.shape), 5)
    types = np.where(counts, np.sort(rng.integers(0, 3, counts.shape), axis=1), 4)
    return {"input_ids": tokens, "attention_mask": counts, "token_type_ids": types}


def count_of(model):
    """Their causal mask cannot be added to masks of several rows."""
    return 1 if model.config.attn_type == "uni" else ROWS


def tensors(arrays):
    return {name: torch.tensor(x) for name, x in arrays.items()}


def batch_of(arrays, **more):
    named = {
        "encoder_input_tokens": arrays["input_ids"],
        "encoder_attention_mask": arrays["attention_mask"],
        **more,
    }
    if "token_type_ids" in arrays:
        named["encoder_token_type_ids"] = arrays["token_type_ids"]
    return {name: jnp.asarray(x) for name, x in named.items()}


def mapping_of(positions):
    return np.eye(LENGTH, dtype=np.float32)[positions]


def memories(rng, model):
    """Their memory, a list of [M, B, D]; ours, [B, N, M, D]."""
    shape = (model.config.n_layer, MEMORY, count_of(model), model.config.d_model)
    both = rng.normal(size=shape).astype(np.float32)
    return [torch.tensor(x) for x in both], jnp.asarray(both.transpose(2, 0, 1, 3))


def positions_of(rng, model):
    """Some positions of each row, in no order."""
    return np.stack([rng.permutation(LENGTH)[:PREDICTED] for _ in range(count_of(model))])


def backward_of(model):
    """Reversed rows as they have them: the second half of the batch."""
    return jnp.arange(ROWS) >= ROWS // 2 if model.transformer.bi_data else None


@pytest.mark.parametrize("with_memory", [False, True])
@pytest.mark.parametrize("name", SWITCHES)
def test_both_streams_with_any_mask_and_memory(name, with_memory, rng, tmp_path):
    their_model = theirs("LMHeadModel", name)
    model = parity.ours_of(their_model, tmp_path)
    arrays, positions = rows(rng, count_of(their_model)), positions_of(rng, their_model)
    hidden = (rng.random((len(positions), LENGTH, LENGTH)) < 0.4).astype(np.float32)
    their_memory, memory = memories(rng, their_model) if with_memory else (None, None)
    out = their_model(
        **tensors(arrays),
        perm_mask=torch.tensor(hidden),
        target_mapping=torch.tensor(mapping_of(positions)),
        mems=their_memory,
        output_hidden_states=True,
        output_attentions=True,
    )
    seen = (hidden == 0) & (arrays["attention_mask"][:, None] > 0)
    reading = Reading(
        jnp.asarray(arrays["input_ids"]),
        jnp.asarray(arrays["token_type_ids"]),
        Mask(pairs=jnp.asarray(seen | np.eye(LENGTH, dtype=bool))[:, None]),
        Targets(
            jnp.asarray(positions),
            Mask(pairs=jnp.asarray(np.take_along_axis(seen, positions[..., None], 1))[:, None]),
        ),
        backward_of(their_model),
    )
    read = functools.partial(model.encoder.read, want=ALL)
    streams = jax.jit(read)(reading, memory)
    parity.close(model.token_scores(streams.query.last).logits(), out.logits)
    for i, stream in enumerate((streams.content, streams.query)):
        parity.same_layers(stream.states, out.hidden_states[i::2])
        for got, pair in zip(stream.attention, out.attentions, strict=True):
            want = pair[i]
            if i:
                want = torch.gather(
                    want, 2, torch.tensor(positions)[:, None, :, None].expand(*got.shape)
                )
            parity.close(got, want)
    if with_memory:
        for layer, want in enumerate(out.mems):
            parity.close(streams.memory[:, layer], want.transpose(0, 1))


def permuted_batch(rng, arrays, their_model):
    positions = positions_of(rng, their_model)
    weights = np.ones(positions.shape, np.float32)
    weights[0, 2:] = weights[-1, 3:] = 0
    positions[weights == 0] = 0
    rows_of = (len(positions), LENGTH)
    backward = backward_of(their_model)
    return batch_of(
        arrays,
        masked_positions=positions,
        masked_targets=rng.integers(6, VOCAB, positions.shape),
        masked_loss_weights=weights,
        permutation_query_order=rng.integers(0, 6, rows_of),
        permutation_key_order=rng.integers(-1, 6, rows_of),
        backward=np.zeros(len(positions), np.int32)
        if backward is None
        else backward.astype(np.int32),
        reset_memory=np.zeros(len(positions), np.int32),
    )


@pytest.mark.parametrize("name", SWITCHES)
def test_pretraining_loss_gradients_and_next_memory(name, rng, tmp_path):
    their_model = theirs("LMHeadModel", name)
    model = parity.ours_of(their_model, tmp_path)
    arrays = rows(rng, count_of(their_model))
    batch = permuted_batch(rng, arrays, their_model)
    their_memory, memory = memories(rng, their_model)
    query, key = (np.asarray(batch[f"permutation_{end}_order"]) for end in ("query", "key"))
    weights = np.asarray(batch["masked_loss_weights"])
    # Empty slots have no row in the mapping; ours are therefore not read either.
    out = their_model(
        **tensors(arrays),
        perm_mask=torch.tensor((query[:, :, None] <= key[:, None]).astype(np.float32)),
        target_mapping=torch.tensor(
            mapping_of(np.asarray(batch["masked_positions"])) * weights[..., None]
        ),
        mems=their_memory,
        use_mems=True,
        labels=torch.tensor(np.where(weights > 0, batch["masked_targets"], -100)).long(),
    )
    out.loss.backward()

    def loss(model):
        scalar, _, carry = model.loss(batch, None, memory, model.weights(batch))
        return scalar, carry

    (scalar, carry), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(model)
    np.testing.assert_allclose(scalar, out.loss.item(), rtol=1e-5)
    for layer, want in enumerate(out.mems):
        parity.close(carry[:, layer], want.transpose(0, 1))
    parity.same_gradients(grads, model, their_model)


@pytest.mark.parametrize("with_types", [False, True])
@pytest.mark.parametrize("name", ["bi", "uni", "clamped"])
def test_body(name, with_types, rng, tmp_path):
    their_model = theirs("Model", name)
    their_model.bi_data = False  # no half of these rows is reversed
    model = parity.ours_of(their_model, tmp_path)
    arrays = rows(rng, count_of(their_model))
    if not with_types:
        del arrays["token_type_ids"]
    out = their_model(**tensors(arrays), output_hidden_states=True)
    states = jax.jit(lambda batch: model.body.hidden(batch, want=Want(states=True)).states)(
        batch_of(arrays)
    )
    parity.same_layers(states, out.hidden_states)


def same_task(their_model, arrays, labels, directory, batch):
    """Asserts equal losses and gradients; returns our model and their output."""
    out = their_model(**tensors(arrays), **tensors(labels))
    model = parity.ours_of(their_model, directory)
    parity.same_loss(model, batch, their_model, out)
    return model, out


@pytest.mark.parametrize("num_labels", [1, 3])
def test_classes_and_numbers(num_labels, rng, tmp_path):
    their_model = theirs("ForSequenceClassification", num_labels=num_labels)
    arrays = rows(rng)
    truth = np.arange(ROWS) % num_labels
    if num_labels == 1:
        truth = rng.normal(size=ROWS).astype(np.float32)
    batch = batch_of(arrays, labels=truth)
    model, out = same_task(their_model, arrays, {"labels": truth}, tmp_path, batch)
    parity.close(jax.jit(model.logits)(batch), out.logits)


def test_tags(rng, tmp_path):
    arrays = rows(rng)
    tags = np.where(arrays["attention_mask"], rng.integers(0, 3, (ROWS, LENGTH)), -100)
    batch = batch_of(arrays, labels=tags)
    model, out = same_task(
        theirs("ForTokenClassification", num_labels=3), arrays, {"labels": tags}, tmp_path, batch
    )
    parity.close(jax.jit(model.logits)(batch), out.logits)


def test_choices(rng, tmp_path):
    arrays = {name: np.stack([x, np.flip(x, 0)], axis=1) for name, x in rows(rng).items()}
    truth = np.arange(ROWS) % 2
    batch = batch_of(arrays, labels=truth)
    model, out = same_task(theirs("ForMultipleChoice"), arrays, {"labels": truth}, tmp_path, batch)
    parity.close(jax.jit(model.logits)(batch), out.logits)


def span_labels(rng):
    starts = rng.integers(5, LENGTH - 2, ROWS)
    return {"start_positions": starts, "end_positions": starts + 1}


def test_simple_answers(rng, tmp_path):
    arrays, labels = rows(rng), span_labels(rng)
    batch = batch_of(arrays, **labels)
    model, out = same_task(theirs("ForQuestionAnsweringSimple"), arrays, labels, tmp_path, batch)
    parity.same_ends(jax.jit(model.logits)(batch), out)


@pytest.mark.parametrize("answerable", [False, True])
def test_answers_whose_end_depends_on_the_start(answerable, rng, tmp_path):
    their_model = theirs("ForQuestionAnswering", start_n_top=3, end_n_top=2)
    arrays, labels = rows(rng), span_labels(rng)
    hidden = (np.arange(LENGTH) < 3).astype(np.float32) + 1.0 - arrays["attention_mask"]
    hidden = np.minimum(hidden, 1).astype(np.float32)
    batch = batch_of(arrays, **labels, answer_mask=1 - hidden)
    theirs_alone = {"p_mask": hidden}
    if answerable:
        impossible = np.array([0, 1, 1, 0], np.float32)
        batch["is_impossible"] = jnp.asarray(impossible)
        theirs_alone |= {
            "is_impossible": impossible,
            "cls_index": np.full(ROWS, LENGTH - 1),
        }
    model, _ = same_task(their_model, arrays, labels | theirs_alone, tmp_path, batch)
    out = their_model(**tensors(arrays), p_mask=torch.tensor(hidden))
    answers = jax.jit(model.answers)(batch)
    np.testing.assert_array_equal(answers.starts, out.start_top_index)
    parity.close(answers.start_probabilities, out.start_top_log_probs)
    # Theirs are sorted by the rank of the end first.
    ends = np.asarray(out.end_top_index).reshape(ROWS, 2, 3).swapaxes(1, 2)
    np.testing.assert_array_equal(answers.ends, ends)
    chances = out.end_top_log_probs.reshape(ROWS, 2, 3).transpose(1, 2)
    parity.close(answers.end_probabilities, chances)
    parity.close(answers.unanswerable, out.cls_logits)


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("LMHeadModel", {}),
        ("Model", {}),
        ("ForSequenceClassification", {"num_labels": 3, "summary_last_dropout": 0.3}),
        ("ForSequenceClassification", {"num_labels": 1}),
        ("ForTokenClassification", {"num_labels": 5}),
        ("ForMultipleChoice", {}),
        ("ForQuestionAnsweringSimple", {}),
        ("ForQuestionAnswering", {"start_n_top": 4, "end_n_top": 3}),
    ],
)
@pytest.mark.parametrize("name", ["same_length", "clamped"])
def test_there_and_back(name, head, more, tmp_path):
    model, back = parity.there_and_back(theirs(head, name, **more), tmp_path)
    assert family.to_hf(model)["architectures"] == [f"XLNet{head}"]
    for setting, value in {**SIZES, **SWITCHES[name], **more}.items():
        if setting != "bi_data":
            assert getattr(back.config, setting) == value, setting


def test_what_is_not_read_or_written_says_so():
    config = {"model_type": "xlnet", "architectures": ["XLNetModel"]}
    for wrong in (
        {"summary_type": "first"},
        {"summary_use_proj": False},
        {"bi_data": True},
        {"untie_r": False},
        {"tie_word_embeddings": False},
        {"problem_type": "regression"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            family.from_hf({**config, **wrong}, "XLNetForSequenceClassification")
    with pytest.raises(ValueError, match="XLNetForMaskedLM is not read"):
        family.from_hf(config, "XLNetForMaskedLM")
    tiny = xlnet.Config(vocab_size=9, d_model=4, num_heads=2, d_ff=4, num_layers=1)
    for wrong in ({"untie_r": False}, {"attention_dropout_rate": 0.3}):
        config = dataclasses.replace(tiny, **wrong)
        model = nnx.eval_shape(lambda config=config: xlnet.XLNet(config, rngs=nnx.Rngs(0)))
        with pytest.raises(ValueError, match=next(iter(wrong))):
            family.to_hf(model)


def test_the_published_settings_are_read():
    published = {
        "model_type": "xlnet",
        "architectures": ["XLNetLMHeadModel"],
        "d_model": 768,
        "n_layer": 12,
        "n_head": 12,
        "d_inner": 3072,
        "mem_len": None,
        "reuse_len": None,
        "clamp_len": -1,
        "untie_r": True,
        "vocab_size": 32000,
    }
    assert family.from_hf(published, "XLNetLMHeadModel").args == (xlnet.Config(reuse_len=0),)
