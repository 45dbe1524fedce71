from __future__ import annotations

import dataclasses

import pytest

from t5x_like.objectives.mlm import MaskedLM
from t5x_like.objectives.parts.probabilities import check_share


@dataclasses.dataclass(frozen=True)
class Noise:
    share: float


@pytest.mark.parametrize("share", [0, 1, 0.5])
def test_a_share_becomes_a_float(share: float) -> None:
    noise = Noise(share)
    check_share(noise, "share")
    assert repr(noise) == f"Noise(share={float(share)})"


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="Noise: share is between 0 and 1, got"):
        check_share(Noise(share), "share")


def test_none_may_be_refused() -> None:
    with pytest.raises(ValueError, match=r"MaskedLM: masked_rate is a share above 0 .*, got 0\.0"):
        MaskedLM(masked_rate=0)
