"""NumPy twins of the SeqIO steps that run after the cache: appending EOS, and trimming.

The steps work on whole features of one example, [n] each. They change only the features that `eos`
or `lengths` names, and so no numbers without axes and no features without a maximum length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

Features = Mapping[str, np.ndarray]
Lengths = Mapping[str, int | None]


def append_eos(features: Features, lengths: Lengths, *, eos: Mapping[str, int]) -> Features:
    """The twin of `seqio.preprocessors.append_eos`. A later step may trim off the EOS."""
    del lengths  # the SeqIO step does not use them either
    return {
        name: _append(tokens, eos[name]) if name in eos else tokens
        for name, tokens in features.items()
    }


def _append(tokens: np.ndarray, eos: int) -> np.ndarray:
    longer = np.empty(len(tokens) + 1, tokens.dtype)  # np.append takes five times as long
    longer[:-1] = tokens
    longer[-1] = eos
    return longer


def append_eos_after_trim(
    features: Features, lengths: Lengths, *, eos: Mapping[str, int]
) -> Features:
    """The twin of `seqio.preprocessors.append_eos_after_trim`, which makes room for the EOS."""
    limits = {name: lengths.get(name) for name in eos}
    room = {name: limit - 1 for name, limit in limits.items() if limit is not None}
    return append_eos(trim(features, room, eos=eos), lengths, eos=eos)


def trim(features: Features, lengths: Lengths, *, eos: Mapping[str, int]) -> Features:
    """The twin of `seqio.utils.trim_dataset`, which cuts the right end, even an EOS."""
    del eos
    return {
        name: values if (limit := lengths.get(name)) is None else values[:limit]
        for name, values in features.items()
    }


STEPS: Mapping[str, Callable[..., Features]] = {
    "append_eos": append_eos,
    "append_eos_after_trim": append_eos_after_trim,
    "trim": trim,
}


def apply(
    names: Iterable[str], features: Features, *, lengths: Lengths, eos: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """The features after the steps that `seqio.Task.get_dataset` runs after its cache.

    Args:
      names: steps of `STEPS`, in order; SeqIO's final trimming is always added.
      features: arrays [n] by name, or numbers without axes.
      lengths: the maximum length of each feature; None or absent for no maximum.
      eos: the id to append to each feature that takes one (`add_eos` of its `seqio.Feature`).

    Raises:
      ValueError: a name is not in `STEPS`.
    """
    for name in (*names, "trim"):
        if name not in STEPS:
            raise ValueError(f"no post-cache step {name!r}; the steps are {', '.join(STEPS)}")
        features = STEPS[name](features, lengths, eos=eos)
    return dict(features)
