"""What a model card says opens a class is what transformers opens it with."""

import importlib

import parity  # noqa: F401  skips this file where there is no transformers
import pytest
import transformers

from t5x_like.interop.hugging_face import auto_classes

MODEL_TYPES = (
    *("bert", "roberta", "distilbert", "albert", "electra", "xlnet"),
    *("t5", "mt5", "umt5", "bart", "mbart", "gpt2", "openai-gpt"),
)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_named_class_opens_the_architecture(model_type):
    config = transformers.AutoConfig.for_model(model_type)
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    models = [
        name
        for name in module.__all__
        if issubclass(cls := getattr(module, name), transformers.PreTrainedModel)
        and "forward" in vars(cls)
    ]
    assert len(models) > 3
    for name in models:
        opener = auto_classes.opener(name).name
        if opener != name:
            mapping = getattr(transformers, opener)._model_mapping
            assert mapping[type(config)].__name__ == name
