"""Every class that transformers has for a family can be read, from its default configuration."""

import importlib

import parity  # noqa: F401  skips this file where there is no transformers
import pytest
import transformers

from t5x_like.interop.hugging_face import families

MODEL_TYPES = (
    *("bert", "roberta", "distilbert", "albert", "electra", "xlnet"),
    *("t5", "mt5", "umt5", "bart", "mbart", "gpt2", "openai-gpt"),
)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_class_is_read(model_type):
    config = transformers.AutoConfig.for_model(model_type)
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    # Neither layers nor base classes.
    names = [
        name
        for name in module.__all__
        if issubclass(cls := getattr(module, name), transformers.PreTrainedModel)
        and "forward" in vars(cls)
    ]
    assert len(names) > 3
    given = config.to_dict()
    for name in names:
        families.of_config(given).from_hf(given, name)
