"""BART and mBART at Hugging Face: settings and names of weights."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule, Transform, linear, norm, under
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.models import bart, bart_decoder

MODEL_TYPES = ("bart", "mbart")

_PREFIX = "model."
_GENERATION = "ForConditionalGeneration"
_DECODER = "ForCausalLM"
_TASKS = (head_classes.CLASSES, head_classes.SPANS, head_classes.BODY)
_ENDINGS = (_GENERATION, _DECODER, *_TASKS)
_STEMS = {"bart": "Bart", "mbart": "MBart"}
_DEFAULT_LABELS = {"bart": 3, "mbart": 2}
_SIDES = ("encoder", "decoder")
_LOGITS_BIAS = "final_logits_bias"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
_UNUSED = (_LOGITS_BIAS, *_COPIES, *(_PREFIX + name for name in _COPIES))
_EPSILON = 1e-5  # of every norm in Hugging Face's BART
_ONE_ROW = Transform(lambda theirs: (theirs[0],), lambda ours: ours[None])

# Our norm and attention: Hugging Face's attention, whose norm is named after it.
_ATTENTIONS = {
    "encoder": [("attention_norm", "attention", "self_attn")],
    "decoder": [
        ("self_norm", "self_attention", "self_attn"),
        ("cross_norm", "cross_attention", "encoder_attn"),
    ],
}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}

# Our setting: its name in config.json, and Hugging Face's default.
SETTINGS: Mapping[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", 50265),
    "d_model": ("d_model", 1024),
    "num_encoder_layers": ("encoder_layers", 12),
    "num_decoder_layers": ("decoder_layers", 12),
    "pad_id": ("pad_token_id", 1),
    "dropout_rate": ("dropout", 0.1),
    "attention_dropout_rate": ("attention_dropout", 0.0),
    "activation_dropout_rate": ("activation_dropout", 0.0),
    "init_std": ("init_std", 0.02),
}
_OF_BART = {
    "max_positions": ("max_position_embeddings", 1024),
    "scale_embedding": ("scale_embedding", False),
}
_ENDS = {"bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": None}
# mBART's decoder starts with a language; nothing forces generation to end.
IDS: dict[str, dict[str, int | None]] = {
    "bart": {**_ENDS, "decoder_start_token_id": 2},
    "mbart": {**_ENDS, "decoder_start_token_id": None},
}
_OF_EACH_SIDE = {"d_ff": ("ffn_dim", 4096), "num_heads": ("attention_heads", 16)}
# The only values that are read.
_FIXED = {
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "tie_word_embeddings": True,
    "is_decoder": False,
}
# For a lone decoder; the class itself makes it a decoder.
_FIXED_DECODER = {
    "decoder_layerdrop": 0.0,
    "tie_word_embeddings": True,
    "add_cross_attention": False,
}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with the head for generation, for classes or numbers, for answers, or without.

    It may also be the decoder alone.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    kind = config["model_type"]
    head = architecture.removeprefix(_STEMS[kind])
    if architecture == head or head not in _ENDINGS:
        known = ", ".join(f"{_STEMS[kind]}{name}" for name in _ENDINGS)
        raise ValueError(f"{architecture} is not read; of this family, {known} are")
    if head == _DECODER:
        return functools.partial(bart_decoder.BartDecoder, _decoder_config(config))
    ours = _config(config, logits_bias=head == _GENERATION)
    if head == _GENERATION:
        return functools.partial(bart.Bart, ours)
    body = functools.partial(bart.Reader, ours)
    return of_task(head, body, config=config, default_labels=_DEFAULT_LABELS[kind])


def of_task(
    head: str, body: functools.partial[Any], *, config: Mapping[str, Any], default_labels: int = 2
) -> functools.partial[Any]:
    """The body with the head of a task, by the end of its class; or without a head."""
    rate = config.get("classifier_dropout") or 0.0
    of_sequence = functools.partial(
        label_heads.SequenceHead,
        pool=label_heads.LastOf(config.get("eos_token_id", 2)),
        activation=activations.tanh,
        dropout_rates=(rate, rate),
    )
    constructor = head_classes.fine_tuned(
        head,
        body,
        made_with=head_classes.Heads(of_sequence),
        config=config,
        default_labels=default_labels,
    )
    assert constructor is not None  # the class knows all of `_TASKS`
    return constructor


def constructor_for(make: functools.partial, weights: Any) -> functools.partial:
    """The constructor for what the weights hold: a bias of zeros, a buffer there, is none here."""
    made: Any = make.func
    if not issubclass(made, bart.Bart) or _LOGITS_BIAS not in weights:
        return make
    if np.any(weights.read(_LOGITS_BIAS)):
        return make
    (config,) = make.args
    return functools.partial(made, dataclasses.replace(config, logits_bias=False))


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a pretrained BART, a lone decoder, or a body with or without a head.

    Raises:
      ValueError: norms have another epsilon, or there is no class with this head.
    """
    config = model.config
    if type(config) not in (bart.Config, bart_decoder.Config):
        return None
    kind, head = "mbart" if config.pre_norm else "bart", _head(model)
    if head not in _ENDINGS:
        raise ValueError(f"Hugging Face has no {_STEMS[kind]}{head}: it cannot be exported")
    decodes = head == _DECODER
    settings = written(config, {**SETTINGS, **_OF_BART})
    if decodes:
        # Hugging Face's cache has as many layers as the encoder would have.
        settings |= {"is_decoder": True, "encoder_layers": config.num_decoder_layers}
    return {
        "model_type": kind,
        "architectures": [_STEMS[kind] + head],
        "is_encoder_decoder": not decodes,
        **settings,
        **_of_head(model),
    }


