"""T5's preprocessors, told by module and name, and the objectives that follow the same law.

Some things differ from T5. A document is read whole: T5 reads a random part of one that has more
than 65,536 tokens. All documents are concatenated: T5 concatenates 128 at a time, so one sample of
128 documents is short. Where T5 puts EOS between documents, a vocabulary that has `<eod>` puts
that. Feature lengths that would cut most targets are refused: T5 cuts them. And the examples of a
prefix language model have a row each: T5 packs two that fill a row.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import gin

from t5x_like.core.protocols.data import Objective
from t5x_like.data.seqio.step_calls import call_of, defaults, step_name
from t5x_like.objectives.denoising import Denoising, SeparatedDenoising
from t5x_like.objectives.lm import EndedLanguageModeling, LanguageModeling
from t5x_like.objectives.noise.corruptions import (
    CleanTokens,
    CleanToSentinels,
    MaskNoise,
    NoiseTokens,
    NoiseToSentinels,
    Original,
    ShuffleNoise,
)
from t5x_like.objectives.noise.noise_masks import IidNoise, SuffixNoise
from t5x_like.objectives.span_corruption import (
    DropSpans,
    SpanCorruption,
    SplitSpanCorruption,
)

if TYPE_CHECKING:
    import seqio

MODULE = "t5.data.preprocessors"
_LONG = 65536
_ONLY: Mapping[str, Mapping[str, Any]] = {
    "concatenate_and_split_to_fixed_length": {"feature_key": "targets"},
    "denoise": {"input_feature_key": "inputs", "passthrough_feature_keys": None},
    "noise_token_to_random_token": {"num_reserved_tokens": 3},
    "pack_prefix_lm_decoder_only": {"loss_on_targets_only": True, "pad_id": 0},
    "pack_prefix_lm_encoder_decoder": {"pad_id": 0},
    "random_spans_noise_mask": {"random_roll": False},
    "reduce_concat_tokens": {"feature_key": "targets"},
    "select_random_chunk": {
        "additional_feature_keys": None,
        "feature_key": "targets",
        "min_length": None,
        "passthrough_feature_keys": None,
        "uniform_random_start": False,
    },
    "sentinel_id": {"return_value": None},
    "span_corruption": {
        "input_feature_key": "inputs",
        "passthrough_feature_keys": None,
        "reserved_for_packing": None,
    },
    "split_tokens": {
        "additional_feature_keys": None,
        "feature_key": "targets",
        "min_tokens_per_segment": None,
        "passthrough_feature_keys": None,
    },
}
"""The values of T5's arguments that the objectives here have; any value is good for the others."""

_INPUTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "drop_noise_tokens": lambda _: CleanTokens(),
    "noise_span_to_unique_sentinel": lambda _: NoiseToSentinels(),
    "noise_token_to_random_token": lambda _: MaskNoise(random=1.0),
    "noise_token_to_random_token_or_sentinel": lambda arguments: MaskNoise(
        random=arguments["random_prob"]
    ),
    "noise_token_to_sentinel": lambda _: MaskNoise(),
    "permute_noise_tokens": lambda _: ShuffleNoise(),
}
_TARGETS: Mapping[str, Callable[[], Any]] = {
    "drop_nonnoise_tokens": NoiseTokens,
    "nonnoise_span_to_unique_sentinel": CleanToSentinels,
    "None": Original,
}
_SPANS = {
    ("noise_span_to_unique_sentinel", "nonnoise_span_to_unique_sentinel", True): SpanCorruption,
    ("noise_span_to_unique_sentinel", "nonnoise_span_to_unique_sentinel", False): (
        SplitSpanCorruption
    ),
    ("drop_noise_tokens", "drop_nonnoise_tokens", True): DropSpans,
}
_PREFIX = ("drop_nonnoise_tokens", "drop_noise_tokens")
_ROOM = 1.05
"""The targets that must fit, as a multiple of their mean length; T5's own lengths have 1.06 up."""

Features = Mapping[str, "seqio.Feature"]


