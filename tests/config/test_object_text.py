import dataclasses
import functools

import pytest
from flax import nnx

from t5x_like.config import gin_config
from t5x_like.config.object_text import model_text
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.mlp import GatedMlp
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses
from t5x_like.models import bert, finetuned, t5

P = functools.partial
SIZES = {"vocab_size": 30, "d_model": 8, "d_ff": 12, "num_heads": 2}


def built(text):
    gin_config.load_text(text)
    make = gin_config.macro("MODEL")
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))


def test_a_configuration_comes_back():
    config = bert.Config(
        **SIZES,
        activation=activations.relu,
        initializer=nnx.initializers.normal,
        padding_position=1,
        dtype="bfloat16",
    )
    model = built(model_text(P(bert.Bert, config), title="A BERT."))
    for field in dataclasses.fields(config):
        found, given = getattr(model.config, field.name), getattr(config, field.name)
        names = (getattr(x, "__name__", x) for x in (found, given))
        assert len({*names}) == 1, field.name


def test_bodies_heads_tasks_and_nested_partials_come_back():
    mlp = P(GatedMlp, activation=activations.silu)
    body = P(t5.T5, config=t5.Config(**SIZES, mlp=mlp))
    head = P(
        label_heads.SequenceHead, num_labels=3, pool=label_heads.LastOf(7), dropout_rates=(0.1, 0.2)
    )
    text = model_text(
        P(finetuned.FineTuned, body, head, label_loss=label_losses.numbers), title="A task."
    )
    model = built(text)
    assert text.startswith("# A task.\n")
    assert (model.head.pool, model.head.dropout_rates) == (label_heads.LastOf(7), (0.1, 0.2))
    assert model.head.out.kernel.shape == (8, 3)
    assert model.label_loss.form == "numbers"
    assert model.body.encoder.layers.mlp.activation.__name__ == "silu"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (P(t5.T5, config=t5.Config(norm_epsilon=float("nan"))), "nan cannot be written"),
        (P(bert.Bert, bert.Config(activation=lambda x: x)), "has no name"),
    ],
)
def test_what_gin_cannot_say_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        model_text(make, title="")
