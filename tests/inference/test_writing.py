"""Answers end at their end alone, and rows fit the positions that a model has."""

import numpy as np
import pytest

from t5x_like.inference.decoding.settings import Answers, Decoding
from t5x_like.inference.text_rows import Framing
from t5x_like.inference.writing import Answering, Writer
from t5x_like.vocabularies.characters import CharacterVocabulary

VOCABULARY = CharacterVocabulary(" .abcdefgh")
IDS = VOCABULARY.token_ids


class Says:
    """A model on a mesh that gives every row the same answer, and keeps what it was given."""

    def __init__(self, tokens, *, encoder):
        self.tokens, self.given = tokens, []
        self.model = type("Model", (), {"reads_apart": encoder})()

    def rows(self, wanted):
        return wanted

    def __call__(self, function, batch, *, decoding, specials):
        self.given.append(batch)
        answer = np.full(decoding.max_new_tokens, specials.pad)
        answer[: len(self.tokens)] = self.tokens
        rows = len(batch["decoder_input_tokens"])
        return Answers(np.tile(answer, (rows, 1, 1)), np.zeros((rows, 1)))


def writer(says, **more):
    return Writer(model=says, ids=IDS, start=None, decoding=Decoding(max_new_tokens=6), **more)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ([9, IDS.pad, 8], [9, IDS.pad, 8]),  # where a vocabulary has no padding, it is text
        ([9, IDS.eos, 8], [9]),
        ([9] * 6, [9] * 6),
        ([], []),
    ],
)
def test_an_answer_ends_at_its_end_and_not_at_a_token_of_text(said, text):
    ((found,),) = writer(Says(said, encoder=True))([[7, 8]])
    assert found.tokens == text


@pytest.mark.parametrize(("encoder", "length", "positions"), [(True, 160, 160), (False, 154, 160)])
def test_rows_are_as_long_as_there_are_positions(encoder, length, positions):
    says = Says([9], encoder=encoder)
    writer(says, max_positions=positions)([[7] * 150])
    (batch,) = says.given
    assert batch["encoder_input_tokens" if encoder else "decoder_input_tokens"].shape[1] == length


def test_an_empty_text_is_continued_after_what_begins_one():
    says = Says([9], encoder=False)
    answering = Answering(writer(says), Framing(VOCABULARY, "A:0"))
    answering.check({"inputs": ""})
    assert answering([{"inputs": ""}]) == [{"prediction": VOCABULARY.decode([9])}]
    (batch,) = says.given
    assert batch["decoder_input_tokens"][0, -1] == IDS.eos
