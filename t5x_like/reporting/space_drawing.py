"""A picture of two spaces of word vectors, one mapped to the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from etils import epath

from t5x_like.core import whole_files


def plot(
    output: epath.PathLike, pairs: Sequence[tuple[str, str]], x_ND: np.ndarray, y_ND: np.ndarray
) -> None:
    """Draws pairs of words in a plane, each with a line between the two, as a PNG file.

    The plane is that of the two principal components of their vectors.

    Args:
      output: the file.
      pairs: words of the source and of the target.
      x_ND: the mapped vectors of the former.
      y_ND: the vectors of the latter.
    """
    from matplotlib.figure import Figure

    both = np.concatenate([x_ND, y_ND])
    centred = both - both.mean(axis=0)
    *_, axes_2D = np.linalg.svd(centred, full_matrices=False)
    one, other = np.split(centred @ axes_2D[:2].T, 2)
    figure = Figure(figsize=(10, 10), layout="constrained")
    axes = figure.add_subplot(1, 1, 1)
    for row, (points, label) in enumerate(((one, "source, mapped"), (other, "target"))):
        axes.plot(*points.T, "o", color=f"C{row}", label=label)
        for place, words in zip(points, pairs, strict=True):
            axes.annotate(
                words[row],
                place,
                xytext=(3, 3),
                textcoords="offset points",
                color=f"C{row}",
                fontsize=8,
                parse_math=False,
            )
    for ends in zip(one, other, strict=True):
        axes.plot(*np.transpose(ends), color="0.6", linewidth=0.8, zorder=0)
    axes.legend()
    path = epath.Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.output(path) as file:
        figure.savefig(file, format="png", dpi=120)
