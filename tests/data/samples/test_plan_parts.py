"""Parts of plans: they cover the text once, and their number and processes change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.data.samples import plan_parts
from t5x_like.data.samples.plan_parts import PlanParts
from t5x_like.data.samples.token_stream import TokenStream
from t5x_like.objectives.parts.carried_rows import CarriedRows
from t5x_like.objectives.parts.continued_rows import Continued
from t5x_like.objectives.parts.sentence_blocks import LineBlocks, SentenceBlocks
from t5x_like.objectives.parts.sentence_pairs import SentencePairs
from tests.data.records import RECORDS, Plainly, RecordsSplit

DOCUMENTS = [f"some words of line {i}.\n" * (1 + i % 7) for i in range(60)]


@given(RECORDS, st.integers(1, 30), st.booleans())
def test_edges_lie_between_documents_and_parts_are_large_enough(records, tokens, separators):
    separator = -7 if separators else None
    stream = TokenStream(RecordsSplit(records), separator=separator)
    edges = stream.document_edges(tokens)
    documents = Plainly.of(records, separator).documents
    assert (edges[0], edges[-1]) == (0, len(documents))
    assert edges == sorted(set(edges)) or not documents
    starts = [document[0] for document in documents] + [stream.total]
    sizes = np.diff([starts[edge] for edge in edges])
    assert (sizes[:-1] >= 1).all()
    # Between a part's edges lies a multiple of `tokens` at which another could begin.
    longest = max((document[-1] - document[0] for document in documents), default=0)
    assert (sizes <= 2 * tokens + longest).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        (SentencePairs(20), None),
        (LineBlocks(12), None),
        (SentenceBlocks(16, cross_documents=True), None),
        (CarriedRows(16, 8), 4),
        (Continued(8), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_number_of_processes_changes_nothing(make_cache, monkeypatch, shape, rows):
    monkeypatch.setattr(plan_parts, "_TOKENS", 200)
    separator = 1 if rows else None
    parts = PlanParts(
        TokenStream(make_cache(DOCUMENTS).split("train"), separator=separator),
        shape,
        rows,
        None,
        "source",
    )
    plans = []
    for processes in (1, 2):
        monkeypatch.setattr(plan_parts.workers, "default_workers", lambda n=processes: n)
        plans.append(list(parts.made()))
    assert len(plans[0]) == len(plans[1]) > 8
    for one, other in zip(*plans, strict=True):
        np.testing.assert_array_equal(one, other)
    if rows is None:
        # Whatever is cut into parts, each token is in as many samples (those of a text in order).
        starts = np.concatenate(plans[0])[:, 0]
        assert starts.max() > 0.8 * parts.stream.total


def test_parts_have_random_numbers_of_their_own(make_cache, monkeypatch):
    split = make_cache(["the same words again and again.\n" * 9] * 40).split("train")
    monkeypatch.setattr(plan_parts, "_TOKENS", 1500)
    made = list(PlanParts(TokenStream(split), LineBlocks(40, 0.5), None, None, "source").made())
    assert len(made) > 2
    first, second = (part[:, 2].tolist() for part in made[:2])
    assert first != second
