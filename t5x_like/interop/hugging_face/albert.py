"""ALBERT at Hugging Face: settings and names of weights."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.models import albert
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("albert",)

_PREFIX = "albert."
_PRETRAINED = "ForPreTraining"
_MASKED = "ForMaskedLM"
_MAPPING = "encoder.embedding_hidden_mapping_in"

# Our setting: its name in config.json, and Hugging Face's default.
_SETTINGS = {
    "vocab_size": ("vocab_size", 30000),
    "d_embedding": ("embedding_size", 128),
    "d_model": ("hidden_size", 4096),
    "d_ff": ("intermediate_size", 16384),
    "num_heads": ("num_attention_heads", 64),
    "num_layers": ("num_hidden_layers", 12),
    "num_groups": ("num_hidden_groups", 1),
    "inner_layers": ("inner_group_num", 1),
    "max_positions": ("max_position_embeddings", 512),
    "type_vocab_size": ("type_vocab_size", 2),
    "dropout_rate": ("hidden_dropout_prob", 0.0),
    "attention_dropout_rate": ("attention_probs_dropout_prob", 0.0),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
    "init_std": ("initializer_range", 0.02),
}
IDS = {"albert": {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}}
_CLASSIFIER_DROPOUT = ("classifier_dropout_prob", 0.1)

# Our name: Hugging Face's name.
_LAYER = {
    "attention/query": "attention.query",
    "attention/key": "attention.key",
    "attention/value": "attention.value",
    "attention/out": "attention.dense",
    "mlp/wi": "ffn",
    "mlp/wo": "ffn_output",
}
_NORMS = {"attention_norm": "attention.LayerNorm", "mlp_norm": "full_layer_layer_norm"}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with the pretraining heads or one of them, with a task's head, or without.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    ending = architecture.removeprefix("Albert")
    ours = _config(config, sentence=ending == _PRETRAINED)
    if ending in (_PRETRAINED, _MASKED):
        return functools.partial(albert.Albert, ours)
    body = functools.partial(albert.Encoder, ours)
    pooled: dict[str, Any] = {"pool": label_heads.first, "activation": activations.tanh}
    if ending == head_classes.BODY:
        return functools.partial(
            FineTuned, body, functools.partial(label_heads.PooledState, **pooled)
        )
    rate = config.get(*_CLASSIFIER_DROPOUT)
    made_with = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead, **pooled, dropout_rates=(0.0, rate or 0.0)
        ),
        of_tokens=functools.partial(
            label_heads.TokenHead, dropout_rate=ours.dropout_rate if rate is None else rate
        ),
    )
    constructor = head_classes.fine_tuned(ending, body, made_with=made_with, config=config)
    if constructor is None:
        raise ValueError(
            f"{architecture} is not read: it is not an ALBERT with a head that we have"
        )
    return constructor


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    Raises:
      ValueError: layers share one of their parts, which config.json cannot express.
    """
    config = model.config
    if not isinstance(config, albert.Config):
        return None
    unsupported_settings.check_biases(config)
    settings = {name: getattr(config, ours) for ours, (name, _) in _SETTINGS.items()}
    if config.sharing == "none":
        layers = config.num_layers * config.inner_layers
        settings |= {"num_hidden_layers": layers, "num_hidden_groups": layers, "inner_group_num": 1}
    elif config.sharing != "all":
        raise ValueError(
            f"albert.Config.sharing is {config.sharing!r}, but Hugging Face's ALBERT shares whole "
            "layers: it cannot be exported"
        )
    return {
        "model_type": "albert",
        "architectures": [f"Albert{_ending(model)}"],
        **settings,
        "embedding_size": config.width,
        "type_vocab_size": max(1, config.type_vocab_size),
        "hidden_act": activation_names.name_of(config.activation),
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    config, ending = model.config, _ending(model)
    of_pretraining = ending in (_PRETRAINED, _MASKED)
    theirs = "" if ending == head_classes.BODY else _PREFIX
    ours = "encoder/" if of_pretraining else "body/"
    rules = mapping.under(_body(config), ours=ours, theirs=theirs)
    if of_pretraining:
        rules += mapping.linear("mlm/dense", "predictions.dense")
        rules += mapping.norm("mlm/norm", "predictions.LayerNorm")
        rules.append(Rule("mlm/bias", "predictions.bias", aliases=("predictions.decoder.bias",)))
    if ending == _PRETRAINED:
        rules += mapping.linear("sentence/pooler/dense", f"{theirs}pooler")
        rules += mapping.linear("sentence/out", "sop_classifier.classifier")
    elif not of_pretraining:
        rules += _task_head(model, theirs)
    constants = {}
    if not config.type_vocab_size:
        types = f"{theirs}embeddings.token_type_embeddings.weight"
        constants[types] = np.zeros((1, config.width), np.float32)
    if config.d_embedding is None:  # There, embeddings as wide as the model are projected too.
        constants[f"{theirs}{_MAPPING}.weight"] = np.eye(config.d_model, dtype=np.float32)
        constants[f"{theirs}{_MAPPING}.bias"] = np.zeros(config.d_model, np.float32)
    return Names(rules, prefix=_PREFIX, constants=constants, unused=("predictions.decoder.",))


def _task_head(model: FineTuned, theirs: str) -> list[Rule]:
    rules: list[Rule] = []
    if isinstance(model.head, label_heads.PooledState | label_heads.SequenceHead):
        rules += mapping.linear("head/pooler/dense", f"{theirs}pooler")
    if isinstance(model.head, label_heads.SequenceHead | label_heads.TokenHead):
        spans = head_classes.ending_of(model) == head_classes.SPANS
        rules += mapping.linear("head/out", "qa_outputs" if spans else "classifier")
    return rules


def _body(config: albert.Config) -> list[Rule]:
    table = "embeddings.word_embeddings.weight"
    rules = [
        Rule("embedding/tokens/table", table, aliases=("predictions.decoder.weight",)),
        Rule("embedding/positions", "embeddings.position_embeddings.weight"),
        *mapping.norm("embedding/norm", "embeddings.LayerNorm"),
    ]
    if config.type_vocab_size:
        rules.append(Rule("embedding/types", "embeddings.token_type_embeddings.weight"))
    if config.d_embedding is not None:
        rules += mapping.linear("trunk/project", _MAPPING)
    inner = config.inner_layers if config.sharing == "all" else 1

    def theirs(part: str, copy: int) -> str:
        group, layer = divmod(copy, inner)
        return f"encoder.albert_layer_groups.{group}.albert_layers.{layer}.{part}"

    for our, their in _LAYER.items():
        rules += mapping.linear(f"trunk/stack/layers/{our}", functools.partial(theirs, their))
    for our, their in _NORMS.items():
        rules += mapping.norm(f"trunk/stack/layers/{our}", functools.partial(theirs, their))
    return rules


def _config(config: Mapping[str, Any], *, sentence: bool) -> albert.Config:
    unsupported_settings.check(config, unsupported_settings.ENCODER)
    return albert.Config(
        **{ours: config.get(*theirs) for ours, theirs in _SETTINGS.items()},
        activation=activation_names.read(config.get("hidden_act", "gelu_new")),
        sentence_head=sentence,
    )


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, FineTuned):
        return head_classes.ending_of(model)
    return _MASKED if model.sentence is None else _PRETRAINED


def _of_head(model: Any) -> dict[str, Any]:
    name, _ = _CLASSIFIER_DROPOUT
    if _ending(model) in (_PRETRAINED, _MASKED, head_classes.BODY):
        return {}
    of_tokens = isinstance(model.head, label_heads.TokenHead)
    rate = model.head.dropout_rate if of_tokens else model.head.dropout_rates[1]
    return {name: rate, **head_classes.settings(model)}
