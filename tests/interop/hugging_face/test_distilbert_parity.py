"""DistilBERT computes what transformers' does, and its weights go there and back."""

import dataclasses
from types import SimpleNamespace

import encoders
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import torch
from flax import nnx

from t5x_like.core.partitioning import make_layout
from t5x_like.interop.hugging_face import distilbert as family
from t5x_like.interop.hugging_face import model_directory
from t5x_like.models import distilbert
from t5x_like.runs import saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.training import step
from t5x_like.training.optimization import optimizers

SIZES = {
    "vocab_size": encoders.VOCAB,
    "dim": 16,
    "hidden_dim": 24,
    "n_heads": 4,
    "n_layers": 3,
    "max_position_embeddings": 12,
    "attn_implementation": "eager",
    "pad_token_id": 0,
}
SWITCHES = {
    "published": {},
    "relu": {"activation": "relu"},
    "fixed": {"sinusoidal_pos_embds": True},
}
HEADS = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
    "Model",
)
NO_TEACHER = {"kl_weight": 0.0, "cosine_weight": 0.0, "mlm_weight": 1.0}
pytestmark = pytest.mark.slow


def theirs(head, name="published", **more):
    return parity.theirs("DistilBert", head, **SIZES | SWITCHES[name] | more)


def their_teacher_of(layers):
    return parity.theirs("Bert", "ForMaskedLM", **encoders.SIZES | {"num_hidden_layers": layers})


def reweighed(model, **weights):
    """The same student with other weights of its loss terms."""
    config = dataclasses.replace(model.config, **weights)
    graph = nnx.graphdef(nnx.eval_shape(lambda: distilbert.DistilBert(config, rngs=nnx.Rngs(0))))
    return nnx.merge(graph, parity.params_of(model))


def taught(batch):
    """The batch with random logits and states of a teacher."""
    rng = np.random.default_rng(5)
    shape = (encoders.ROWS, encoders.LENGTH)
    made = {
        "teacher_logits": rng.normal(0, 2, (*shape, encoders.VOCAB)),
        "teacher_states": rng.normal(0, 1, (*shape, SIZES["dim"])),
    }
    return batch | {name: jnp.asarray(x, jnp.float32) for name, x in made.items()}


@pytest.mark.parametrize("name", SWITCHES)
def test_masked_language_model(name, tmp_path):
    their_model = theirs("ForMaskedLM", name)
    their_model.requires_grad_(True)  # fixed positions get no gradient otherwise
    model = reweighed(parity.ours_of(their_model, tmp_path), **NO_TEACHER)
    inputs, batch = encoders.read(types=None)
    batch, labels = encoders.masked(batch)
    out = their_model(**inputs, labels=labels, output_hidden_states=True, output_attentions=True)
    parity.close(jax.jit(model.logits)(batch), out.logits)
    encoders.same_states(model.encoder, batch, out)
    parity.same_loss(model, taught(batch), their_model, out)


@pytest.mark.parametrize("masked_only", [False, True])
def test_distillation_loss(masked_only, tmp_path):
    their_model = theirs("ForMaskedLM")
    model = reweighed(parity.ours_of(their_model, tmp_path), kl_of_masked_only=masked_only)
    inputs, batch = encoders.read(types=None)
    batch, labels = encoders.masked(batch)
    batch = taught(batch)
    out = their_model(**inputs, labels=labels, output_hidden_states=True)
    temperature, counts = 2.0, inputs["attention_mask"] > 0
    where = labels >= 0 if masked_only else counts
    teacher = {name: torch.tensor(np.array(x)) for name, x in batch.items() if "teacher" in name}
    kl = torch.nn.KLDivLoss(reduction="batchmean")(
        torch.log_softmax(out.logits[where] / temperature, dim=-1),
        torch.softmax(teacher["teacher_logits"][where] / temperature, dim=-1),
    )
    student = out.hidden_states[-1][counts]
    cosine = torch.nn.CosineEmbeddingLoss(reduction="mean")(
        student, teacher["teacher_states"][counts], torch.ones(len(student))
    )
    out.loss = 5.0 * kl * temperature**2 + 2.0 * out.loss + 1.0 * cosine
    parity.same_loss(model, batch, their_model, out)


