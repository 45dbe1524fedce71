"""EuroBERT at Hugging Face: settings and names of weights."""

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
from t5x_like.models import eurobert
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("eurobert",)

_CLASSES = "EuroBert"
_PREFIX = "model."
_MASKED = "ForMaskedLM"
_KNOWN = (_MASKED, head_classes.BODY, head_classes.CLASSES, head_classes.TAGS)

# Our setting: its name in config.json, and Hugging Face's default.
_SETTINGS = {
    "vocab_size": ("vocab_size", 128256),
    "d_model": ("hidden_size", 768),
    "d_ff": ("intermediate_size", 3072),
    "num_heads": ("num_attention_heads", 12),
    "num_layers": ("num_hidden_layers", 12),
    "max_positions": ("max_position_embeddings", 8192),
    "attention_dropout_rate": ("attention_dropout", 0.0),
    "norm_epsilon": ("rms_norm_eps", 1e-5),
    "init_std": ("initializer_range", 0.02),
}
_THETA = 10_000.0  # where config.json has none
IDS = {"eurobert": {"pad_token_id": 128001, "bos_token_id": 128000, "eos_token_id": 128001}}
# Settings that have one value here.
_FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "rope_scaling": None,
}
_POOLS = {"bos": label_heads.first, "mean": label_heads.mean, "late": label_heads.mean}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with its pretraining head or a task's head, or a body without a head.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    unsupported_settings.check(config, _FIXED)
    ending = architecture.removeprefix(_CLASSES)
    ours = _config(config)
    if ending == _MASKED:
        return functools.partial(eurobert.EuroBert, ours)
    heads = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            pool=_POOLS[ours.pooling],
            pool_last=ours.pooling == "late",
            activation=activations.gelu,
        )
    )
    body = functools.partial(eurobert.Encoder, ours)
    constructor = head_classes.fine_tuned(ending, body, made_with=heads, config=config)
    if constructor is None or ending not in _KNOWN:
        raise ValueError(
            f"{architecture} is not read: after {_CLASSES} there may be {', '.join(_KNOWN)}"
        )
    return constructor


def _config(config: Mapping[str, Any]) -> eurobert.Config:
    settings = {ours: config.get(*theirs) for ours, theirs in _SETTINGS.items()}
    width = settings["d_model"] // settings["num_heads"]
    if (given := config.get("head_dim")) not in (None, width):
        raise ValueError(f"config.json has head_dim {given}: only hidden_size by heads is read")
    return eurobert.Config(
        **settings,
        num_kv_heads=config.get("num_key_value_heads"),
        theta=_theta(config),
        activation=activation_names.read(config.get("hidden_act", "silu")),
        # The code that came with the first files called it clf_pooling.
        pooling=config.get("classifier_pooling", config.get("clf_pooling", "late")),
    )


def _theta(config: Mapping[str, Any]) -> float:
    """The angles' base, of newer files and of older ones.

    Raises:
      ValueError: positions are scaled.
    """
    given = config.get("rope_parameters") or {}
    if (how := given.get("rope_type", "default")) != "default":
        raise ValueError(f"config.json has rotary positions of type {how!r}: only default is read")
    theta = given.get("rope_theta", config.get("rope_theta"))
    return _THETA if theta is None else float(theta)


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model, in new and old keys; None: another family's.

    Raises:
      ValueError: there is no class with this head.
    """
    config = model.config
    if type(config) is not eurobert.Config:
        return None
    ending = _ending(model)
    if ending not in _KNOWN:
        raise ValueError(f"Hugging Face has no {_CLASSES}{ending}: the model cannot be exported")
    settings = head_classes.settings(model) if isinstance(model, FineTuned) else {}
    return {
        "model_type": "eurobert",
        "architectures": [_CLASSES + ending],
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        **_FIXED,
        "num_key_value_heads": config.num_kv_heads or config.num_heads,
        "head_dim": config.d_kv,
        "hidden_act": activation_names.name_of(config.activation),
        "rope_parameters": {"rope_type": "default", "rope_theta": config.theta},
        "rope_theta": config.theta,
        "classifier_pooling": config.pooling,
        **settings,
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
        rules += mapping.linear("mlm/logits", "lm_head", bias=False)
    if ending == head_classes.CLASSES:
        rules += mapping.linear("head/pooler/dense", "dense")
    if ending in (head_classes.CLASSES, head_classes.TAGS):
        rules += mapping.linear("head/out", "classifier")
    return Names(rules, prefix=_PREFIX)


def _body() -> list[Rule]:
    layers, theirs = "stack/layers", "layers.{i}"
    rules = [Rule("embedding/table", "embed_tokens.weight")]
    for our, their in (
        *((f"attention/{name}", f"self_attn.{name[0]}_proj") for name in ("query", "key", "value")),
        ("attention/out", "self_attn.o_proj"),
        ("mlp/wi_0", "mlp.gate_proj"),
        ("mlp/wi_1", "mlp.up_proj"),
        ("mlp/wo", "mlp.down_proj"),
    ):
        rules += mapping.linear(f"{layers}/{our}", f"{theirs}.{their}", bias=False)
    rules += mapping.norm(f"{layers}/attention_norm", f"{theirs}.input_layernorm", bias=False)
    rules += mapping.norm(f"{layers}/mlp_norm", f"{theirs}.post_attention_layernorm", bias=False)
    return rules + mapping.norm("norm", "norm", bias=False)


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    return head_classes.ending_of(model) if isinstance(model, FineTuned) else _MASKED
