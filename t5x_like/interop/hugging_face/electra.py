"""ELECTRA at Hugging Face: settings and names of weights; a joint model is saved as two."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from flax import nnx

from t5x_like.interop import mapping
from t5x_like.interop.hugging_face import bert, head_classes
from t5x_like.interop.hugging_face.configuration import activation_names, unsupported_settings
from t5x_like.interop.mapping import Names, Rule
from t5x_like.layers.basics import activations
from t5x_like.layers.heads import label_heads
from t5x_like.models import bert_decoder, electra
from t5x_like.models.bert import Config
from t5x_like.models.finetuned import FineTuned

MODEL_TYPES = ("electra",)

_PREFIX = "electra."
_DISCRIMINATOR = "ForPreTraining"
_GENERATOR = "ForMaskedLM"
_DECODER = "ForCausalLM"

# Our setting: its name in config.json, and Hugging Face's default.
_SETTINGS = {
    "vocab_size": ("vocab_size", 30522),
    "width": ("embedding_size", 128),
    "d_model": ("hidden_size", 256),
    "d_ff": ("intermediate_size", 1024),
    "num_heads": ("num_attention_heads", 4),
    "num_layers": ("num_hidden_layers", 12),
    "max_positions": ("max_position_embeddings", 512),
    "type_vocab_size": ("type_vocab_size", 2),
    "dropout_rate": ("hidden_dropout_prob", 0.1),
    "attention_dropout_rate": ("attention_probs_dropout_prob", 0.1),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
    "init_std": ("initializer_range", 0.02),
}
IDS = {"electra": {"pad_token_id": 0}}
# The only values that are read where there is a head for choices.
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
_LAST_DROPOUT = "summary_last_dropout"


def from_hf(config: Mapping[str, Any], architecture: str) -> functools.partial[Any]:
    """Makes a generator, a discriminator, or the body of either, with a task's head or without.

    Where `is_decoder` is not set, the class for decoders sees both sides: it is then a generator.

    Raises:
      ValueError: another head, or a setting that is not supported.
    """
    ending = architecture.removeprefix("Electra")
    if ending == _DECODER and config.get("is_decoder"):
        return functools.partial(bert_decoder.ElectraDecoder, _decoder_config(config))
    ours = _config(config)
    if ending == _DISCRIMINATOR:
        return functools.partial(electra.Discriminator, ours)
    if ending in (_GENERATOR, _DECODER):
        _check_generator(ours)
        return functools.partial(electra.Generator, ours)
    rate = config.get("classifier_dropout")
    rate = ours.dropout_rate if rate is None else rate
    rates = (rate, rate)
    if ending == head_classes.CHOICES:
        unsupported_settings.check(config, _SUMMARY)
        rates = (config.get("summary_first_dropout", 0.0), config.get(_LAST_DROPOUT, 0.1))
    made_with = head_classes.Heads(
        of_sequence=functools.partial(
            label_heads.SequenceHead,
            pool=label_heads.first,
            activation=activations.gelu,
            dropout_rates=rates,
        ),
        of_tokens=functools.partial(label_heads.TokenHead, dropout_rate=rate),
    )
    body = functools.partial(electra.Encoder, ours)
    constructor = head_classes.fine_tuned(ending, body, made_with=made_with, config=config)
    if constructor is None:
        raise ValueError(
            f"{architecture} is not read: it is not an ELECTRA with a head that we have"
        )
    return constructor


def to_hf(model: Any) -> dict[str, Any] | None:
    """config.json of a (possibly abstract) model; None if it is of another family.

    For a joint model it is the discriminator's; `halves` has both.

    Raises:
      ValueError: Hugging Face's configuration cannot express this one.
    """
    if isinstance(model, electra.Electra):
        return to_hf(model.discriminator) or {}
    if not _is_ours(model):
        return None
    config = model.config
    unsupported_settings.check_biases(config)
    decodes = isinstance(model, bert_decoder.ElectraDecoder)
    if decodes or isinstance(model, electra.Generator):
        _check_generator(config)
    if not config.type_vocab_size:
        raise ValueError(
            "bert.Config.type_vocab_size is 0, but Hugging Face's ELECTRA has token types: it "
            "cannot be exported"
        )
    return {
        "model_type": "electra",
        "architectures": [f"Electra{_ending(model)}"],
        **{theirs: getattr(config, ours) for ours, (theirs, _) in _SETTINGS.items()},
        "hidden_act": activation_names.name_of(config.activation),
        **({"is_decoder": True} if decodes else {}),
        **_of_head(model),
    }


def names(model: Any) -> Names:
    """The names of a model's weights in a file of its class."""
    config, ending = model.config, _ending(model)
    trunk = "" if ending == _DECODER else "trunk/"
    body = bert.body(config, decoder="generator_lm_head.weight", trunk=trunk)
    if config.width != config.d_model:
        body += mapping.linear(f"{trunk}project", "embeddings_project")
    beginning = "body/" if isinstance(model, FineTuned) else "encoder/"
    rules = mapping.under(
        body,
        ours="" if ending == _DECODER else beginning,
        theirs="" if ending == head_classes.BODY else _PREFIX,
    )
    unused = ("generator_lm_head.weight", f"{_PREFIX}embeddings.position_ids")
    return Names([*rules, *_head(ending)], prefix=_PREFIX, unused=unused)


