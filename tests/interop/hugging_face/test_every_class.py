"""Every class that transformers has for a family can be read, from its default configuration."""

import parity
import pytest

from t5x_like.interop.hugging_face import families

pytestmark = pytest.mark.slow

DEBERTA = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"}
OF_MODELS = {
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA
    | {"position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
}
"""What all published models of a family have, where it is not transformers' default."""


@pytest.mark.parametrize("model_type", parity.MODEL_TYPES)
def test_every_class_is_read(model_type):
    config, names = parity.classes_of(model_type)
    given = config.to_dict() | OF_MODELS.get(model_type, {})
    for name in names:
        families.of_config(given).from_hf(given, name)
