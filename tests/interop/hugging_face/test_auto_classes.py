"""What a model card says opens a class is what transformers opens it with."""

import parity
import pytest
import transformers

from t5x_like.interop.hugging_face.configuration import auto_classes


@pytest.mark.slow
@pytest.mark.parametrize("model_type", parity.MODEL_TYPES)
def test_the_named_class_opens_the_architecture(model_type):
    config, names = parity.classes_of(model_type)
    for name in names:
        opener = auto_classes.opener(name).name
        if opener != name:
            mapping = getattr(transformers, opener)._model_mapping
            assert mapping[type(config)].__name__ == name