def halves(model: Any, params: Any) -> dict[str, tuple[Any, Any]] | None:
    """`discriminator` and `generator`, each with a copy of what they share.

    A network that predicts tokens in a discriminator's place is saved like a generator, without
    the gate that copies.
    """
    if not isinstance(model, electra.Electra):
        return None
    joint = nnx.merge(nnx.graphdef(model), params)
    discriminator, generator = joint.discriminator, joint.whole_generator()
    if isinstance(discriminator, electra.Discriminator):
        parts: dict[str, tuple[Any, Any]] = {
            "discriminator": (discriminator, params["discriminator"])
        }
    else:
        config = discriminator.config
        plain = nnx.eval_shape(lambda: electra.Generator(config, rngs=nnx.Rngs(0)))
        plain_params = {name: params["discriminator"][name] for name in ("encoder", "mlm")}
        parts = {"discriminator": (plain, plain_params)}
    if generator is None:
        return parts
    return {**parts, "generator": (generator, nnx.to_pure_dict(nnx.state(generator)))}


def _head(ending: str) -> list[Rule]:
    if ending == _DISCRIMINATOR:
        dense = mapping.linear("head/dense", "discriminator_predictions.dense")
        return dense + mapping.linear("head/out", "discriminator_predictions.dense_prediction")
    if ending in (_GENERATOR, _DECODER):
        return [
            *mapping.linear("mlm/dense", "generator_predictions.dense"),
            *mapping.norm("mlm/norm", "generator_predictions.LayerNorm"),
            Rule("mlm/bias", "generator_lm_head.bias"),
        ]
    if ending == head_classes.CLASSES:
        dense = mapping.linear("head/pooler/dense", "classifier.dense")
        return dense + mapping.linear("head/out", "classifier.out_proj")
    if ending == head_classes.CHOICES:
        dense = mapping.linear("head/pooler/dense", "sequence_summary.summary")
        return dense + mapping.linear("head/out", "classifier")
    if ending == head_classes.TAGS:
        return mapping.linear("head/out", "classifier")
    return mapping.linear("head/out", "qa_outputs") if ending == head_classes.SPANS else []


def _config(config: Mapping[str, Any]) -> Config:
    unsupported_settings.check(config, unsupported_settings.ENCODER)
    return Config(**_fields(config), sentence_head=False)


def _decoder_config(config: Mapping[str, Any]) -> bert_decoder.Config:
    unsupported_settings.check(config, unsupported_settings.DECODER)
    ours = bert_decoder.Config(**_fields(config))
    _check_generator(ours)
    return ours


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    ours = {name: config.get(*theirs) for name, theirs in _SETTINGS.items()}
    ours["d_embedding"] = ours.pop("width")
    return {**ours, "activation": activation_names.read(config.get("hidden_act", "gelu"))}


def _check_generator(config: Config) -> None:
    name = activation_names.name_of(config.activation)
    if name != "gelu":
        raise ValueError(
            f"this generator has the activation {name!r}, but the head of Hugging Face's always "
            "has gelu: only gelu can be read and exported"
        )


def _is_ours(model: Any) -> bool:
    if isinstance(model, FineTuned):
        return isinstance(model.body, electra.Encoder)
    ours = (electra.Discriminator, electra.Generator, bert_decoder.ElectraDecoder)
    return isinstance(model, ours)


def _ending(model: Any) -> str:
    """The end of the model's class name."""
    if isinstance(model, FineTuned):
        return head_classes.ending_of(model)
    if isinstance(model, bert_decoder.ElectraDecoder):
        return _DECODER
    return _DISCRIMINATOR if isinstance(model, electra.Discriminator) else _GENERATOR


def _of_head(model: Any) -> dict[str, Any]:
    ending = _ending(model)
    if ending == head_classes.CHOICES:
        first, last = model.head.dropout_rates
        return {**_SUMMARY, "summary_first_dropout": first, _LAST_DROPOUT: last}
    if ending == head_classes.TAGS:
        return {"classifier_dropout": model.head.dropout_rate, **head_classes.settings(model)}
    if ending == head_classes.CLASSES:
        return {"classifier_dropout": model.head.dropout_rates[0], **head_classes.settings(model)}
    return {}
