"""XLNet at Hugging Face: settings and names of weights."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.hugging_face.head_classes import Heads
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.layers.heads.span_heads import ConditionalSpanHead
from t5x_like.models import xlnet
from t5x_like.models.answering import Answering

MODEL_TYPES = ("xlnet",)

_PREFIX = "transformer."
_PRETRAINED = "LMHeadModel"
_ANSWERS = "ForQuestionAnswering"
_SIMPLE = "ForQuestionAnsweringSimple"
# Hugging Face's ending, and the one that other families use for it.
_ENDINGS = {_SIMPLE: head_classes.SPANS}
ENDINGS = {"spans": _SIMPLE, "searched spans": _ANSWERS}

# Our setting: its name in config.json, and Hugging Face's default.
_SETTINGS = {
    "vocab_size": ("vocab_size", 32000),
    "d_model": ("d_model", 1024),
    "d_ff": ("d_inner", 4096),
    "num_heads": ("n_head", 16),
    "num_layers": ("n_layer", 24),
    "dropout_rate": ("dropout", 0.1),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
    "init_std": ("initializer_range", 0.02),
    "same_length": ("same_length", False),
}
IDS = {"xlnet": {"pad_token_id": 5, "bos_token_id": 1, "eos_token_id": 2}}
# The only values that are read: in every model, and in those with a pooled state.
_FIXED = {"untie_r": True, "bi_data": False, "tie_word_embeddings": True}
_OF_SUMMARY = {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}

# Our name: Hugging Face's name.
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "relative": "r"}
_BIASES = {"content": "r_w_bias", "position": "r_r_bias", "segment": "r_s_bias"}
_NORMS = {"attention_norm": "rel_attn.layer_norm", "mlp_norm": "ff.layer_norm"}
_MLP = {"wi": "layer_1", "wo": "layer_2"}
_OF_HEADS = {
    head_classes.CLASSES: {"pooler/dense": "sequence_summary.summary", "out": "logits_proj"},
    head_classes.CHOICES: {"pooler/dense": "sequence_summary.summary", "out": "logits_proj"},
    head_classes.TAGS: {"out": "classifier"},
    _SIMPLE: {"out": "qa_outputs"},
}
_OF_ANSWERS = {
    "start": "start_logits.dense",
    "end_dense": "end_logits.dense_0",
    "end": "end_logits.dense_1",
    "unanswerable_dense": "answer_class.dense_0",
}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with the pretraining head, with a task's head, or without.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    ours = _config(config)
    if architecture == f"XLNet{_PRETRAINED}":
        return functools.partial(xlnet.XLNet, ours)
    body = functools.partial(xlnet.Encoder, ours)
    ending = architecture.removeprefix("XLNet")
    if ending == _ANSWERS:
        head = functools.partial(
            ConditionalSpanHead,
            epsilon=ours.norm_epsilon,
            num_starts=config.get("start_n_top", 5),
            num_ends=config.get("end_n_top", 5),
        )
        return functools.partial(Answering, body, head)
    made_with = Heads(of_sequence=_summary(config))
    ending = _ENDINGS.get(ending, ending)
    constructor = head_classes.fine_tuned(ending, body, made_with=made_with, config=config)
    if constructor is None:
        raise ValueError(
            f"{architecture} is not read; of this family, XLNet{_PRETRAINED} is, "
            f"XLNet{head_classes.BODY}, and classes for tasks"
        )
    return constructor


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    The number of positions that pretraining remembers is written only where it is a number:
    config.json cannot express half of a row.

    Raises:
      ValueError: all layers share the biases of queries, or attention has its own dropout rate;
        config.json has no settings for either.
    """
    config = model.config
    if not isinstance(config, xlnet.Config):
        return None
    if not config.untie_r:
        raise ValueError(
            "xlnet.Config.untie_r is False, but in Hugging Face's XLNet each layer has its own "
            "biases: it cannot be exported"
        )
    if config.attention_dropout_rate != config.dropout_rate:
        raise ValueError(
            f"xlnet.Config has dropout_rate {config.dropout_rate} and attention_dropout_rate "
            f"{config.attention_dropout_rate}, but Hugging Face's XLNet has one rate: it cannot be "
            "exported"
        )
    return {
        "model_type": "xlnet",
        "architectures": [f"XLNet{_head(model)}"],
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        "ff_activation": activation_names.name_of(config.activation),
        "attn_type": "uni" if config.causal else "bi",
        "clamp_len": -1 if config.clamp_len is None else config.clamp_len,
        "mem_len": config.mem_len or None,
        "reuse_len": config.reuse_len or None,
        **_FIXED,
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    config, head = model.config, _head(model)
    ours = "encoder/" if head == _PRETRAINED else "body/"
    theirs = "" if head == head_classes.BODY else _PREFIX
    rules = mapping.under(_body(config), ours=ours, theirs=theirs)
    if head == _PRETRAINED:
        rules.append(Rule("bias", "lm_loss.bias"))
    elif head == _ANSWERS:
        for our, their in _OF_ANSWERS.items():
            rules += mapping.linear(f"head/{our}", their)
        rules += mapping.linear("head/unanswerable", "answer_class.dense_1", bias=False)
        rules += mapping.norm("head/end_norm", "end_logits.LayerNorm")
    for our, their in _OF_HEADS.get(head, {}).items():
        rules += mapping.linear(f"head/{our}", their)
    return Names(rules, prefix=_PREFIX, unused=("lm_loss.",))


def _body(config: xlnet.Config) -> list[Rule]:
    joined, out = _joined(config), _joined(config, transposed=True)
    row = Transform(lambda theirs: (theirs[0],), lambda ours: ours[None])
    ours, theirs = "stack/layers", "layer.{i}"
    rules = [
        Rule("tokens/table", "word_embedding.weight", aliases=("lm_loss.weight",)),
        Rule("predicted", "mask_emb", row),
        Rule(f"{ours}/attention/segments", f"{theirs}.rel_attn.seg_embed"),
        Rule(f"{ours}/attention/out/kernel", f"{theirs}.rel_attn.o", out),
    ]
    for our, their in _PROJECTIONS.items():
        rules.append(Rule(f"{ours}/attention/{our}/kernel", f"{theirs}.rel_attn.{their}", joined))
    for our, their in _BIASES.items():
        rules.append(Rule(f"{ours}/biases/{our}", f"{theirs}.rel_attn.{their}"))
    for our, their in _NORMS.items():
        rules += mapping.norm(f"{ours}/{our}", f"{theirs}.{their}")
    for our, their in _MLP.items():
        rules += mapping.linear(f"{ours}/mlp/{our}", f"{theirs}.ff.{their}")
    return rules


def _joined(config: xlnet.Config, *, transposed: bool = False) -> Transform:
    """Hugging Face's are [D, heads, d_kv], ours [D, heads * d_kv] or that transposed."""
    shape = (config.d_model, config.num_heads, config.d_kv)

    def to_ours(theirs: np.ndarray) -> tuple[np.ndarray]:
        flat = theirs.reshape(len(theirs), -1)
        return (flat.T if transposed else flat,)

    return Transform(to_ours, lambda ours: (ours.T if transposed else ours).reshape(shape))


def _config(config: Mapping[str, Any]) -> xlnet.Config:
    unsupported_settings.check(config, _FIXED)
    clamp_len = config.get("clamp_len", -1)
    return xlnet.Config(
        **{ours: config.get(*theirs) for ours, theirs in _SETTINGS.items()},
        attention_dropout_rate=config.get("dropout", 0.1),
        activation=activation_names.read(config.get("ff_activation", "gelu")),
        causal=config.get("attn_type", "bi") == "uni",
        clamp_len=clamp_len if clamp_len > 0 else None,
        mem_len=config.get("mem_len") or 0,
        reuse_len=config.get("reuse_len") or 0,
    )


def _summary(config: Mapping[str, Any]) -> functools.partial[Any]:
    unsupported_settings.check(config, _OF_SUMMARY)
    return functools.partial(
        label_heads.SequenceHead,
        pool=label_heads.last_that_counts,
        activation=activations.tanh,
        dropout_rates=(
            config.get("summary_first_dropout", 0.0),
            config.get("summary_last_dropout", 0.1),
        ),
    )


def _head(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, xlnet.XLNet):
        return _PRETRAINED
    if isinstance(model, Answering):
        return _ANSWERS
    ending = head_classes.ending_of(model)
    return next((theirs for theirs, others in _ENDINGS.items() if others == ending), ending)


def _of_head(model: Any) -> dict[str, Any]:
    """A head's settings."""
    if isinstance(model, xlnet.XLNet):
        return {}
    if isinstance(model, Answering):
        return {"start_n_top": model.head.num_starts, "end_n_top": model.head.num_ends}
    settings = head_classes.settings(model)
    if isinstance(model.head, label_heads.SequenceHead):
        first, last = model.head.dropout_rates
        settings |= {"summary_first_dropout": first, "summary_last_dropout": last, **_OF_SUMMARY}
    return settings
