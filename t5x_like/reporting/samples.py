"""The part of a report that shows held-out rows and what the run's model answers to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.display import example_html, example_view
from t5x_like.reporting.markup import heading, table, text
from t5x_like.runs.trained import trained_run
from t5x_like.runs.trained.samples import (
    Continuation,
    Guesses,
    Marks,
    PhaseSamples,
    Sample,
    Writing,
    samples,
)

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary

_SUSPECTED = 0.5
_MOST = 400  # characters of a reason
_OWN = (ValueError, OSError, RuntimeError)
"""The errors whose message is a sentence."""


def about_samples(
    directory: str, n: int, *, modules: Collection[str] = (), allow_paths: bool = False
) -> list[str]:
    """Rows with the answers of the newest checkpoint, as HTML; or a sentence why there are none.

    Args:
      directory: the run's directory, which anybody may have written.
      n: the most rows of a phase.
      modules: modules that its configuration may name, as for `trained_run.load`.
      allow_paths: whether text that its configuration names may be read, as there.
    """
    try:
        trained = trained_run.load(directory, modules=modules, allow_paths=allow_paths)
        phases = samples(trained, n)
        several = len(trained.run.in_phases()) > 1
        shown = [
            part for phase in phases for part in _phase(phase, trained.vocabulary, named=several)
        ]
    except Exception as error:  # whatever the run lacks, the rest of the page is written
        message = str(error) if isinstance(error, _OWN) else f"{type(error).__name__}: {error}"
        why = " ".join(message.split())
        why = f"{why[:_MOST]}..." if len(why) > _MOST else why
        return [heading("Samples"), f'<p class="note">{text(f"There are no samples: {why}")}</p>']
    return [
        heading(f"Samples of held-out text, after {trained.step:,} steps"),
        example_html.legend(),
        *shown,
    ]


def _phase(phase: PhaseSamples, vocabulary: Vocabulary, *, named: bool) -> Iterator[str]:
    if named:
        sizes = ", ".join(f"{name} of {length} tokens" for name, length in phase.lengths.items())
        yield heading(f"Phase {phase.number}: {sizes}", 3)
    kinds = dict.fromkeys(type(sample.answer) for sample in phase.samples)
    yield from (f'<p class="faint">{text(_EXPLAINED[kind])}</p>' for kind in kinds)
    for sample in phase.samples:
        row = example_view.view(sample.features, sample.specs, vocabulary)
        yield heading(sample.place, 4)
        yield f'<div class="sample"><div>{example_html.example(row)}</div><div>'
        yield from _answer(sample, vocabulary)
        yield "</div></div>"


_EXPLAINED = {
    Guesses: "The pieces that the model has to predict, the probability that it gives to each, and "
    "the pieces that it finds likeliest there.",
    Marks: "The generator has filled the masks. The table has the tokens that were masked or that "
    "the discriminator suspects, with the probability that it gives to a replacement.",
    Writing: "The model writes the likeliest token, one after another, until it ends or has "
    "written as many as the longest of these targets has.",
    Continuation: "The model reads the first half of a row, here its inputs, and writes the "
    "likeliest token, one after another. The targets are how the text goes on.",
    type(None): "Rows alone: this model gives no answer to them that could be shown.",
}


def _answer(sample: Sample, vocabulary: Vocabulary) -> Iterator[str]:
    ids = vocabulary.token_ids
    match sample.answer:
        case Guesses() as guesses:
            yield from _guesses(guesses, vocabulary)
        case Marks() as marks:
            replaced = np.flatnonzero(marks.read != marks.originals)
            roles = dict.fromkeys(replaced.tolist(), "replaced")
            read = example_view.line(marks.read, vocabulary, ids, roles=roles)
            yield example_html.line("the discriminator reads", read)
            masked = sample.features["masked_positions"]
            yield from _marks(marks, masked, vocabulary)
        case Writing(tokens):
            written = example_view.line(tokens, vocabulary, ids)
            yield example_html.line("the model writes", written)


def _guesses(guesses: Guesses, vocabulary: Vocabulary) -> Iterator[str]:
    right = int((guesses.best[:, 0] == guesses.truths).sum())
    yield f"<p>{right} of {len(guesses.truths)} right</p>"
    yield table(
        (
            (
                vocabulary.piece(int(truth)),
                f"{chance:.1%}",
                *(
                    f"{vocabulary.piece(int(a))} {p:.1%}"
                    for a, p in zip(best, chances, strict=True)
                ),
            )
            for truth, chance, best, chances in zip(
                guesses.truths, guesses.chances, guesses.best, guesses.best_chances, strict=True
            )
        ),
        header=("predicted", "probability", "likeliest", "second", "third"),
    )


def _marks(marks: Marks, masked: np.ndarray, vocabulary: Vocabulary) -> Iterator[str]:
    replaced, suspected = marks.read != marks.originals, marks.chances > _SUSPECTED
    yield (
        f"<p>{(replaced & suspected).sum()} of {replaced.sum()} replaced tokens found; "
        f"{(~replaced & suspected).sum()} others suspected</p>"
    )
    shown = np.union1d(masked, np.flatnonzero(suspected))
    yield table(
        (
            (
                vocabulary.piece(int(marks.originals[place])),
                vocabulary.piece(int(marks.read[place])),
                f"{marks.chances[place]:.1%}",
            )
            for place in shown
        ),
        header=("original", "read", "replaced?"),
    )
