"""DeBERTa and DeBERTa v2 and v3 at Hugging Face: settings and names of weights.

Transformers has no enhanced mask decoder: its class for masked tokens reads the last layer's
states. A file that has absolute positions, as those of the authors do, belongs to a model that has
one; transformers passes them over. It has no class for a discriminator either: one is a body whose
file has a head as well, with the authors' names. A joint model is saved as two.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule, Transform
from t5x_like.layers.heads import label_heads
from t5x_like.models import deberta, deberta_v3
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("deberta", "deberta-v2")

_CLASSES = {"deberta": "Deberta", "deberta-v2": "DebertaV2"}
_PREFIX = "deberta."
_MASKED = "ForMaskedLM"
_POSITIONS = "embeddings.position_embeddings.weight"
_MARKS = "mask_predictions"

# Our setting: its name in config.json, and Hugging Face's default for v2.
_SETTINGS = {
    "d_model": ("hidden_size", 1536),
    "d_ff": ("intermediate_size", 6144),
    "num_heads": ("num_attention_heads", 24),
    "num_layers": ("num_hidden_layers", 24),
    "max_positions": ("max_position_embeddings", 512),
    "dropout_rate": ("hidden_dropout_prob", 0.1),
    "attention_dropout_rate": ("attention_probs_dropout_prob", 0.1),
    "norm_epsilon": ("layer_norm_eps", 1e-7),
    "init_std": ("initializer_range", 0.02),
}
# Its defaults for v1, where they are others.
_OF_V1 = {"hidden_size": 768, "intermediate_size": 3072}
_OF_V1 |= {"num_attention_heads": 12, "num_hidden_layers": 12}
_VOCABULARY = {"deberta": 50265, "deberta-v2": 128100}
IDS = {kind: {"pad_token_id": 0} for kind in MODEL_TYPES}
# Settings that have one value here, and what is read where they are not given.
_FIXED = {
    "relative_attention": (True, False),
    "position_biased_input": (False, True),
    "type_vocab_size": (0, 0),
    "tie_word_embeddings": (True, True),
}
_FIXED_V1 = {"talking_head": (False, False)}
_FIXED_V2 = {"share_att_key": (True, False), "norm_rel_ebd": ("layer_norm", "none")}
_TERMS = ["c2p", "p2c"]
_RATES = ("pooler_dropout", "cls_dropout")

# Our name: Hugging Face's name.
_LAYER = {
    "attention/out": "attention.output.dense",
    "mlp/wi": "intermediate.dense",
    "mlp/wo": "output.dense",
}
_NORMS = {"attention_norm": "attention.output.LayerNorm", "mlp_norm": "output.LayerNorm"}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with its pretraining head or a task's head, or a body without a head.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    kind = config["model_type"]
    _check(config, kind)
    ending = architecture.removeprefix(_CLASSES[kind])
    ours = _config(config, kind)
    if ending == _MASKED:
        return functools.partial(deberta.Deberta, ours)
    constructor = head_classes.fine_tuned(
        ending,
        functools.partial(deberta.Encoder, ours),
        made_with=_heads(config, ours),
        config=config,
    )
    if constructor is None:
        raise ValueError(
            f"{architecture} is not read: it is not a {_CLASSES[kind]} with a head that we have"
        )
    return constructor


def constructor_for(make: functools.partial, weights: Any) -> functools.partial:
    """The constructor of the model that a file says more of.

    It is one with the enhanced mask decoder where the file has positions, and a discriminator where
    it has a body and a discriminator's head.
    """
    has_positions = any(name in weights for name in (_PREFIX + _POSITIONS, _POSITIONS))
    if make.func is deberta.Deberta and has_positions:
        return functools.partial(make.func, dataclasses.replace(make.args[0], mask_decoder=True))
    if make.func is FineTuned and not make.keywords and f"{_MARKS}.dense.weight" in weights:
        return functools.partial(deberta_v3.Discriminator, *make.args[0].args)
    return make


def _check(config: Mapping[str, Any], kind: str) -> None:
    """Refuses what no published DeBERTa has.

    Raises:
      ValueError: a setting has another value than the one that is read.
    """
    fixed = _FIXED | (_FIXED_V1 if kind == "deberta" else _FIXED_V2)
    given = {name: config.get(name, default) for name, (_, default) in fixed.items()}
    unsupported_settings.check(given, {name: wanted for name, (wanted, _) in fixed.items()})
    terms = config.get("pos_att_type") or []
    terms = terms.split("|") if isinstance(terms, str) else terms
    if sorted(term.strip() for term in terms) != _TERMS:
        raise ValueError(
            f"config.json has pos_att_type {config.get('pos_att_type')!r}: only c2p|p2c is read"
        )
    width = config.get("hidden_size", _default("hidden_size", kind))
    positions = config.get("max_position_embeddings", 512)
    if (most := config.get("max_relative_positions", -1)) not in (-1, positions):
        raise ValueError(
            f"config.json has max_relative_positions {most}: only -1, or max_position_embeddings, "
            f"which is {positions}, is read"
        )
    for name in ("embedding_size", "pooler_hidden_size"):
        unsupported_settings.check(config, {name: width})
    if config.get("conv_kernel_size", 0):
        activation = {"conv_act": config.get("hidden_act", "gelu")}
        unsupported_settings.check({"conv_act": config.get("conv_act", "tanh")}, activation)
        unsupported_settings.check(config, {"conv_groups": 1})


def _default(name: str, kind: str) -> Any:
    defaults = dict(_SETTINGS.values())
    return (defaults | _OF_V1 if kind == "deberta" else defaults)[name]


def _config(config: Mapping[str, Any], kind: str) -> deberta.Config:
    of_v2 = kind != "deberta"
    buckets = config.get("position_buckets", -1) if of_v2 else 0
    if of_v2 and buckets < 1:
        raise ValueError(f"config.json has position_buckets {buckets}: only 4 or more are read")
    settings = {
        ours: config.get(name, _default(name, kind)) for ours, (name, _) in _SETTINGS.items()
    }
    heads, width = settings["num_heads"], settings["d_model"]
    unsupported_settings.check(config, {"attention_head_size": width // heads})
    return deberta.Config(
        **settings,
        vocab_size=config.get("vocab_size", _VOCABULARY[kind]),
        activation=activation_names.read(config.get("hidden_act", "gelu")),
        buckets=buckets,
        convolution=config.get("conv_kernel_size", 0) if of_v2 else 0,
        mask_decoder=False,
    )


def _heads(config: Mapping[str, Any], ours: deberta.Config) -> head_classes.Heads:
    rates = [config.get("pooler_dropout", 0.0), config.get("cls_dropout")]
    if rates[1] is None:
        rates[1] = ours.dropout_rate
    return head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            pool=label_heads.first,
            activation=activation_names.read(config.get("pooler_hidden_act", "gelu")),
            dropout_rates=tuple(rates),
        ),
        of_tokens=functools.partial(label_heads.TokenHead, dropout_rate=ours.dropout_rate),
    )


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    For a joint model it is the discriminator's; `halves` has both.
    """
    if isinstance(model, deberta_v3.DebertaV3):
        return to_hf(model.discriminator)
    if not _is_ours(model):
        return None
    config: deberta.Config = model.config
    kind = "deberta-v2" if config.buckets else "deberta"
    activation = activation_names.name_of(config.activation)
    fixed = _FIXED | (_FIXED_V2 if config.buckets else {})
    return {
        "model_type": kind,
        "architectures": [_CLASSES[kind] + _ending(model)],
        "vocab_size": config.vocab_size,
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        **{name: wanted for name, (wanted, _) in fixed.items()},
        "pos_att_type": _TERMS,
        "max_relative_positions": -1,
        "hidden_act": activation,
        "legacy": True,
        **({"position_buckets": config.buckets} if config.buckets else {}),
        **(
            {"conv_kernel_size": config.convolution, "conv_act": activation}
            if config.convolution
            else {}
        ),
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    ending, marks = _ending(model), isinstance(model, deberta_v3.Discriminator)
    rules = mapping.under(
        body(model.config),
        ours="body/" if isinstance(model, FineTuned) else "encoder/",
        theirs="" if ending == head_classes.BODY and not marks else _PREFIX,
    )
    if marks:
        rules += [
            *mapping.linear("head/pooler/dense", f"{_MARKS}.dense"),
            *mapping.norm("head/norm", f"{_MARKS}.LayerNorm"),
            *mapping.linear("head/out", f"{_MARKS}.classifier"),
        ]
    unused = ["cls.predictions.decoder", *([] if marks else [f"{_MARKS}."])]
    if ending == _MASKED and model.config.mask_decoder:
        rules.append(Rule("positions", _PREFIX + _POSITIONS))
    else:
        unused += [_PREFIX + _POSITIONS, _POSITIONS]
    return Names([*rules, *_head(ending)], prefix=_PREFIX, unused=tuple(unused))


def halves(model: Any, params: Any) -> dict[str, tuple[Any, Any]] | None:
    """`discriminator`, with its own table, and `generator`, each with a copy of what they share."""
    if not isinstance(model, deberta_v3.DebertaV3):
        return None
    generator = nnx.merge(nnx.graphdef(model), params).whole_generator()
    of_discriminator = params["discriminator"]
    if model.config.embedding_sharing == "gdes":
        flat = mapping.flat(of_discriminator)
        stored = np.asarray(flat["encoder/embedding/tokens/table"])
        flat["encoder/embedding/tokens/table"] = stored + np.asarray(params["difference"])
        of_discriminator = mapping.nested(flat)
    return {
        "discriminator": (model.discriminator, of_discriminator),
        "generator": (generator, nnx.to_pure_dict(nnx.state(generator))),
    }


def body(config: deberta.Config) -> list[Rule]:
    """Rules for an encoder."""
    layers = "stack/layers"
    rules = [
        Rule(
            "embedding/tokens/table",
            "embeddings.word_embeddings.weight",
            aliases=("cls.predictions.decoder.weight",),
        ),
        *mapping.norm("embedding/norm", "embeddings.LayerNorm"),
        Rule("distances", "encoder.rel_embeddings.weight"),
    ]
    for our, their in _LAYER.items():
        rules += mapping.linear(f"{layers}/{our}", f"encoder.layer.{{i}}.{their}")
    for our, their in _NORMS.items():
        rules += mapping.norm(f"{layers}/{our}", f"encoder.layer.{{i}}.{their}")
    theirs = "encoder.layer.{i}.attention.self."
    if not config.buckets:
        return rules + _separate(f"{layers}/attention/", theirs, config.num_heads)
    for name in ("query", "key", "value"):
        rules += mapping.linear(f"{layers}/attention/{name}", f"{theirs}{name}_proj")
    rules += mapping.norm("distance_norm", "encoder.LayerNorm")
    if config.convolution:
        dense = "beside/convolution/dense/"
        taps = mapping.convolution(config.convolution)
        rules += [
            Rule(f"{dense}kernel", "encoder.conv.conv.weight", taps),
            Rule(f"{dense}bias", "encoder.conv.conv.bias"),
            *mapping.norm("beside/norm", "encoder.conv.LayerNorm"),
        ]
    return rules


def _separate(ours: str, theirs: str, num_heads: int) -> list[Rule]:
    """Rules for v1's projections: one matrix for three, whose keys have no bias."""
    kernels = tuple(f"{ours}{name}/kernel" for name in ("query", "key", "value"))
    return [
        Rule(kernels, f"{theirs}in_proj.weight", _by_head(num_heads)),
        Rule(f"{ours}query/bias", f"{theirs}q_bias"),
        Rule(f"{ours}value/bias", f"{theirs}v_bias"),
        *mapping.linear(f"{ours}position_key", f"{theirs}pos_proj", bias=False),
        *mapping.linear(f"{ours}position_query", f"{theirs}pos_q_proj"),
    ]


def _by_head(num_heads: int) -> Transform:
    """Three matrices [D, J] in one [3 J, D], whose rows are, head by head, those of the three."""

    def to_ours(theirs: np.ndarray) -> tuple[np.ndarray, ...]:
        width = theirs.shape[-1]
        parts = theirs.reshape(num_heads, 3, -1, width)
        return tuple(parts[:, n].reshape(-1, width).T for n in range(3))

    def to_theirs(*ours: np.ndarray) -> np.ndarray:
        width = len(ours[0])
        parts = [kernel.T.reshape(num_heads, -1, width) for kernel in ours]
        return np.stack(parts, axis=1).reshape(-1, width)

    return Transform(to_ours, to_theirs)


def _head(ending: str) -> list[Rule]:
    if ending == _MASKED:
        of_authors = "lm_predictions.lm_head"
        dense, norm = "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
        rules = [
            *mapping.linear("mlm/dense", dense),
            *mapping.norm("mlm/norm", norm),
            Rule("mlm/bias", "cls.predictions.bias", aliases=("cls.predictions.decoder.bias",)),
        ]
        return [_also(rule, f"{of_authors}.{_last_names(rule)}") for rule in rules]
    if ending in (head_classes.CLASSES, head_classes.CHOICES):
        pooler = mapping.linear("head/pooler/dense", "pooler.dense")
        return pooler + mapping.linear("head/out", "classifier")
    if ending == head_classes.TAGS:
        return mapping.linear("head/out", "classifier")
    return mapping.linear("head/out", "qa_outputs") if ending == head_classes.SPANS else []


def _last_names(rule: Rule) -> str:
    return str(rule.theirs).removeprefix("cls.predictions.").removeprefix("transform.")


def _also(rule: Rule, alias: str) -> Rule:
    return dataclasses.replace(rule, aliases=(*rule.aliases, alias))


def _is_ours(model: Any) -> bool:
    if isinstance(model, FineTuned):
        return isinstance(model.body, deberta.Encoder)
    return isinstance(model, (deberta.Deberta, deberta_v3.Discriminator))


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, FineTuned):
        return head_classes.ending_of(model)
    return _MASKED if isinstance(model, deberta.Deberta) else head_classes.BODY


def _of_head(model: Any) -> dict[str, Any]:
    ending = _ending(model)
    if ending == head_classes.TAGS:
        return head_classes.settings(model)
    if ending not in (head_classes.CLASSES, head_classes.CHOICES):
        return {}
    return {
        **dict(zip(_RATES, model.head.dropout_rates, strict=True)),
        "pooler_hidden_act": activation_names.name_of(model.head.pooler.activation),
        **head_classes.settings(model),
    }
