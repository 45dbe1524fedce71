"""BERT and RoBERTa at Hugging Face: settings and names of weights; SpanBERT is saved as a BERT."""

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
from t5x_like.interop.mapping import Names, Rule
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses
from t5x_like.layers.stacks import standard_parts
from t5x_like.models import bert, bert_decoder, spanbert
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("bert", "roberta")

_PRETRAINED = "ForPreTraining"
MASKED = "ForMaskedLM"
_PAIRS = "ForNextSentencePrediction"
BARE = "Model(add_pooling_layer=False)"  # transformers has no name for it

# Our setting: its name in config.json, and Hugging Face's default.
SETTINGS = {
    "d_model": ("hidden_size", 768),
    "d_ff": ("intermediate_size", 3072),
    "num_heads": ("num_attention_heads", 12),
    "num_layers": ("num_hidden_layers", 12),
    "max_positions": ("max_position_embeddings", 512),
    "type_vocab_size": ("type_vocab_size", 2),
    "dropout_rate": ("hidden_dropout_prob", 0.1),
    "attention_dropout_rate": ("attention_probs_dropout_prob", 0.1),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
    "init_std": ("initializer_range", 0.02),
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """The differences between model types of the same body."""

    model_type: str
    classes: str  # beginning of class names
    vocab_size: int
    pad_id: int
    mlm: Mapping[str, str]
    decoder: str | None  # end of the name of the class that runs it as a decoder
    roberta: bool = True  # whether positions and heads are RoBERTa's

    @property
    def prefix(self) -> str:
        return f"{self.model_type}."


_BERT = Kind(
    model_type="bert",
    classes="Bert",
    vocab_size=30522,
    pad_id=0,
    mlm={
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
        "decoder": "cls.predictions.decoder",
    },
    decoder="LMHeadModel",
    roberta=False,
)
ROBERTA = Kind(
    model_type="roberta",
    classes="Roberta",
    vocab_size=50265,
    pad_id=1,
    mlm={
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
        "decoder": "lm_head.decoder",
    },
    decoder="ForCausalLM",
)
IDS = {"bert": {"pad_token_id": 0}, "roberta": {"bos_token_id": 0, "eos_token_id": 2}}

_POOLED: dict[str, Any] = {"pool": label_heads.first, "activation": activations.tanh}

# Our name: Hugging Face's name.
_LAYER = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/out": "attention.output.dense",
    "mlp/wi": "intermediate.dense",
    "mlp/wo": "output.dense",
}
_NORMS = {"attention_norm": "attention.output.LayerNorm", "mlp_norm": "output.LayerNorm"}


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a model with the pretraining heads or one of them, with a task's head, or without.

    `BertModel(add_pooling_layer=False)` has no pooler. A class for decoders sees both sides where
    `is_decoder` is not set, and is then a masked language model.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    kind = ROBERTA if config["model_type"] == "roberta" else _BERT
    ending = architecture.removeprefix(kind.classes)
    if ending == kind.decoder and config.get("is_decoder"):
        return functools.partial(bert_decoder.BertDecoder, _decoder_config(config, kind))
    ours = _config(config, kind, sentence_head=ending == _PRETRAINED)
    if ending in (MASKED, kind.decoder) or (ending == _PRETRAINED and not kind.roberta):
        check_activation(kind, config.get("hidden_act", "gelu"))
        return functools.partial(bert.Bert, ours)
    return with_head(ending, functools.partial(bert.Encoder, ours), ours, kind=kind, config=config)


def with_head(
    ending: str,
    body: functools.partial[Any],
    ours: standard_parts.Config,
    *,
    kind: Kind,
    config: Mapping[str, Any],
) -> functools.partial[Any]:
    """Makes a model of a body with the head that the end of a class's name means.

    Raises:
      ValueError: another head.
    """
    if ending == BARE:
        return functools.partial(FineTuned, body)
    if ending == head_classes.BODY:
        return functools.partial(
            FineTuned, body, functools.partial(label_heads.PooledState, **_POOLED)
        )
    if ending == _PAIRS and not kind.roberta:
        pair = functools.partial(label_heads.SequenceHead, num_labels=2, **_POOLED)
        return functools.partial(FineTuned, body, pair, label_loss=label_losses.pairs)
    made_with = _heads(config.get("classifier_dropout"), ours, ending=ending, kind=kind)
    constructor = head_classes.fine_tuned(ending, body, made_with=made_with, config=config)
    if constructor is None:
        raise ValueError(
            f"{kind.classes}{ending} is not read: it is not a {kind.classes} with a head that we "
            f"have; {kind.classes}{BARE} is a body without a pooler"
        )
    return constructor


