"""NeoBERT at Hugging Face: settings and names of weights of its authors' code at the hub.

transformers has no class of it. Files that are written here name that code under `auto_map`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.models import eurobert, neobert
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("neobert",)

_CLASSES = "NeoBERT"
_PREFIX = "model."
_MASKED = "LMHead"
_BODY = ""
_AUTO = {
    _MASKED: "AutoModelForMaskedLM",
    _BODY: "AutoModel",
    head_classes.CLASSES: "AutoModelForSequenceClassification",
}
"""The classes that there are, by the ends of their names, and what opens them."""
_CODE = "chandar-lab/NeoBERT--model"

# Our setting: its name in config.json, and the default of the code.
_SETTINGS = {
    "vocab_size": ("vocab_size", 30522),
    "d_model": ("hidden_size", 768),
    "num_heads": ("num_attention_heads", 12),
    "num_layers": ("num_hidden_layers", 28),
    "max_positions": ("max_length", 1024),
    "norm_epsilon": ("norm_eps", 1e-6),
}
_THETA = 10_000.0
_MULTIPLE = 8  # of which the width of the feed-forward part is one
IDS: dict[str, dict[str, Any]] = {"neobert": {"pad_token_id": 0}}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with its pretraining head or with one for classes, or a body without a head.

    Raises:
      ValueError: another head.
    """
    ending = architecture.removeprefix(_CLASSES)
    if ending not in _AUTO:
        named = ", ".join(_CLASSES + known for known in _AUTO)
        raise ValueError(f"{architecture} is not read: NeoBERT's classes are {named}")
    ours = _config(config)
    if ending == _MASKED:
        return functools.partial(neobert.NeoBert, ours)
    rate = config.get("classifier_dropout")
    rate = 0.1 if rate is None else rate
    heads = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            pool=label_heads.first,
            activation=activations.tanh,
            dropout_rates=(rate, rate),
        )
    )
    body = functools.partial(eurobert.Encoder, ours)
    constructor = head_classes.fine_tuned(
        ending or head_classes.BODY, body, made_with=heads, config=config
    )
    assert constructor is not None
    return constructor


def _config(config: Mapping[str, Any]) -> neobert.Config:
    width = int(2 * config.get("intermediate_size", 3072) / 3)
    return neobert.Config(
        **{ours: config.get(*theirs) for ours, theirs in _SETTINGS.items()},
        d_ff=-(-width // _MULTIPLE) * _MULTIPLE,
        init_std=config.get("embedding_init_range", 0.02) * 3**-0.5,
    )


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    Raises:
      ValueError: the authors' code has no such model.
    """
    config = model.config
    if not isinstance(config, neobert.Config):
        return None
    ending = _ending(model)
    if ending not in _AUTO:
        raise ValueError(f"NeoBERT's code has no {_CLASSES}{ending}: it cannot be exported")
    _check(config)
    init_range = round(config.init_range, 12)
    of_head = {}
    if ending == head_classes.CLASSES:
        rate = model.head.dropout_rates[1]
        of_head = {"classifier_dropout": rate, **head_classes.settings(model)}
    return {
        "model_type": "neobert",
        "architectures": [_CLASSES + ending],
        "auto_map": {
            "AutoConfig": f"{_CODE}.NeoBERTConfig",
            **{auto: f"{_CODE}.{_CLASSES}{known}" for known, auto in _AUTO.items()},
        },
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        "intermediate_size": 3 * config.d_ff // 2,
        "embedding_init_range": init_range,
        "decoder_init_range": init_range,
        **of_head,
    }


def _check(config: neobert.Config) -> None:
    """Raises ValueError for what the authors' code does not have."""
    activation = getattr(config.activation, "__name__", None)
    for name, value, wanted in (
        ("theta", config.theta, _THETA),
        ("num_kv_heads", config.num_kv_heads or config.num_heads, config.num_heads),
        ("d_ff", config.d_ff % _MULTIPLE, 0),
        ("activation", activation, activations.silu.__name__),
        ("pooling", config.pooling, "bos"),
    ):
        if value != wanted:
            raise ValueError(
                f"neobert.Config.{name} is {getattr(config, name)!r}, which NeoBERT's code does "
                "not have: the model cannot be exported"
            )


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    ending = _ending(model)
    rules = mapping.under(
        _body(model.config),
        ours="encoder/" if ending == _MASKED else "body/",
        theirs="" if ending == _BODY else _PREFIX,
    )
    if ending == _MASKED:
        rules += mapping.linear("mlm/logits", "decoder")
    elif ending == head_classes.CLASSES:
        rules += mapping.linear("head/pooler/dense", "dense")
        rules += mapping.linear("head/out", "classifier")
    return Names(rules, prefix=_PREFIX, unused=("freqs_cis", f"{_PREFIX}freqs_cis"))


def _body(config: neobert.Config) -> list[Rule]:
    layers, theirs = "stack/layers", "transformer_encoder.{i}"
    attention = tuple(f"{layers}/attention/{name}/kernel" for name in ("query", "key", "value"))
    gated = (f"{layers}/mlp/wi_0/kernel", f"{layers}/mlp/wi_1/kernel")
    return [
        Rule("embedding/table", "encoder.weight"),
        Rule(attention, f"{theirs}.qkv.weight", _heads_of_three(config)),
        *mapping.linear(f"{layers}/attention/out", f"{theirs}.wo", bias=False),
        Rule(gated, f"{theirs}.ffn.w12.weight", mapping.joined(2)),
        *mapping.linear(f"{layers}/mlp/wo", f"{theirs}.ffn.w3", bias=False),
        *mapping.norm(f"{layers}/attention_norm", f"{theirs}.attention_norm", bias=False),
        *mapping.norm(f"{layers}/mlp_norm", f"{theirs}.ffn_norm", bias=False),
        *mapping.norm("norm", "layer_norm", bias=False),
    ]


def _heads_of_three(config: neobert.Config) -> Transform:
    """Query, key and value of a head follow each other in one matrix, [3 * outs, in].

    Rotary positions turn neighbours there, numbers 2f and 2f + 1 of a query or key; here they turn
    number f of a head's first half with number f of its second.
    """
    heads, width, d_model = config.num_heads, config.d_kv, config.d_model
    order = np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])
    back = np.argsort(order)

    def to_ours(theirs: np.ndarray) -> tuple[np.ndarray, ...]:
        parts = np.moveaxis(theirs.reshape(heads, 3, width, d_model), 1, 0)
        turned = (parts[0][:, order], parts[1][:, order], parts[2])
        return tuple(part.reshape(heads * width, d_model).T for part in turned)

    def to_theirs(*ours: np.ndarray) -> np.ndarray:
        query, key, value = (part.T.reshape(heads, width, d_model) for part in ours)
        parts = np.stack([query[:, back], key[:, back], value], axis=1)
        return parts.reshape(3 * heads * width, d_model)

    return Transform(to_ours, to_theirs)


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    if not isinstance(model, FineTuned):
        return _MASKED
    return head_classes.ending_of(model) if model.has_task_head else _BODY
