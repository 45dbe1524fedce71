"""Every class that transformers has for a family can be read, from its default configuration."""

import parity
import pytest

from t5x_like.interop.hugging_face import families

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_type", parity.MODEL_TYPES)
def test_every_class_is_read(model_type):
    config, names = parity.classes_of(model_type)
    given = config.to_dict()
    for name in names:
        families.of_config(given).from_hf(given, name)