def written(config: bart.Config, settings: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """What config.json has of these settings, of those of each side, and of the activation.

    Raises:
      ValueError: norms have another epsilon.
    """
    if config.norm_epsilon != _EPSILON:
        raise ValueError(
            f"bart.Config.norm_epsilon is {config.norm_epsilon}, but Hugging Face's BART has "
            f"{_EPSILON} and no setting for it"
        )
    found = {name: getattr(config, ours) for ours, (name, _) in settings.items()}
    for ours, (name, _) in _OF_EACH_SIDE.items():
        found |= {f"{side}_{name}": getattr(config, ours) for side in _SIDES}
    return found | {"activation_function": activation_names.name_of(config.activation)}


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    head, config = _head(model), model.config
    if head == _DECODER:
        rules = under(_decoder(config), theirs=_PREFIX)
        fresh = functools.partial(_cross_attention, config)
        return Names(rules, prefix=_PREFIX, unused=_UNUSED, fresh=fresh)
    rules = under(
        _body(config),
        ours="" if head == _GENERATION else "body/model/",
        theirs="" if head == head_classes.BODY else _PREFIX,
    )
    return with_head(head, rules, config=config, prefix=_PREFIX)


def with_head(head: str, rules: list[Rule], *, config: bart.Config, prefix: str) -> Names:
    """The names of a body's weights and of a head's, by the end of its class."""
    constants = {}
    if head == _GENERATION and config.logits_bias:
        rules.append(Rule("logits_bias", _LOGITS_BIAS, _ONE_ROW))
    elif head == _GENERATION:
        constants[_LOGITS_BIAS] = np.zeros((1, config.vocab_size), np.float32)
    elif head == head_classes.CLASSES:
        rules += linear("head/pooler/dense", "classification_head.dense")
        rules += linear("head/out", "classification_head.out_proj")
    elif head == head_classes.SPANS:
        rules += linear("head/out", "qa_outputs")
    unused = (_LOGITS_BIAS, *_COPIES, *(prefix + name for name in _COPIES))
    return Names(rules, prefix=prefix, constants=constants, unused=unused)


def _body(config: bart.Config) -> list[Rule]:
    return body_rules(config, of_encoder=_ATTENTIONS["encoder"])


def body_rules(config: bart.Config, *, of_encoder: Sequence[tuple[str, str, str]]) -> list[Rule]:
    """The weights of both sides; `of_encoder` are the norms and attentions of the encoder."""
    rules = [Rule("embedding/table", "shared.weight", aliases=_COPIES)]
    for side, attentions in zip(_SIDES, (of_encoder, _ATTENTIONS["decoder"]), strict=True):
        parts = (f"{side}_entry", f"{side}_norm", side)
        rules += _side(config, side, parts, attentions=attentions)
    return rules


def _decoder(config: bart.Config) -> list[Rule]:
    """The layers are those of an encoder here, as they attend only to themselves."""
    names = ("shared.weight", *_COPIES)
    table = Rule("embedding/table", "decoder.embed_tokens.weight", aliases=names)
    parts = ("entry", "norm", "stack")
    return [table, *_side(config, "decoder", parts, attentions=_ATTENTIONS["encoder"])]


def _side(
    config: bart.Config,
    side: str,
    parts: Sequence[str],
    *,
    attentions: Sequence[tuple[str, str, str]],
) -> list[Rule]:
    """Rules for the parts of one of Hugging Face's sides; `parts` gives our names."""
    entry, last_norm, stack = parts
    rules = [Rule(f"{entry}/positions", f"{side}.embed_positions.weight")]
    rules += norm(f"{entry}/norm", f"{side}.layernorm_embedding")
    if config.pre_norm:
        rules += norm(last_norm, f"{side}.layer_norm")
    return rules + under(
        _layer(attentions), ours=f"{stack}/layers/", theirs=f"{side}.layers.{{i}}."
    )


def _layer(attentions: Sequence[tuple[str, str, str]]) -> list[Rule]:
    rules = linear("mlp/wi", "fc1") + linear("mlp/wo", "fc2") + norm("mlp_norm", "final_layer_norm")
    for our_norm, ours, theirs in attentions:
        rules += norm(our_norm, f"{theirs}_layer_norm")
        for our, their in _PROJECTIONS.items():
            rules += linear(f"{ours}/{our}", f"{theirs}.{their}")
    return rules


def _cross_attention(config: bart.Config) -> Iterator[tuple[str, np.ndarray]]:
    """Weights that Hugging Face's lone decoder has and does not use, as it would draw them."""
    rng, size = np.random.default_rng(0), config.d_model
    for i in range(config.num_decoder_layers):
        start = f"{_PREFIX}decoder.layers.{i}.encoder_attn"
        for name in _PROJECTIONS.values():
            kernel = rng.normal(0, config.init_std, (size, size))
            yield f"{start}.{name}.weight", kernel.astype(np.float32)
            yield f"{start}.{name}.bias", np.zeros(size, np.float32)
        yield f"{start}_layer_norm.weight", np.ones(size, np.float32)
        yield f"{start}_layer_norm.bias", np.zeros(size, np.float32)


def _config(config: Mapping[str, Any], *, logits_bias: bool) -> bart.Config:
    settings = read(config, {**SETTINGS, **_OF_BART})
    pre_norm = config["model_type"] == "mbart"
    return bart.Config(**settings, pre_norm=pre_norm, logits_bias=logits_bias)


def read(config: Mapping[str, Any], settings: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a configuration that these settings give, and those that all BARTs have.

    Raises:
      ValueError: a setting is not supported.
    """
    unsupported_settings.check(config, _FIXED)
    ours = {name: config.get(*theirs) for name, theirs in settings.items()}
    for name, (theirs, default) in _OF_EACH_SIDE.items():
        encoder, decoder = (config.get(f"{side}_{theirs}", default) for side in _SIDES)
        if encoder != decoder:
            raise ValueError(
                f"config.json has {theirs} {encoder} in the encoder, {decoder} in the decoder: "
                "only equal ones are read"
            )
        ours[name] = encoder
    return ours | _same_for_all(config)


def _decoder_config(config: Mapping[str, Any]) -> bart_decoder.Config:
    unsupported_settings.check(config, _FIXED_DECODER)
    settings = {**SETTINGS, **_OF_BART}
    ours = {name: config.get(*theirs) for name, theirs in settings.items()}
    for name, (theirs, default) in _OF_EACH_SIDE.items():
        ours[name] = config.get(f"decoder_{theirs}", default)
    ours |= {**_same_for_all(config), "pre_norm": config["model_type"] == "mbart"}
    return bart_decoder.Config(**ours | {"num_encoder_layers": 0})


def _same_for_all(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "activation": activation_names.read(config.get("activation_function", "gelu")),
        "norm_epsilon": _EPSILON,
    }


def _head(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, bart_decoder.BartDecoder):
        return _DECODER
    return _GENERATION if isinstance(model, bart.Bart) else head_classes.ending_of(model)


def _of_head(model: Any) -> dict[str, Any]:
    """The settings of a head for classes."""
    if _head(model) != head_classes.CLASSES:
        return {}
    return {
        **head_classes.settings(model),
        "classifier_dropout": model.head.dropout_rates[0],
        "eos_token_id": model.head.pool.token,
    }
