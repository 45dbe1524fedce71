"""NumPy twins of the SeqIO steps that run after the cache: appending EOS, and trimming.

They work on whole features of one example, [n] each, and touch no feature but those named: neither
numbers without axes nor features whose length nobody limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

Features = Mapping[str, np.ndarray]
Lengths = Mapping[str, int | None]


def append_eos(features: Features, lengths: Lengths, *, eos: Mapping[str, int]) -> Features:
    """Twin of `seqio.preprocessors.append_eos`: the last token may be trimmed off again later."""
    del lengths  # the SeqIO step does not look at them either
    return {
        name: _appended(tokens, eos[name]) if name in eos else tokens
        for name, tokens in features.items()
    }


def _appended(tokens: np.ndarray, eos: int) -> np.ndarray:
    longer = np.empty(len(tokens) + 1, tokens.dtype)  # np.append takes five times as long
    longer[:-1] = tokens
    longer[-1] = eos
    return longer


def append_eos_after_trim(
    features: Features, lengths: Lengths, *, eos: Mapping[str, int]
) -> Features:
    """Twin of `seqio.preprocessors.append_eos_after_trim`: makes room, so that EOS stays."""
    limits = {name: lengths.get(name) for name in eos}
    room = {name: limit - 1 for name, limit in limits.items() if limit is not None}
    return append_eos(trim(features, room, eos=eos), lengths, eos=eos)


def trim(features: Features, lengths: Lengths, *, eos: Mapping[str, int]) -> Features:
    """Twin of `seqio.utils.trim_dataset`: cuts the right end, EOS or not."""
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
    """What `seqio.Task.get_dataset` does between its cache and its output.

    Args:
      names: steps of `STEPS`, in order; SeqIO's final trimming follows by itself.
      features: [n] by name, or numbers without axes.
      lengths: the longest each feature may become; None or absent for no limit.
      eos: the id to append to each feature that takes one (`add_eos` of its `seqio.Feature`).

    Raises:
      ValueError: a name that is not in `STEPS`.
    """
    for name in (*names, "trim"):
        if name not in STEPS:
            raise ValueError(f"no post-cache step {name!r}; there are {', '.join(STEPS)}")
        features = STEPS[name](features, lengths, eos=eos)
    return dict(features)