class NoCounterpartError(ValueError):
    """One of T5's preprocessors does what no objective here does; the message names both."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The objective of one or several steps.

    Attributes:
      objective: makes the examples that the steps make.
      steps: the number of steps.
      inputs_length: the length of inputs that gin's configuration gives to the steps, if any.
    """

    objective: Objective
    steps: int = 1
    inputs_length: int | None = None


def find(steps: Sequence[Callable], features: Features) -> Found | None:
    """The objective that follows the law of the last of `steps`; None if these are none of T5's.

    Args:
      steps: steps of a task.
      features: the task's output features.

    Raises:
      NoCounterpartError: the last steps are an objective of T5 that no objective here matches.
    """
    make: Callable[[Mapping[str, Any], Features], Found | None]
    match [_name(step) for step in steps[-2:]]:
        case ["targets_for_prefix_lm_objective", str(name)]:
            make = _packed_prefix_lm
        case [*_, str(name)] if name in _OBJECTIVES:
            make = _OBJECTIVES[name]
        case _:
            return None
    try:
        return make(_arguments(steps[-1]), features)
    except NoCounterpartError:
        raise
    except (RuntimeError, ValueError) as error:  # the first of gin, which lacks a value
        raise NoCounterpartError(f"{MODULE}.{name}: {error}") from error


def _name(step: Callable) -> str | None:
    """The name of one of T5's functions; None for any other step."""
    function = call_of(step)[0]
    known = getattr(function, "__module__", None) == MODULE
    return getattr(function, "__qualname__", None) if known else None


def _arguments(step: Callable) -> dict[str, Any]:
    """The arguments of one of T5's functions, where SeqIO does not pass them.

    Raises:
      NoCounterpartError: a value is not the one in `_ONLY`.
    """
    function, bound = call_of(step)
    arguments = {**defaults(function), **bound}
    for argument, known in _ONLY.get(function.__qualname__, {}).items():
        if arguments[argument] != known:
            _refuse(f"{function.__qualname__} with {argument}={arguments[argument]!r}")
    return arguments


def _value(call: str, arguments: Mapping[str, Any], argument: str) -> Any:
    """An argument that T5 takes from gin, and that has no default."""
    if arguments[argument] is gin.REQUIRED:
        _refuse(f"{call} without {argument}")
    return arguments[argument]


def _check(*names: str) -> None:
    """Checks what gin binds to functions of T5 that another one calls."""
    for name in names:
        _arguments(getattr(sys.modules[MODULE], name))


def _check_eos(features: Features, name: str) -> None:
    """T5 leaves room for an end of sequence where the feature takes one; all objectives here do."""
    if name not in features or not features[name].add_eos:
        _refuse(f"* where output feature {name!r} takes no EOS")


def _refuse(what: str) -> NoReturn:
    raise NoCounterpartError(f"{MODULE}.{what}, which no objective here does")


def _span_corruption(arguments: Mapping[str, Any], features: Features) -> Found:
    _check("select_random_chunk", "split_tokens", "random_spans_noise_mask", "sentinel_id")
    kind = SpanCorruption if arguments["merge_examples_to_reduce_padding"] else SplitSpanCorruption
    return Found(kind(arguments["noise_density"], arguments["mean_noise_span_length"]))


def _iid_denoising(arguments: Mapping[str, Any], features: Features) -> Found:
    _check("select_random_chunk", "split_tokens", "sentinel_id")
    _check_eos(features, "inputs")
    return Found(_with_room(Denoising(IidNoise(), NoiseToSentinels(), CleanToSentinels())))


def _with_room(denoising: Denoising) -> Denoising:
    return dataclasses.replace(denoising, targets_share=min(1.0, _ROOM * denoising.mean_share))


def _prefix_lm(arguments: Mapping[str, Any], features: Features) -> Found:
    _check("select_random_chunk", "split_tokens")
    _check_eos(features, "inputs")
    noise = SuffixNoise(arguments["noise_density"])
    return Found(Denoising(noise, CleanTokens(), NoiseTokens(), concatenate=False))


def _packed_prefix_lm(arguments: Mapping[str, Any], features: Features) -> Found:
    _check("select_random_chunk", "split_tokens")
    _check_eos(features, "targets")
    return Found(SeparatedDenoising(SuffixNoise(0.5), CleanTokens(), NoiseTokens()), steps=2)


