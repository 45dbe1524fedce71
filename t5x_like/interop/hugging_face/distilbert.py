"""DistilBERT at Hugging Face: settings and names of weights."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses
from t5x_like.models import bert, distilbert
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("distilbert",)

_CLASSES = "DistilBert"
_PREFIX = "distilbert."
_MASKED = "ForMaskedLM"
_EPSILON = 1e-12  # of every norm in Hugging Face's DistilBERT
_SEQUENCE_DROPOUT = ("seq_classif_dropout", 0.2)
_ANSWERS_DROPOUT = ("qa_dropout", 0.1)

# Our setting: its name in config.json, and Hugging Face's default.
_SETTINGS = {
    "vocab_size": ("vocab_size", 30522),
    "d_model": ("dim", 768),
    "d_ff": ("hidden_dim", 3072),
    "num_heads": ("n_heads", 12),
    "num_layers": ("n_layers", 6),
    "max_positions": ("max_position_embeddings", 512),
    "dropout_rate": ("dropout", 0.1),
    "attention_dropout_rate": ("attention_dropout", 0.1),
    "init_std": ("initializer_range", 0.02),
}
IDS = {"distilbert": {"pad_token_id": 0}}
# Settings that config.json cannot express.
_FIXED = {
    "type_vocab_size": 0,
    "relative_buckets": 0,
    "sentence_head": False,
    "padding_position": None,
    "d_embedding": None,
    "norm_epsilon": _EPSILON,
}

# Our name: Hugging Face's name.
_LAYER = {
    "attention/query": "attention.q_lin",
    "attention/key": "attention.k_lin",
    "attention/value": "attention.v_lin",
    "attention/out": "attention.out_lin",
    "mlp/wi": "ffn.lin1",
    "mlp/wo": "ffn.lin2",
}
_NORMS = {"attention_norm": "sa_layer_norm", "mlp_norm": "output_layer_norm"}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a student with its head, a model with a task's head, or a body without a head.

    Fixed positions are weights there too; here they continue to be learned.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    unsupported_settings.check(config, {"tie_word_embeddings": True})
    ending = architecture.removeprefix(_CLASSES)
    ours = distilbert.Config(
        **{name: config.get(*theirs) for name, theirs in _SETTINGS.items()},
        activation=activation_names.read(config.get("activation", "gelu")),
        norm_epsilon=_EPSILON,
    )
    if ending == _MASKED:
        return functools.partial(distilbert.DistilBert, ours)
    body = functools.partial(bert.Encoder, ours)
    if ending == head_classes.SPANS:
        rate = config.get(*_ANSWERS_DROPOUT)
        answers = functools.partial(label_heads.TokenHead, num_labels=2, dropout_rate=rate)
        return functools.partial(FineTuned, body, answers, label_loss=label_losses.spans)
    made_with = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            pool=label_heads.first,
            activation=activations.relu,
            dropout_rates=(0.0, config.get(*_SEQUENCE_DROPOUT)),
        ),
        of_tokens=functools.partial(label_heads.TokenHead, dropout_rate=ours.dropout_rate),
    )
    constructor = head_classes.fine_tuned(ending, body, made_with=made_with, config=config)
    if constructor is None:
        raise ValueError(
            f"{architecture} is not read: it is not a DistilBERT with a head that we have"
        )
    return constructor


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    Raises:
      ValueError: Hugging Face's configuration cannot express this one.
    """
    config = model.config
    if not isinstance(config, distilbert.Config):
        return None
    for name, wanted in _FIXED.items():
        if (value := getattr(config, name)) != wanted:
            raise ValueError(
                f"distilbert.Config.{name} is {value}, but Hugging Face's DistilBERT has "
                f"{wanted} and no setting for it: it cannot be exported"
            )
    return {
        "model_type": "distilbert",
        "architectures": [_CLASSES + _ending(model)],
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        "activation": activation_names.name_of(config.activation),
        "sinusoidal_pos_embds": False,
        "tie_word_embeddings": True,
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    ending = _ending(model)
    rules = mapping.under(
        _body(),
        ours="encoder/" if ending == _MASKED else "body/",
        theirs="" if ending == head_classes.BODY else _PREFIX,
    )
    if ending == _MASKED:
        rules += mapping.linear("mlm/dense", "vocab_transform")
        rules += mapping.norm("mlm/norm", "vocab_layer_norm")
        rules.append(Rule("mlm/bias", "vocab_projector.bias"))
    if ending in (head_classes.CLASSES, head_classes.CHOICES):
        rules += mapping.linear("head/pooler/dense", "pre_classifier")
    if ending not in (_MASKED, head_classes.BODY):
        name = "qa_outputs" if ending == head_classes.SPANS else "classifier"
        rules += mapping.linear("head/out", name)
    return Names(rules, prefix=_PREFIX, unused=("vocab_projector.weight",))


def _body() -> list[Rule]:
    table = "embeddings.word_embeddings.weight"
    rules = [
        Rule("embedding/tokens/table", table, aliases=("vocab_projector.weight",)),
        Rule("embedding/positions", "embeddings.position_embeddings.weight"),
        *mapping.norm("embedding/norm", "embeddings.LayerNorm"),
    ]
    for our, their in _LAYER.items():
        rules += mapping.linear(f"trunk/stack/layers/{our}", f"transformer.layer.{{i}}.{their}")
    for our, their in _NORMS.items():
        rules += mapping.norm(f"trunk/stack/layers/{our}", f"transformer.layer.{{i}}.{their}")
    return rules


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    return head_classes.ending_of(model) if isinstance(model, FineTuned) else _MASKED


def _of_head(model: Any) -> dict[str, Any]:
    ending = _ending(model)
    if ending in (head_classes.CLASSES, head_classes.CHOICES):
        name, rate = _SEQUENCE_DROPOUT[0], model.head.dropout_rates[1]
        return {name: rate, **head_classes.settings(model)}
    if ending == head_classes.SPANS:
        return {_ANSWERS_DROPOUT[0]: model.head.dropout_rate}
    return head_classes.settings(model) if ending == head_classes.TAGS else {}
