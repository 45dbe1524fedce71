"""T5, mT5 and umT5 at Hugging Face: configurations and names."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import TRANSPOSED, Names, Rule, linear, norm, under
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.mlp import GatedMlp, Mlp
from t5x_like.layers.heads import label_heads
from t5x_like.models import finetuned, t5

MODEL_TYPES = ("t5", "mt5", "umt5")

_GENERATION = "ForConditionalGeneration"
_ENCODER = "EncoderModel"
# From the encoder alone, or from both sides.
_OF_ENCODER = (_ENCODER, head_classes.TAGS)
_OF_BOTH = (head_classes.BODY, head_classes.CLASSES, head_classes.SPANS)
_OLD_NAMES = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}
_CLASS_PREFIX = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
IDS = {kind: {"eos_token_id": 1, "decoder_start_token_id": 0} for kind in MODEL_TYPES}
# The only values that are read.
_FIXED = {"pad_token_id": 0, "is_decoder": False}
_NEEDED = ("vocab_size", "d_model", "d_ff", "num_heads", "d_kv", "num_layers")
_OLD = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",)
UNUSED = (*_OLD, "encoder.embed", "decoder.embed", "lm_head.")
"""Weights of theirs that a model without a head does not read."""


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial:
    """Makes the model of a config.json; see `families`."""
    start = _CLASS_PREFIX[config["model_type"]]
    known = [start + suffix for suffix in (_GENERATION, *_OF_BOTH, *_OF_ENCODER)]
    architecture = _OLD_NAMES.get(architecture, architecture)
    if architecture not in known:
        raise ValueError(f"{architecture} is not supported; of this family, {', '.join(known)} are")
    suffix = architecture.removeprefix(start)
    ours = _config(config, with_output=suffix == _GENERATION)
    has_head = suffix in (head_classes.CLASSES, head_classes.SPANS)
    of_both = t5.Reader if has_head else t5.T5
    body = functools.partial(t5.Encoder if suffix in _OF_ENCODER else of_both, config=ours)
    if suffix == _GENERATION:
        return body
    rate = config.get("classifier_dropout", 0.0)
    made_with = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            pool=label_heads.LastOf(config.get("eos_token_id", 1)),
            activation=activations.tanh,
            dropout_rates=(rate, rate),
        ),
        of_tokens=functools.partial(label_heads.TokenHead, dropout_rate=rate),
    )
    ending = head_classes.BODY if suffix == _ENCODER else suffix
    constructor = head_classes.fine_tuned(ending, body, made_with=made_with, config=config)
    assert constructor is not None  # all that are left are among those it knows
    return constructor


def _config(config: Mapping[str, Any], *, with_output: bool) -> t5.Config:
    common = settings_from_hf(config)
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    return t5.Config(
        **common,
        # Without an output nothing says whether it is tied, and there is no matrix to read.
        tied_logits=not with_output or (config["model_type"] == "t5" and scaled),
        relative_bias_per_layer=config["model_type"] == "umt5",
    )


def settings_from_hf(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `t5.Config` that every kind of T5 has in its config.json.

    Raises:
      ValueError: one of them is missing, or not supported.
    """
    unsupported_settings.check(config, _FIXED)
    if lacking := [name for name in _NEEDED if name not in config]:
        raise ValueError(f"config.json lacks {', '.join(lacking)}: it is not that of a T5")
    gate, _, activation = config.get("feed_forward_proj", "relu").rpartition("-")
    if activation == "gelu" and gate:
        activation = "gelu_new"  # what "gated-gelu" has always meant there
    function = activation_names.read(activation)
    plain = (GatedMlp, activations.gelu_tanh) if gate else (Mlp, activations.relu)
    mlp = plain[0] if function is plain[1] else functools.partial(plain[0], activation=function)
    return {
        "vocab_size": config["vocab_size"],
        "d_model": config["d_model"],
        "d_ff": config["d_ff"],
        "num_heads": config["num_heads"],
        "d_kv": config["d_kv"],
        "num_encoder_layers": config["num_layers"],
        "num_decoder_layers": config.get("num_decoder_layers") or config["num_layers"],
        "mlp": mlp,
        "relative_buckets": config.get("relative_attention_num_buckets", 32),
        "relative_max_distance": config.get("relative_attention_max_distance", 128),
        "dropout_rate": config.get("dropout_rate", 0.1),
        "norm_epsilon": config.get("layer_norm_epsilon", 1e-6),
    }


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a model; see `families`."""
    body = model.body if isinstance(model, finetuned.FineTuned) else model
    if not isinstance(body, t5.T5 | t5.Encoder) or type(body.config) is not t5.Config:
        return None
    kind = "umt5" if body.config.relative_bias_per_layer else "t5"
    config = {
        "model_type": kind,
        "architectures": [_CLASS_PREFIX[kind] + _suffix(model)],
        **settings_to_hf(body),
    }
    head = model.head if isinstance(model, finetuned.FineTuned) else None
    if isinstance(head, label_heads.SequenceHead):
        config |= {
            "eos_token_id": head.pool.token if isinstance(head.pool, label_heads.LastOf) else 1,
            "classifier_dropout": head.dropout_rates[0],
        }
    if isinstance(head, label_heads.TokenHead):
        config["classifier_dropout"] = head.dropout_rate
    return config if head is None else config | head_classes.settings(model)


def settings_to_hf(body: t5.T5 | t5.Encoder) -> dict[str, Any]:
    """What config.json says of every kind of T5."""
    ours = body.config
    mlp: Any = body.encoder.layers.mlp
    gated = isinstance(mlp, GatedMlp)
    activation = activation_names.name_of(mlp.activation)
    if gated:
        activation = "gated-" + ("gelu" if activation == "gelu_new" else activation)
    return {
        "vocab_size": ours.vocab_size,
        "d_model": ours.d_model,
        "d_ff": ours.d_ff,
        "d_kv": ours.d_kv,
        "num_heads": ours.num_heads,
        "num_layers": ours.num_encoder_layers,
        "num_decoder_layers": ours.num_decoder_layers,
        "feed_forward_proj": activation,
        "tie_word_embeddings": ours.tied_logits,
        "relative_attention_num_buckets": ours.relative_buckets,
        "relative_attention_max_distance": ours.relative_max_distance,
        "dropout_rate": ours.dropout_rate,
        "layer_norm_epsilon": ours.norm_epsilon,
        "is_encoder_decoder": isinstance(body, t5.T5),
        "pad_token_id": 0,
    }


def _suffix(model: Any) -> str:
    if isinstance(model, t5.T5):
        return _GENERATION
    ending = head_classes.ending_of(model)
    alone = isinstance(model.body, t5.Encoder)
    if ending == head_classes.BODY and alone:
        ending = _ENCODER
    if ending not in (_OF_ENCODER if alone else _OF_BOTH):
        side = "of its encoder alone" if alone else "of both sides"
        raise ValueError(f"Hugging Face's T5 has no {ending} {side}: it cannot be exported")
    return ending


def names(model: Any) -> Names:
    """The names of a model's weights; see `families`."""
    if isinstance(model, t5.T5 | t5.Encoder):
        return Names(body_rules(model), unused=UNUSED)
    suffix = _suffix(model)
    inside = suffix in (head_classes.CLASSES, head_classes.TAGS)
    prefix = "transformer." if inside else ""
    rules = under(body_rules(model.body), ours="body/", theirs=prefix)
    match suffix:
        case "ForSequenceClassification":
            rules += linear("head/pooler/dense", "classification_head.dense")
            rules += linear("head/out", "classification_head.out_proj")
        case "ForTokenClassification":
            rules += linear("head/out", "classifier")
        case "ForQuestionAnswering":
            rules += linear("head/out", "qa_outputs")
    stale = ("encoder.embed", "decoder.embed", *_OLD)
    return Names(rules, prefix=prefix, unused=tuple(prefix + name for name in stale))