def test_a_teacher_there_and_here_makes_the_same(tmp_path):
    their_teacher = their_teacher_of(layers=4)
    teacher = parity.ours_of(their_teacher, tmp_path)
    inputs, batch = encoders.read()
    made = jax.jit(distilbert.teach)(teacher, batch)
    out = their_teacher(**inputs, output_hidden_states=True)
    parity.close(made["teacher_logits"], out.logits)
    parity.close(made["teacher_states"], out.hidden_states[-1])


@pytest.mark.parametrize("transform", [False, True])
def test_a_student_that_starts_from_its_teacher_has_the_published_weights(transform, tmp_path):
    """In the published code, an option names the head's layer."""
    their_teacher = their_teacher_of(layers=12)
    their_teacher.save_pretrained(tmp_path / "theirs")
    found = model_directory.read(tmp_path / "theirs")
    saved_model.write(
        str(tmp_path / "ours"), found.make, found.params, title="a", vocabulary=None, files=()
    )
    blank = parity.ours_of(theirs("ForMaskedLM", n_layers=6), tmp_path / "blank")
    program = step.build(
        lambda rngs: distilbert.DistilBert(blank.config, rngs=rngs),
        optimizers.adamw(1e-3),
        make_layout({"data": 1}, devices=jax.devices()[:1]),
        step.StepOptions(batch_size=1),
    )
    skip = () if transform else (r"^mlm\.(dense|norm)",)
    init_from = InitFrom(directory=str(tmp_path / "ours"), layers=(0, 2, 4, 7, 9, 11), skip=skip)
    log = SimpleNamespace(message=lambda line: None)
    student = nnx.merge(
        nnx.graphdef(blank), init_from.apply(parity.params_of(blank), program=program, log=log)
    )
    weights = parity.exported(student, tmp_path / "student").state_dict()
    want = their_teacher.state_dict()
    for i, t in enumerate([0, 2, 4, 7, 9, 11]):
        ours, of_teacher = f"distilbert.transformer.layer.{i}", f"bert.encoder.layer.{t}"
        for one, other in [
            ("attention.q_lin.weight", "attention.self.query.weight"),
            ("attention.out_lin.bias", "attention.output.dense.bias"),
            ("sa_layer_norm.weight", "attention.output.LayerNorm.weight"),
            ("ffn.lin2.weight", "output.dense.weight"),
            ("output_layer_norm.bias", "output.LayerNorm.bias"),
        ]:
            assert torch.equal(weights[f"{ours}.{one}"], want[f"{of_teacher}.{other}"])
    for table in ("word_embeddings.weight", "position_embeddings.weight", "LayerNorm.bias"):
        name = f"embeddings.{table}"
        assert torch.equal(weights[f"distilbert.{name}"], want[f"bert.{name}"])
    assert torch.equal(weights["vocab_projector.bias"], want["cls.predictions.bias"])
    dense = want["cls.predictions.transform.dense.weight"]
    assert torch.equal(weights["vocab_transform.weight"], dense) == transform


@encoders.each_label_head
def test_labels(head, labels, tmp_path):
    their_model = theirs(head, num_labels=labels)
    encoders.same_labels(their_model, tmp_path, labels=labels, types=None)


def test_answers(tmp_path):
    encoders.same_answers(theirs("ForQuestionAnswering"), tmp_path, types=None)


def test_body_alone(tmp_path):
    encoders.same_body(theirs("Model"), tmp_path, types=None)


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back(head, tmp_path):
    their_model = theirs(head, "relu", qa_dropout=0.3, seq_classif_dropout=0.4)
    encoders.same_there_and_back(their_model, tmp_path, types=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"type_vocab_size": 2}, "type_vocab_size is 2"), ({"norm_epsilon": 1e-5}, "is 1e-05")],
)
def test_what_is_not_written_says_so(changes, message):
    config = distilbert.Config(vocab_size=9, d_model=8, d_ff=8, num_heads=2, **changes)
    with pytest.raises(ValueError, match=message):
        family.to_hf(nnx.eval_shape(lambda: distilbert.DistilBert(config, rngs=nnx.Rngs(0))))


def test_a_head_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="tie_word_embeddings False"):
        family.from_hf({"tie_word_embeddings": False}, "DistilBertForMaskedLM")
    with pytest.raises(ValueError, match="DistilBertForSpeech is not read"):
        family.from_hf({"model_type": "distilbert"}, "DistilBertForSpeech")
