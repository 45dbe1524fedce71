"""ModernBERT at Hugging Face: settings and names of weights; Ettin's and mmBERT's models, too."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Mapping
from typing import Any

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses
from t5x_like.layers.stacks.sharing import MOST_LAYERS
from t5x_like.models import modernbert, modernbert_decoder
from t5x_like.models.finetuned import FineTuned

_ENCODER, _DECODER = "modernbert", "modernbert-decoder"
MODEL_TYPES = (_ENCODER, _DECODER)

_CLASSES = {_ENCODER: "ModernBert", _DECODER: "ModernBertDecoder"}
_PREFIX = "model."
_PRETRAINED = {_ENCODER: "ForMaskedLM", _DECODER: "ForCausalLM"}
_TASKS_OF_DECODER = (head_classes.BODY, head_classes.CLASSES)
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_POOLS = {"cls": label_heads.first, "mean": label_heads.mean}

# Our setting: its name in config.json, and Hugging Face's default.
_SETTINGS = {
    "vocab_size": ("vocab_size", 50368),
    "d_model": ("hidden_size", 768),
    "d_ff": ("intermediate_size", 1152),
    "num_heads": ("num_attention_heads", 12),
    "num_layers": ("num_hidden_layers", 22),
    "max_positions": ("max_position_embeddings", 8192),
    "attention_dropout_rate": ("attention_dropout", 0.0),
    "mlp_dropout_rate": ("mlp_dropout", 0.0),
    "embedding_dropout_rate": ("embedding_dropout", 0.0),
    "norm_epsilon": ("norm_eps", 1e-5),
    "init_std": ("initializer_range", 0.02),
    "pooling": ("classifier_pooling", "cls"),
}
_OF_DECODER = {ours: theirs for ours, theirs in _SETTINGS.items() if ours != "pooling"}
# In older files: our setting, and the default.
_THETAS = {
    _GLOBAL: ("global_theta", "global_rope_theta", 160_000.0),
    _LOCAL: ("local_theta", "local_rope_theta", 10_000.0),
}
IDS = {
    _ENCODER: {"pad_token_id": 50283, "bos_token_id": 50281, "eos_token_id": 50282},
    _DECODER: {"pad_token_id": 50283, "eos_token_id": 50282},
}
NEVER_NULL = {_DECODER: ("pad_token_id",)}
# Settings that have one value here.
_FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with its pretraining head or a task's head, or a body without a head.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    unsupported_settings.check(config, _FIXED)
    kind = config["model_type"]
    ending = architecture.removeprefix(_CLASSES[kind])
    ours = _config(config)
    if ending == _PRETRAINED[kind]:
        if isinstance(ours, modernbert_decoder.Config):
            return functools.partial(modernbert_decoder.ModernBertDecoder, ours)
        return functools.partial(modernbert.ModernBert, ours)
    body = functools.partial(modernbert.Encoder, ours)
    heads = _heads(ours, config.get("classifier_dropout", 0.0))
    if kind == _ENCODER and ending == head_classes.SPANS:
        answers = functools.partial(heads.of_tokens, num_labels=2)
        return functools.partial(FineTuned, body, answers, label_loss=label_losses.spans)
    constructor = head_classes.fine_tuned(ending, body, made_with=heads, config=config)
    if constructor is None or (kind == _DECODER and ending not in _TASKS_OF_DECODER):
        raise ValueError(
            f"{architecture} is not read: it is not a {_CLASSES[kind]} with a head that we have"
        )
    return constructor


def _heads(ours: modernbert.Config, rate: float) -> head_classes.Heads:
    transform = functools.partial(
        label_heads.Transform,
        init_std=ours.residual_std,
        activation=ours.activation,
        epsilon=ours.norm_epsilon,
    )
    settings: dict[str, Any] = {"init": label_heads.by_width, "transform": transform}
    return head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            **settings,
            pool=label_heads.last_that_counts if ours.causal else _POOLS[ours.pooling],
            dropout_rates=(0.0, rate),
            bias=not ours.causal,
        ),
        of_tokens=functools.partial(label_heads.TokenHead, **settings, dropout_rate=rate),
    )


def _config(config: Mapping[str, Any]) -> modernbert.Config:
    activation = config.get("hidden_activation", "gelu")
    if (of_heads := config.get("classifier_activation", "gelu")) != activation:
        raise ValueError(
            f"config.json has the activation {activation!r} in layers and {of_heads!r} in heads: "
            "only one for both is read"
        )
    attends = config.get("attention_dropout", 0.0)  # there, what attention adds has the same rate
    near = config.get("local_attention", 128) // 2
    make, settings = modernbert.Config, _SETTINGS
    if config["model_type"] == _DECODER:
        make, settings = modernbert_decoder.Config, _OF_DECODER
        near = config.get("sliding_window", near) - 1  # it counts the token itself
    return make(
        **{ours: config.get(*theirs) for ours, theirs in settings.items()},
        **_thetas(config),
        dropout_rate=attends,
        window=near,
        global_every=_global_every(config),
        activation=activation_names.read(activation),
    )


def _thetas(config: Mapping[str, Any]) -> dict[str, Any]:
    """The angles' bases, of newer files and of older ones.

    Raises:
      ValueError: positions are scaled.
    """
    given = config.get("rope_parameters") or {}
    thetas: dict[str, float] = {}
    for kind, (name, older, default) in _THETAS.items():
        of_kind = given.get(kind) or {}
        if (how := of_kind.get("rope_type", "default")) != "default":
            raise ValueError(f"config.json has rotary positions of type {how!r}: only default is")
        theta = of_kind.get("rope_theta", config.get(older, default))
        # None for the local ones: as the global ones, which come first.
        thetas[name] = float(next(iter(thetas.values())) if theta is None else theta)
    return thetas


def _global_every(config: Mapping[str, Any]) -> int:
    """How often a layer sees the whole row.

    Raises:
      ValueError: it is not every nth layer from the first on.
    """
    kinds = config.get("layer_types")
    every: int = config.get("global_attn_every_n_layers", 3)
    if kinds is None:
        return every
    layers = config.get(*_SETTINGS["num_layers"])
    later = [i for i, kind in enumerate(kinds) if kind == _GLOBAL and i]
    every = later[0] if later else max(len(kinds), 1)
    if layers > MOST_LAYERS or [*kinds] != _layer_types(layers, every):
        raise ValueError(
            f"config.json has layer_types {reprlib.repr(kinds)}: only {_GLOBAL} in every nth of "
            f"its {layers} layers from the first on, and {_LOCAL} in the others, is read"
        )
    return every


def _layer_types(layers: int, every: int) -> list[str]:
    return [_LOCAL if i % every else _GLOBAL for i in range(layers)]


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model, in new and old keys; None: another family's.

    As in the published files, the dropout of what attention adds is not written: there is no key
    for it alone.
    """
    config = model.config
    if not isinstance(config, modernbert.Config):
        return None
    kind, ending = _kind(model), _ending(model)
    if kind == _DECODER and ending not in (_PRETRAINED[kind], *_TASKS_OF_DECODER):
        raise ValueError(
            f"Hugging Face has no {_CLASSES[kind]}{ending}: the model cannot be exported"
        )
    activation = activation_names.name_of(config.activation)
    thetas = {kind: getattr(config, ours) for kind, (ours, _, _) in _THETAS.items()}
    settings = _OF_DECODER if config.causal else _SETTINGS
    return {
        "model_type": kind,
        "architectures": [_CLASSES[kind] + ending],
        **{theirs: getattr(config, ours) for ours, (theirs, _) in settings.items()},
        **_FIXED,
        "hidden_activation": activation,
        "classifier_activation": activation,
        "local_attention": 2 * (config.window + config.causal),
        "layer_types": _layer_types(config.num_layers, config.global_every),
        "rope_parameters": {
            of: {"rope_type": "default", "rope_theta": theta} for of, theta in thetas.items()
        },
        "global_attn_every_n_layers": config.global_every,
        **{older: thetas[of] for of, (_, older, _) in _THETAS.items()},
        **({"sliding_window": config.window + 1} if config.causal else {}),
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    kind, ending = _kind(model), _ending(model)
    rules = mapping.under(
        _body(model.config),
        ours="encoder/" if ending == _PRETRAINED[kind] else "body/",
        theirs="" if ending == head_classes.BODY else _PREFIX,
    )
    if ending != head_classes.BODY:
        rules += _head(ending, causal=model.config.causal)
    return Names(rules, prefix=_PREFIX, unused=("decoder.weight",))


def _body(config: modernbert.Config) -> list[Rule]:
    layers = "stack/layers"
    # The first layer has none.
    norm_before_attention = mapping.norm(
        f"{layers}/attention_norm", lambda i: f"layers.{i + 1}.attn_norm", bias=False
    )
    return [
        Rule("embedding/tokens/table", "embeddings.tok_embeddings.weight"),
        *mapping.norm("embedding/norm", "embeddings.norm", bias=False),
        *(norm_before_attention if config.num_layers > 1 else ()),
        *_projections(f"{layers}/attention", "layers.{i}.attn", apart=config.causal),
        *mapping.linear(f"{layers}/attention/out", "layers.{i}.attn.Wo", bias=False),
        *mapping.norm(f"{layers}/mlp_norm", "layers.{i}.mlp_norm", bias=False),
        Rule(
            (f"{layers}/mlp/wi_0/kernel", f"{layers}/mlp/wi_1/kernel"),
            "layers.{i}.mlp.Wi.weight",
            mapping.joined(2),
        ),
        *mapping.linear(f"{layers}/mlp/wo", "layers.{i}.mlp.Wo", bias=False),
        *mapping.norm("norm", "final_norm", bias=False),
    ]


def _projections(ours: str, theirs: str, *, apart: bool) -> list[Rule]:
    """Those of queries, keys and values, which a decoder has apart."""
    parts = ("query", "key", "value")
    if not apart:
        joined = tuple(f"{ours}/{part}/kernel" for part in parts)
        return [Rule(joined, f"{theirs}.Wqkv.weight", mapping.joined(3))]
    return [
        rule
        for part in parts
        for rule in mapping.linear(f"{ours}/{part}", f"{theirs}.{part[0]}_proj", bias=False)
    ]


def _head(ending: str, *, causal: bool) -> list[Rule]:
    theirs = "head"
    if ending in _PRETRAINED.values():
        theirs = "lm_head" if causal else "head"
        ours, last = "mlm", [Rule("mlm/bias", "decoder.bias")]
    else:
        of_tokens = ending in (head_classes.TAGS, head_classes.SPANS)
        ours = "head/transform" if of_tokens else "head/pooler"
        last = mapping.linear("head/out", "classifier", bias=not causal)
    dense = mapping.linear(f"{ours}/dense", f"{theirs}.dense", bias=False)
    return [*dense, *mapping.norm(f"{ours}/norm", f"{theirs}.norm", bias=False), *last]


def _kind(model: Any) -> str:
    """The model type."""
    return _DECODER if model.config.causal else _ENCODER


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, FineTuned):
        return head_classes.ending_of(model)
    return _PRETRAINED[_kind(model)]


def _of_head(model: Any) -> dict[str, Any]:
    if _ending(model) in (*_PRETRAINED.values(), head_classes.BODY):
        return {}
    of_tokens = isinstance(model.head, label_heads.TokenHead)
    rate = model.head.dropout_rate if of_tokens else model.head.dropout_rates[1]
    return {"classifier_dropout": rate, **head_classes.settings(model)}
