import dataclasses
from typing import ClassVar

import pytest

from t5x_like.layers.stacks.transformer_config import Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Transformer):
    """A family for this file."""

    vocab_size: int = 10
    d_model: int = 12
    d_ff: int = 24
    num_heads: int = 3
    num_layers: int = 2
    type_vocab_size: int = 2
    attention_dropout_rate: float = 0.0
    tied: bool = False
    max_positions: int | None = None
    pad_id: int | None = None
    z_loss: float = 0.0
    label_smoothing: float = 0.0

    may_be_zero: ClassVar = ("scan_unroll", "type_vocab_size")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_ff": None}, r"\.d_ff must be a whole number, got None"),
        ({"num_layers": True}, r"\.num_layers must be a whole number, got True"),
        ({"d_model": 12.0}, r"\.d_model must be a whole number, got 12\.0"),
        ({"z_loss": "1"}, r"\.z_loss must be a number, got '1'"),
        ({"tied": None}, r"\.tied must be True or False, got None"),
        ({"vocab_size": 0}, r"\.vocab_size must be at least 1, got 0"),
        ({"num_layers": -2}, r"\.num_layers must be at least 1, got -2"),
        ({"scan_unroll": -1}, r"\.scan_unroll must be at least 0, got -1"),
        ({"type_vocab_size": -1}, r"\.type_vocab_size must be at least 0, got -1"),
        ({"max_positions": 0}, r"\.max_positions must be at least 1, got 0"),
        ({"dropout_rate": 1.0}, r"\.dropout_rate must be in \[0, 1\), got 1.0"),
        ({"dropout_rate": 1}, r"\.dropout_rate must be in \[0, 1\), got 1"),
        ({"attention_dropout_rate": -0.1}, r"\.attention_dropout_rate must be in \[0, 1\)"),
        ({"label_smoothing": 1.0}, r"\.label_smoothing must be in \[0, 1\), got 1.0"),
        ({"z_loss": -1e-4}, r"\.z_loss must be at least 0, got -0.0001"),
        ({"pad_id": 10}, r"\.pad_id must be below vocab_size=10, got 10"),
        ({"num_heads": 5}, r"\.num_heads=5 does not divide d_model=12"),
    ],
)
def test_impossible_values_are_refused_with_family_field_and_value(changes, message):
    with pytest.raises(ValueError, match=r"^test_transformer_config\.Config" + message):
        Config(**changes)


def test_what_may_be_zero_or_absent_is_taken():
    Config(scan_unroll=0, type_vocab_size=0, max_positions=None, tied=False, dropout_rate=0)
    Config(z_loss=0, label_smoothing=0, pad_id=9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnWidth(Config):
    d_kv: int = 7


def test_heads_share_the_width_evenly_unless_theirs_is_given():
    assert Config().d_kv == 4
    assert OwnWidth(num_heads=5).d_kv == 7


def test_fields_are_given_by_name_and_never_change():
    with pytest.raises(TypeError):
        Config(10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().d_model = 3
