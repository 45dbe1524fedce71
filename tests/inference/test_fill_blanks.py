import numpy as np
import pytest

from t5x_like.inference.fill_blanks import Blanks, Filled, number_blanks, spans_of
from t5x_like.inference.text_rows import Framing
from t5x_like.inference.writing import Written
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

WORDS = "the quick brown fox jumps over a lazy dog near two old barns , and sleeps ."


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.permutation(WORDS.split())) for _ in range(300)]
    file = tmp_path_factory.mktemp("vocabulary") / "words.model"
    train_sentencepiece(texts, file, vocab_size=45, progress=False)
    return SentencePieceVocabulary(file)


def fill(texts, vocabulary, *outputs):
    """Filled texts of a model that writes `outputs`."""

    def write(rows):
        return [[Written(vocabulary.encode_with_sentinels(text), 0.0)] for text in outputs]

    return Blanks(write, Framing(vocabulary, "A:0 eos:0")).fill(texts)


def test_blanks_without_a_number_get_the_free_ones_in_order():
    assert number_blanks("a ___ b _____ c") == "a <extra_id_0> b <extra_id_1> c"
    assert number_blanks("___ <extra_id_0> ___") == "<extra_id_1> <extra_id_0> <extra_id_2>"
    assert number_blanks("snake_case __x__ ___") == "snake_case __x__ <extra_id_0>"


def test_a_text_without_a_blank_is_refused():
    with pytest.raises(ValueError, match=r"no blank in 'nothing'.*___ or <extra_id_0>"):
        number_blanks("nothing")


@pytest.mark.parametrize(
    ("text", "output", "blanks", "filled"),
    [
        (
            "the ___ fox ___ .",
            "<extra_id_0> quick brown <extra_id_1> jumps <extra_id_2>",
            ("quick brown", "jumps"),
            "the quick brown fox jumps .",
        ),
        ("___ dog", "<extra_id_0> the lazy", ("the lazy",), "the lazy dog"),
        ("two\n___ dog", "<extra_id_0> old", ("old",), "two\nold dog"),
        ("the fox ___ and", "<extra_id_0>,", (",",), "the fox, and"),
        ("Zoë's ___ dog", "<extra_id_0> old", ("old",), "Zoë's old dog"),  # unknown to the model
        ("the ___ fox ___", "<extra_id_1> jumps", ("", "jumps"), "the fox jumps"),
        ("<extra_id_3> dog", "<extra_id_3> a <extra_id_4> fox", ("a",), "a dog"),
    ],
)
def test_spans_go_where_their_sentinels_are(text, output, blanks, filled, pieces):
    (got,) = fill([text], pieces, output)
    assert got == Filled(text, blanks, filled)


def test_bytes_keep_the_space_beside_a_blank():
    vocabulary = ByteVocabulary()
    output = "<extra_id_0>quick<extra_id_1>ox<extra_id_2>"
    (got,) = fill(["the ___ f___ é"], vocabulary, output)
    assert got.filled == "the quick fox é"


def test_bytes_that_other_sentinels_share_are_text():
    vocabulary = ByteVocabulary()
    # E6 is the id of sentinel 25.
    (got,) = fill(["a___"], vocabulary, "<extra_id_0>日本é")
    assert got.filled == "a日本é"


def test_a_blank_beyond_the_sentinels_or_the_length_is_refused(pieces):
    with pytest.raises(ValueError, match="has blank 100, but the vocabulary has 100 sentinels"):
        fill(["the <extra_id_100>"], pieces, "")
    short = Blanks(lambda rows: [], Framing(pieces, "A:0 eos:0", max_length=4))
    with pytest.raises(ValueError, match="more tokens than the model reads: 4"):
        short.fill(["the quick brown fox ___ jumps over a dog"])


def test_what_follows_the_end_is_not_read(pieces):
    ids = pieces.token_ids
    word = pieces.encode("dog")
    spans = spans_of([ids.sentinel(0), *word, 1, *word], pieces, numbers=[0])
    assert spans == {0: " dog"}
