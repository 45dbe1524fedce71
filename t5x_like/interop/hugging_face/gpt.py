"""GPT and GPT-2 at Hugging Face: settings and names of weights."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.layers.heads import label_heads
from t5x_like.models import gpt
from t5x_like.models.double_heads import DoubleHeads
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("gpt2", "openai-gpt")

_PREFIX = "transformer."
_PRETRAINED = "LMHeadModel"
_DOUBLE = "DoubleHeadsModel"
ENDINGS = {"choices": _DOUBLE}
_STEMS = {"gpt2": "GPT2", "openai-gpt": "OpenAIGPT"}
_ACTIVATION = {"gpt2": ("activation_function", "gelu_new"), "openai-gpt": ("afn", "gelu")}
_TANH_FORM = {"gpt2": "gelu_new", "openai-gpt": "gelu"}  # GPT's code has no name for exact gelu
_TABLES = {
    "gpt2": {"tokens/table": "wte", "positions": "wpe"},
    "openai-gpt": {"tokens/table": "tokens_embed", "positions": "positions_embed"},
}

# Our setting: its name in config.json.
_SETTINGS = {
    "vocab_size": "vocab_size",
    "d_model": "n_embd",
    "num_heads": "n_head",
    "num_layers": "n_layer",
    "max_positions": "n_positions",
    "pad_id": "pad_token_id",
    "dropout_rate": "resid_pdrop",
    "attention_dropout_rate": "attn_pdrop",
    "norm_epsilon": "layer_norm_epsilon",
    "init_std": "initializer_range",
}
_DEFAULTS = {
    "gpt2": {"vocab_size": 50257, "n_positions": 1024},
    "openai-gpt": {"vocab_size": 40478, "n_positions": 512},
}
_BOTH = {
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "pad_token_id": None,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
}
IDS: dict[str, dict[str, Any]] = {
    "gpt2": {"pad_token_id": None, "bos_token_id": 50256, "eos_token_id": 50256},
    "openai-gpt": {"pad_token_id": None},
}
# The task classes that exist.
_TASKS = {
    "gpt2": (head_classes.CLASSES, head_classes.TAGS, head_classes.SPANS),
    "openai-gpt": (head_classes.CLASSES,),
}
# The only values that are read: with two heads, and in every model.
_OF_SUMMARY = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
    "summary_last_dropout": 0.0,
}
_SUMMARY_DROPOUT = "summary_first_dropout"
_FIXED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def _joined(axis: int) -> Transform:
    """Queries, keys and values, which Hugging Face joins in this order along `axis`."""
    return Transform(
        lambda theirs: tuple(np.split(theirs, 3, axis=axis)),
        lambda *ours: np.concatenate(ours, axis=axis),
    )


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a language model, alone or with a head for choices, or a body with a task's head.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    kind = config["model_type"]
    ending = architecture.removeprefix(_STEMS[kind])
    ours = _config(config, kind)
    whole = functools.partial(gpt.Gpt, ours)
    if ending == _PRETRAINED:
        return whole
    if ending == _DOUBLE:
        unsupported_settings.check(config, _OF_SUMMARY)
        choice = functools.partial(
            label_heads.SequenceHead,
            num_labels=1,
            pool=label_heads.last_that_counts,
            dropout_rates=(config.get(_SUMMARY_DROPOUT, 0.1), 0.0),
        )
        return functools.partial(DoubleHeads, whole, choice)
    rate = config.get("classifier_dropout")
    made_with = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead, pool=label_heads.last_that_counts, bias=False
        ),
        of_tokens=functools.partial(
            label_heads.TokenHead, dropout_rate=0.1 if rate is None else rate
        ),
    )
    constructor = head_classes.fine_tuned(ending, whole, made_with=made_with, config=config)
    if constructor is None or ending not in (head_classes.BODY, *_TASKS[kind]):
        named = ", ".join((_PRETRAINED, _DOUBLE, head_classes.BODY, *_TASKS[kind]))
        raise ValueError(f"{architecture} is not read: after {_STEMS[kind]} there may be {named}")
    return constructor


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    Raises:
      ValueError: a setting that Hugging Face's GPT does not have.
    """
    config = model.config
    if not isinstance(config, gpt.Config):
        return None
    kind, ending = _kind(config), _ending(model)
    if ending not in (_PRETRAINED, _DOUBLE, head_classes.BODY, *_TASKS[kind]):
        raise ValueError(
            f"Hugging Face has no {_STEMS[kind]}{ending}: the model cannot be exported"
        )
    activation = activation_names.name_of(config.activation)
    settings = {name: getattr(config, ours) for ours, name in _SETTINGS.items()}
    if kind == "gpt2":
        settings["n_inner"] = config.d_ff
    elif config.d_ff != 4 * config.d_model or activation == "gelu":
        raise ValueError(
            f"gpt.Config has d_ff {config.d_ff} and the activation {activation}, but Hugging "
            "Face's GPT has 4 * d_model, and no exact gelu: the model cannot be exported"
        )
    if config.pad_id is None and ending == _PRETRAINED:
        del settings["pad_token_id"]  # only the heads of tasks read it
    return {
        "model_type": kind,
        "architectures": [_STEMS[kind] + ending],
        **settings,
        "embd_pdrop": config.dropout_rate,
        _ACTIVATION[kind][0]: _TANH_FORM[kind] if activation == "gelu_new" else activation,
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    config, ending = model.config, _ending(model)
    ours = "" if ending == _PRETRAINED else "body/"
    theirs = "" if ending == head_classes.BODY else _PREFIX
    rules = mapping.under(_body(config), ours=ours, theirs=theirs)
    if ending == head_classes.CLASSES:
        rules += mapping.linear("head/out", "score", bias=False)
    elif ending == _DOUBLE:
        rules += mapping.linear("head/out", "multiple_choice_head.summary")
    elif ending in (head_classes.TAGS, head_classes.SPANS):
        name = "qa_outputs" if ending == head_classes.SPANS else "classifier"
        rules += mapping.linear("head/out", name)
    masks = [
        f"{prefix}h.{i}.attn.{name}"
        for prefix in ("", _PREFIX)
        for i in range(config.num_layers)
        for name in ("bias", "masked_bias")
    ]
    return Names(rules, prefix=_PREFIX, unused=("lm_head.", *masks))


def _body(config: gpt.Config) -> list[Rule]:
    layer, of_layer = "stack/layers", "h.{i}"
    rules = [
        Rule(
            f"embedding/{our}",
            f"{their}.weight",
            aliases=("lm_head.weight",) if our == "tokens/table" else (),
        )
        for our, their in _TABLES[_kind(config)].items()
    ]
    attention = [f"{layer}/attention/{name}" for name in ("query", "key", "value")]
    for our, their in (("kernel", "weight"), ("bias", "bias")):
        joined = tuple(f"{path}/{our}" for path in attention)
        rules.append(Rule(joined, f"{of_layer}.attn.c_attn.{their}", _joined(-1)))
        # Hugging Face's matrices are [in, out], as ours are.
        for part, name in (
            ("attention/out", "attn.c_proj"),
            ("mlp/wi", "mlp.c_fc"),
            ("mlp/wo", "mlp.c_proj"),
        ):
            rules.append(Rule(f"{layer}/{part}/{our}", f"{of_layer}.{name}.{their}"))
    rules += mapping.norm(f"{layer}/attention_norm", f"{of_layer}.ln_1")
    rules += mapping.norm(f"{layer}/mlp_norm", f"{of_layer}.ln_2")
    return rules + mapping.norm("norm", "ln_f") if config.pre_norm else rules


def _config(config: Mapping[str, Any], kind: str) -> gpt.Config:
    usual = {**_BOTH, **_DEFAULTS[kind]}
    named = {*usual, *_SETTINGS.values(), "embd_pdrop", "n_inner", _ACTIVATION[kind][0]}
    settings = usual | {name: config[name] for name in named if name in config}
    unsupported_settings.check(config, _FIXED)
    if settings.get("embd_pdrop", settings["resid_pdrop"]) != settings["resid_pdrop"]:
        raise ValueError(
            f"config.json has embd_pdrop {settings['embd_pdrop']} and resid_pdrop "
            f"{settings['resid_pdrop']}: only equal rates are read"
        )
    activation = settings.get(*_ACTIVATION[kind])
    return gpt.Config(
        **{ours: settings[theirs] for ours, theirs in _SETTINGS.items()},
        d_ff=settings.get("n_inner") or 4 * settings["n_embd"],
        activation=activation_names.read(
            "gelu_new" if activation == _TANH_FORM[kind] else activation
        ),
        pre_norm=kind == "gpt2",
    )


def _kind(config: gpt.Config) -> str:
    return "gpt2" if config.pre_norm else "openai-gpt"


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, DoubleHeads):
        return _DOUBLE
    return head_classes.ending_of(model) if isinstance(model, FineTuned) else _PRETRAINED


def _of_head(model: Any) -> dict[str, Any]:
    if isinstance(model, DoubleHeads):
        rate = model.head.dropout_rates[0]
        return {"num_labels": 1, **_OF_SUMMARY, _SUMMARY_DROPOUT: rate}
    if not isinstance(model, FineTuned):
        return {}
    head, settings = model.head, head_classes.settings(model)
    if isinstance(head, label_heads.TokenHead):
        settings["classifier_dropout"] = head.dropout_rate
    return settings