def _full_lm(arguments: Mapping[str, Any], features: Features) -> Found:
    _check("select_random_chunk", "split_tokens")
    _check_eos(features, "targets")
    return Found(LanguageModeling())


def _unsupervised(arguments: Mapping[str, Any], features: Features) -> Found | None:
    """The objective of the functions that gin binds; None where it binds none, as they do nothing.

    T5 ships such bindings, in files such as `objectives/span_3_15_u_u.gin`.
    """
    stages = arguments["preprocessors"]
    if not stages:
        return None
    names = [_name(stage) for stage in stages]
    if names[0] in _OBJECTIVES and len(names) == 1:
        return find(stages, features)
    calls = {name: _arguments(stage) for name, stage in zip(names, stages, strict=True) if name}
    chunk = calls.get("select_random_chunk")
    if chunk is not None and (chunk["max_length"] or 0) < _LONG:
        _refuse(f"select_random_chunk with max_length={chunk['max_length']}")
    rest = names[chunk is not None :]
    concatenate = rest[:1] == ["reduce_concat_tokens"]
    match rest[concatenate:]:
        case ["split_tokens_to_targets_length"] if concatenate:
            _check_eos(features, "targets")
            return Found(EndedLanguageModeling())
        case ["split_tokens_to_inputs_length", "denoise"]:
            _check_eos(features, "inputs")
            return _denoise(calls["denoise"], concatenate=concatenate)
        case ["split_tokens", "denoise"]:
            longest = _value("split_tokens", calls["split_tokens"], "max_tokens_per_segment")
            return _denoise(calls["denoise"], concatenate=concatenate, longest=longest)
    _refuse(f"unsupervised with preprocessors {', '.join(map(step_name, stages))}")


def _denoise(
    arguments: Mapping[str, Any], *, concatenate: bool, longest: int | None = None
) -> Found:
    """The objective of T5's `denoise`, for samples of `longest` tokens; None for full inputs."""
    _check("sentinel_id", "noise_token_to_random_token", "split_tokens")
    parts = [
        _value("denoise", arguments, f"{name}_fn") for name in ("noise_mask", "inputs", "targets")
    ]
    names = [part if part is None else step_name(call_of(part)[0]) for part in parts]
    mask, inputs, targets = (str(name).removeprefix(f"{MODULE}.") for name in names)
    density = _value("denoise", arguments, "noise_density")
    match mask:
        case "random_spans_noise_mask" if longest and (inputs, targets, concatenate) in _SPANS:
            mean = _arguments(parts[0])["mean_noise_span_length"]
            spans = _SPANS[inputs, targets, concatenate](density, mean)
            return Found(spans, inputs_length=_inputs_length(spans, longest))
        case "iid_noise_mask" if not longest and inputs in _INPUTS and targets in _TARGETS:
            corruption = _INPUTS[inputs](_arguments(parts[1]))
            denoising = Denoising(IidNoise(density), corruption, _TARGETS[targets]())
            return Found(_with_room(dataclasses.replace(denoising, concatenate=concatenate)))
        case "random_prefix_noise_mask" if not longest and (inputs, targets) == _PREFIX:
            noise = SuffixNoise(density)
            return Found(Denoising(noise, CleanTokens(), NoiseTokens(), concatenate=concatenate))
    _refuse(
        f"denoise with {mask}, {inputs} and {targets} after "
        f"{'split_tokens' if longest else 'split_tokens_to_inputs_length'}"
    )


def _inputs_length(spans: SpanCorruption, longest: int) -> int:
    """The length of inputs that samples of `longest` tokens fill, which T5 takes from gin."""
    helper = _arguments(sys.modules[MODULE].random_spans_helper)
    length: int = _value("random_spans_helper", helper, "inputs_length")
    if spans.geometry({"inputs": length, "targets": 2 * length}).length != longest:
        _refuse(f"split_tokens with max_tokens_per_segment={longest} for inputs of {length}")
    return length


_OBJECTIVES = {
    "full_lm": _full_lm,
    "iid_denoising": _iid_denoising,
    "prefix_lm": _prefix_lm,
    "span_corruption": _span_corruption,
    "unsupervised": _unsupervised,
}