def body_rules(
    model: t5.T5 | t5.Encoder, *, encoder_attention: str = "SelfAttention"
) -> list[Rule]:
    """The names of weights without a head's, where the encoder's attention has this name."""
    ours = model.config
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    rules = [Rule("embedding/table", "shared.weight", aliases=copies)]
    gated = isinstance(model.encoder.layers.mlp, GatedMlp)
    mlp = ("wi_0", "wi_1", "wo") if gated else ("wi", "wo")
    for side in ("encoder", "decoder") if isinstance(model, t5.T5) else ("encoder",):
        block = f"{side}.block.{{i}}.layer"
        rules += norm(f"{side}_norm", f"{side}.final_layer_norm", bias=False)
        parts = [("attention", "attention_norm", encoder_attention)]
        if side == "decoder":
            parts = [
                ("self_attention", "self_norm", "SelfAttention"),
                ("cross_attention", "cross_norm", "EncDecAttention"),
            ]
        for number, (attention, its_norm, theirs) in enumerate(parts):
            rules += norm(f"{side}/layers/{its_norm}", f"{block}.{number}.layer_norm", bias=False)
            for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "o")):
                place = f"{block}.{number}.{theirs}.{letter}"
                rules += linear(f"{side}/layers/{attention}/{name}", place, bias=False)
        last = f"{block}.{len(parts)}"
        rules += norm(f"{side}/layers/mlp_norm", f"{last}.layer_norm", bias=False)
        for name in mlp:
            rules += linear(
                f"{side}/layers/mlp/{name}", f"{last}.DenseReluDense.{name}", bias=False
            )
        bias = f"layer.0.{parts[0][2]}.relative_attention_bias.weight"
        if ours.relative_bias_per_layer:
            rules.append(
                Rule(f"{side}/layers/relative/table", f"{side}.block.{{i}}.{bias}", TRANSPOSED)
            )
        else:
            rules.append(Rule(f"{side}_relative/table", f"{side}.block.0.{bias}", TRANSPOSED))
    if not ours.tied_logits and isinstance(model, t5.T5):
        rules += [Rule("output/kernel", "lm_head.weight", TRANSPOSED, aliases=("shared.weight",))]
    return rules
