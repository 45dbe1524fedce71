"""Which of T5's preprocessors are known, and what is said of others; functions stand in for T5's.

`test_t5_package` compares with T5 itself.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import gin
import pytest
import seqio

from t5x_like.data.seqio import t5_steps
from t5x_like.objectives.span_corruption import SpanCorruption, SplitSpanCorruption

BYTES = seqio.Feature(seqio.ByteVocabulary(extra_ids=100))
FEATURES = {"inputs": BYTES, "targets": BYTES}


def span_corruption(
    dataset: Any,
    sequence_length: Any,
    output_features: Any,
    mean_noise_span_length: float = 3.0,
    noise_density: float = 0.15,
    input_feature_key: str = "inputs",
    merge_examples_to_reduce_padding: bool = True,
    reserved_for_packing: int | None = None,
    passthrough_feature_keys: Any = None,
) -> Any: ...


def select_random_chunk(
    dataset: Any,
    additional_feature_keys: Any = None,
    feature_key: str = "targets",
    min_length: int | None = None,
    passthrough_feature_keys: Any = None,
    uniform_random_start: bool = False,
) -> Any: ...


def split_tokens(
    dataset: Any,
    min_tokens_per_segment: int | None = None,
    feature_key: str = "targets",
    additional_feature_keys: Any = None,
    passthrough_feature_keys: Any = None,
) -> Any: ...


def random_spans_noise_mask(length: int, random_roll: bool = False) -> Any: ...


def sentinel_id(vocabulary: Any, return_value: int | None = None) -> Any: ...


CALLED = (select_random_chunk, split_tokens, random_spans_noise_mask, sentinel_id)


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module in place of T5's, whose functions gin knows under other names than T5's."""
    module = types.ModuleType(t5_steps.MODULE)
    for function in (span_corruption, *CALLED):
        monkeypatch.setattr(function, "__module__", t5_steps.MODULE)
        setattr(module, function.__name__, configurable(function))
    monkeypatch.setitem(sys.modules, t5_steps.MODULE, module)
    yield
    gin.clear_config()


@functools.cache
def configurable(function: Callable) -> Callable:
    return gin.external_configurable(function, module="standing.in")


def objective(step: Callable) -> Any:
    found = t5_steps.find([step], FEATURES)
    return found and found.objective


def test_arguments_come_from_partial_applications_and_from_gin() -> None:
    assert objective(span_corruption) == SpanCorruption()
    step = functools.partial(configurable(span_corruption), noise_density=0.5)
    assert objective(step) == SpanCorruption(0.5)
    gin.parse_config("standing.in.span_corruption.mean_noise_span_length = 20")
    gin.parse_config("standing.in.span_corruption.noise_density = 0.3")
    assert objective(step) == SpanCorruption(0.5, 20)
    assert objective(configurable(span_corruption)) == SpanCorruption(0.3, 20)
    assert objective(span_corruption) == SpanCorruption()
    apart = functools.partial(span_corruption, merge_examples_to_reduce_padding=False)
    assert objective(apart) == SplitSpanCorruption()


def test_other_functions_are_none_of_t5s() -> None:
    def prefix_lm(dataset: Any) -> Any: ...

    assert objective(prefix_lm) is None
    assert objective(seqio.preprocessors.append_eos) is None
    assert objective(split_tokens) is None
    assert t5_steps.find([], FEATURES) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"reserved_for_packing": 8}, "span_corruption with reserved_for_packing=8, which no obje"),
        ({"input_feature_key": "text"}, "span_corruption with input_feature_key='text'"),
        ({"noise_density": 1.5}, "span_corruption: .*noise_density is a share"),
    ],
)
def test_an_argument_without_an_objective_is_named(arguments: dict, said: str) -> None:
    with pytest.raises(t5_steps.NoCounterpartError, match=rf"t5[.]data[.]preprocessors[.]{said}"):
        objective(functools.partial(span_corruption, **arguments))


def test_so_is_what_gin_binds_to_a_function_that_t5_calls() -> None:
    gin.parse_config("standing.in.random_spans_noise_mask.random_roll = True")
    with pytest.raises(t5_steps.NoCounterpartError, match="noise_mask with random_roll=True"):
        objective(span_corruption)
