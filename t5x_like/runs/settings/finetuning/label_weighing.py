"""How labels count in the loss of a run that fine-tunes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from t5x_like.core.spelling import nearest
from t5x_like.interop.hugging_face import head_classes

if TYPE_CHECKING:
    from t5x_like.data.labelled.labelled_files import LabelledFiles


class Weighing(NamedTuple):
    """How labels count; None where each counts the same.

    Attributes:
      class_weights: "balanced", for n / (classes * rows of the class), or the weight of each class
        by its name; classes without one have 1.
      label_smoothing, focal_gamma: those of `WeighedClasses`.
    """

    class_weights: str | Mapping[str, float] | None = None
    label_smoothing: float | None = None
    focal_gamma: float | None = None


def weighed(
    make: functools.partial[Any], weighing: Weighing, files: LabelledFiles
) -> functools.partial[Any]:
    """The constructor of a `FineTuned` whose labels count as they shall.

    Raises:
      ValueError: there is nothing to weigh so, a class is not there, or a number is out of range.
    """
    given = {name: value for name, value in weighing._asdict().items() if value is not None}
    if not given:
        return make
    if files.kind not in ("classes", "tags"):
        raise ValueError(f"{' and '.join(given)} are for classes and tags, not for {files.kind}")
    if "class_weights" in given:
        given["class_weights"] = _class_weights(given["class_weights"], files.labels)
    return head_classes.weighed(make, **given)


def _class_weights(
    named: str | Mapping[str, float], counts: Mapping[str, int]
) -> tuple[float, ...]:
    """The weights of classes, in their order."""
    if named == "balanced":
        mean = sum(counts.values()) / len(counts)
        return tuple(mean / count for count in counts.values())
    if isinstance(named, str):
        raise ValueError(f"class_weights are 'balanced', or weights by name, not {named!r}")
    for name in named:
        if name not in counts:
            advice = nearest(name, counts, of="classes")
            raise ValueError(f"class_weights: there is no class {name!r}{advice}")
    return tuple(float(named.get(name, 1.0)) for name in counts)