def _heads(
    given: float | None, ours: standard_parts.Config, *, ending: str, kind: Kind
) -> head_classes.Heads:
    """Heads with the dropout rate `given`, or the body's, which is the default everywhere.

    RoBERTa's classes also drop before the pooler; their choices always have the body's rate.
    """
    is_choice = kind.roberta and ending == head_classes.CHOICES
    rate = ours.dropout_rate if given is None or is_choice else given
    before = rate if kind.roberta and ending == head_classes.CLASSES else 0.0
    return head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead, **_POOLED, dropout_rates=(before, rate)
        ),
        of_tokens=functools.partial(label_heads.TokenHead, dropout_rate=rate),
    )


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    Raises:
      ValueError: Hugging Face's configuration cannot express this one.
    """
    if not _is_ours(model):
        return None
    config, kind = model.config, _kind(model)
    decodes = isinstance(model, bert_decoder.BertDecoder)
    return {
        **described(config, kind, ending=ending_of(model)),
        **({"is_decoder": True} if decodes else {}),
        **_of_head(model),
    }


def described(config: bert.Config, kind: Kind, *, ending: str) -> dict[str, Any]:
    """The part of config.json that a configuration and the end of a class's name determine.

    Raises:
      ValueError: Hugging Face's configuration cannot express this one.
    """
    unsupported_settings.check_biases(config)
    if config.d_embedding not in (None, config.d_model):
        raise ValueError(
            f"bert.Config.d_embedding is {config.d_embedding}, but Hugging Face's {kind.classes} "
            "has embeddings as wide as the model: it cannot be exported"
        )
    if kind.roberta and ending in (_PRETRAINED, _PAIRS):
        raise ValueError(
            f"Hugging Face's {kind.classes} has no head for pairs: it cannot be exported"
        )
    activation = activation_names.name_of(config.activation)
    if ending in (MASKED, kind.decoder):
        check_activation(kind, activation)
    return {
        "model_type": kind.model_type,
        "architectures": [kind.classes + ending.removesuffix("(add_pooling_layer=False)")],
        "vocab_size": config.vocab_size,
        **{theirs: getattr(config, ours) for ours, (theirs, _) in SETTINGS.items()},
        "type_vocab_size": max(1, config.type_vocab_size),
        "hidden_act": activation,
        # RoBERTa's positions are counted from the padding id.
        **({"pad_token_id": config.padding_position} if kind.roberta else {}),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    kind, ending = _kind(model), ending_of(model)
    trunk = "" if ending == kind.decoder else "trunk/"
    of_body = body(model.config, decoder=f"{kind.mlm['decoder']}.weight", trunk=trunk)
    return names_of(model, of_body, kind=kind, ending=ending)


def names_of(model: Any, of_body: list[Rule], *, kind: Kind, ending: str) -> Names:
    """The same for a kind, with the rules `of_body` and the end of the class's name."""
    config = model.config
    pretrained, decodes = isinstance(model, bert.Bert), ending == kind.decoder
    theirs = "" if ending in (head_classes.BODY, BARE) else kind.prefix
    ours = "" if decodes else "encoder/" if pretrained else "body/"
    rules = mapping.under(of_body, ours=ours, theirs=theirs)
    if pretrained or decodes:
        rules += mapping.linear("mlm/dense", kind.mlm["dense"])
        rules += mapping.norm("mlm/norm", kind.mlm["norm"])
        rules.append(Rule("mlm/bias", kind.mlm["bias"], aliases=(f"{kind.mlm['decoder']}.bias",)))
    if ending in (_PRETRAINED, _PAIRS):
        head = "sentence" if pretrained else "head"
        rules += mapping.linear(f"{head}/pooler/dense", f"{theirs}pooler.dense")
        rules += mapping.linear(f"{head}/out", "cls.seq_relationship")
    elif ending not in (MASKED, BARE, kind.decoder):
        rules += task_head(ending, kind, theirs)
    constants = {}
    if not config.type_vocab_size:
        constants[f"{theirs}embeddings.token_type_embeddings.weight"] = np.zeros(
            (1, config.d_model), np.float32
        )
    if ending == BARE:
        constants |= fresh_pooler(config)
    # Older files have buffers, and copies of tied weights.
    buffers = ("embeddings.position_ids", "embeddings.token_type_ids")
    unused = (*buffers, *(kind.prefix + name for name in buffers), kind.mlm["decoder"])
    return Names(rules, prefix=kind.prefix, constants=constants, unused=unused)


def halves(model: Any, params: Any) -> dict[str, tuple[nnx.Module, Any]] | None:
    """A SpanBERT without its boundary head, for which there is no class."""
    if type(model) is not spanbert.SpanBert:
        return None
    fields = dataclasses.fields(bert.Config)
    config = bert.Config(**{field.name: getattr(model.config, field.name) for field in fields})
    plain = nnx.eval_shape(lambda: bert.Bert(config, rngs=nnx.Rngs(0)))
    return {"": (plain, {name: part for name, part in params.items() if name != "boundary"})}


