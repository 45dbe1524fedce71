"""A picture of two spaces of word vectors, one mapped to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from etils import epath

from t5x_like.core import whole_files

if TYPE_CHECKING:
    from t5x_like.evaluation.spaces.comparison import Comparison


def plot(of: Comparison, output: epath.PathLike, *, words: int = 40) -> None:
    """Draws asked words and their translations in a plane, each pair with a line, as a PNG file.

    The plane is that of the two principal components of these vectors.

    Args:
      of: the two spaces.
      output: the file.
      words: how many words of the source are shown, those with the first rows.
    """
    from matplotlib.figure import Figure

    _, first = np.unique(of.test.rows[:, 0], return_index=True)
    pairs = of.test.rows[first[:words]]
    both = np.concatenate([of.source.vectors[pairs[:, 0]], of.target.vectors[pairs[:, 1]]])
    centred = both - both.mean(axis=0)
    *_, axes_2D = np.linalg.svd(centred, full_matrices=False)
    one, other = np.split(centred @ axes_2D[:2].T, 2)
    figure = Figure(figsize=(10, 10), layout="constrained")
    axes = figure.add_subplot(1, 1, 1)
    for space, points, colour, row in (
        (of.source, one, "C0", 0),
        (of.target, other, "C1", 1),
    ):
        axes.plot(*points.T, "o", color=colour, label=("source, mapped", "target")[row])
        for (x, y), n in zip(points, pairs[:, row], strict=True):
            axes.annotate(
                space.words[n], (x, y), color=colour, fontsize=8, parse_math=False,
                xytext=(3, 3), textcoords="offset points",
            )  # fmt: skip
    for ends in zip(one, other, strict=True):
        axes.plot(*np.transpose(ends), color="0.6", linewidth=0.8, zorder=0)
    axes.legend()
    path = epath.Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.output(path) as file:
        figure.savefig(file, format="png", dpi=120)
