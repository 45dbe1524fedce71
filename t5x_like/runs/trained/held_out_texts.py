"""Held-out texts of a run with blanks, which its own objective has made, and the truth."""

from __future__ import annotations

from t5x_like.inference.blanked_texts import Blanked, blanked
from t5x_like.inference.fill_blanks import has_blank
from t5x_like.runs.run import Run
from t5x_like.runs.trained import samples


def held_out_texts(run: Run, n: int) -> list[Blanked]:
    """At most `n` short texts of held-out rows, spread over the split.

    Rows are left out in which the objective hides nothing, those whose own text has a written
    blank and, of an objective that makes blanks in some rows only, the others. The tasks of a
    mixture take turns.

    Raises:
      ValueError: nothing is held out, nothing is hidden in any of the rows, or the text is not
        there.
      OSError: a cache cannot be read.
    """
    texts_of: list[list[Blanked]] = []
    shares = []
    for examples, share in samples.held_out(run, run.data.open(), n, rows=2):
        # Further rows are looked at in place of those that are left out.
        rows = (examples.features(place)[0] for place in samples.spread(len(examples), 8 * share))
        texts = (blanked(row, examples.task.vocabulary) for row in rows)
        texts_of.append([text for text in texts if text is not None and not has_blank(text.truth)])
        shares.append(share)
    if any(has_blank(text.text) for some in texts_of for text in some):
        texts_of = [[text for text in some if has_blank(text.text)] for some in texts_of]
    if not any(texts_of):
        raise ValueError("no held-out row of this run has anything hidden in it")
    return [
        some[place]
        for some, share in zip(texts_of, shares, strict=True)
        for place in samples.spread(len(some), share)
    ]