def body(config: bert.Config, *, decoder: str, trunk: str = "trunk/") -> list[Rule]:
    """Rules for a BERT's encoder; `decoder` is the name of a copy of the token table in a head.

    `trunk` is the path of our layers.
    """
    rules = [
        Rule("embedding/tokens/table", "embeddings.word_embeddings.weight", aliases=(decoder,)),
        Rule("embedding/positions", "embeddings.position_embeddings.weight"),
        *mapping.norm("embedding/norm", "embeddings.LayerNorm"),
    ]
    if config.type_vocab_size:
        rules.append(Rule("embedding/types", "embeddings.token_type_embeddings.weight"))
    return rules + layers(f"{trunk}stack", "encoder")


def layers(ours: str, theirs: str) -> list[Rule]:
    """Rules for a stack of layers."""
    rules: list[Rule] = []
    for our, their in _LAYER.items():
        rules += mapping.linear(f"{ours}/layers/{our}", f"{theirs}.layer.{{i}}.{their}")
    for our, their in _NORMS.items():
        rules += mapping.norm(f"{ours}/layers/{our}", f"{theirs}.layer.{{i}}.{their}")
    return rules


def task_head(ending: str, kind: Kind, theirs: str) -> list[Rule]:
    """Rules for the head that the end of a class's name means; `theirs` is before a body's."""
    if ending == head_classes.SPANS:
        return mapping.linear("head/out", "qa_outputs")
    if ending == head_classes.TAGS:
        return mapping.linear("head/out", "classifier")
    if ending == head_classes.CLASSES and kind.roberta:
        dense = mapping.linear("head/pooler/dense", "classifier.dense")
        return dense + mapping.linear("head/out", "classifier.out_proj")
    pooler = mapping.linear("head/pooler/dense", f"{theirs}pooler.dense")
    if ending == head_classes.BODY:
        return pooler
    return pooler + mapping.linear("head/out", "classifier")


def fresh_pooler(config: standard_parts.Config, prefix: str = "") -> dict[str, np.ndarray]:
    """The weights that transformers would draw, with a warning, for a file without a pooler.

    `prefix` is before their names.
    """
    size = config.d_model
    kernel = np.random.default_rng(0).normal(0, config.init_std, (size, size))
    return {
        f"{prefix}pooler.dense.weight": kernel.astype(np.float32),
        f"{prefix}pooler.dense.bias": np.zeros(size, np.float32),
    }


def _config(config: Mapping[str, Any], kind: Kind, *, sentence_head: bool) -> bert.Config:
    unsupported_settings.check(config, unsupported_settings.ENCODER)
    return bert.Config(**fields(config, kind), sentence_head=sentence_head)


def _decoder_config(config: Mapping[str, Any], kind: Kind) -> bert_decoder.Config:
    unsupported_settings.check(config, unsupported_settings.DECODER)
    check_activation(kind, config.get("hidden_act", "gelu"))
    return bert_decoder.Config(**fields(config, kind))


def fields(config: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """The fields of our configuration that all kinds have."""
    pad = config.get("pad_token_id")
    return {
        "vocab_size": config.get("vocab_size", kind.vocab_size),
        **{ours: config.get(*theirs) for ours, theirs in SETTINGS.items()},
        "activation": activation_names.read(config.get("hidden_act", "gelu")),
        "padding_position": (kind.pad_id if pad is None else pad) if kind.roberta else None,
    }


def check_activation(kind: Kind, name: str) -> None:
    """Raises ValueError where a head for masked tokens would have another activation."""
    if kind.roberta and name != "gelu":
        raise ValueError(
            f"this {kind.classes} has the activation {name!r}, but at Hugging Face its head for "
            "masked tokens has gelu in any case: only gelu is read and written"
        )


def _is_ours(model: Any) -> bool:
    """Other families contain parts of this one, with their own configurations."""
    configs = (bert.Config, spanbert.Config)
    if isinstance(model, FineTuned):
        return type(model.body) is bert.Encoder and type(model.config) in configs
    return type(model) in (bert.Bert, spanbert.SpanBert, bert_decoder.BertDecoder)


def _kind(model: Any) -> Kind:
    return _BERT if model.config.padding_position is None else ROBERTA


def ending_of(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, bert.Bert):
        return MASKED if model.sentence is None else _PRETRAINED
    if isinstance(model, bert_decoder.BertDecoder):
        return _kind(model).decoder or ""
    if model.head is None:
        return BARE
    if isinstance(model.head, label_heads.PooledState):
        return head_classes.BODY
    if model.label_loss.form == "neighbours":
        return _PAIRS
    return head_classes.ending_of(model)


def _of_head(model: Any) -> dict[str, Any]:
    if ending_of(model) not in (head_classes.CLASSES, head_classes.TAGS, head_classes.CHOICES):
        return {}
    of_tokens = isinstance(model.head, label_heads.TokenHead)
    rate = model.head.dropout_rate if of_tokens else model.head.dropout_rates[1]
    return {"classifier_dropout": rate, **head_classes.settings(model)}
