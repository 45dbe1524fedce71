import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import sentencepiece as spm

from t5x_like.core.protocols import data as protocols
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary


@pytest.fixture(scope="module")
def vocabulary(model_file: Path) -> SentencePieceVocabulary:
    return SentencePieceVocabulary(model_file)


def _piece(text: str) -> bytes:
    """A serialised user-defined piece, to be appended to a serialised model."""
    name = text.encode()
    message = bytes([0x0A, len(name)]) + name + bytes([0x18, 4])
    return bytes([0x0A, len(message)]) + message


def _with_pieces(model_file: Path, pieces: list[str], *, to: Path) -> Path:
    to.write_bytes(model_file.read_bytes() + b"".join(map(_piece, pieces)))
    return to


def test_size_and_special_ids_are_those_of_t5(vocabulary):
    assert vocabulary.vocab_size == 197
    ids = vocabulary.token_ids
    assert ids == protocols.TokenIds(
        vocab_size=197,
        pad=0,
        eos=1,
        unk=2,
        bos=None,
        cls=3,
        sep=4,
        mask=5,
        sentinels=vocabulary.num_sentinels,
        named={"[R]": 6, "[S]": 7, "[X]": 8, "<eod>": 9},
    )
    assert ids.sentinel(0) == 196
    assert isinstance(vocabulary, protocols.Vocabulary)


def test_word_starts_are_pieces_with_a_space_and_punctuation(vocabulary):
    starts = vocabulary.token_ids.word_starts
    ids = vocabulary.encode("walking in the park.")
    words = "".join("_" if starts[i] else "." for i in ids)
    assert words.count("_") == 5  # The full stop is a word.
    assert words.startswith("_")
    assert starts.dtype == bool
    assert starts.shape == (197,)
    assert not starts[:10].any()
    assert [vocabulary.piece(i) for i in np.flatnonzero(vocabulary.token_ids.full_stops)] == ["."]
    assert not starts[97:].any()


def test_text_survives(vocabulary):
    text = "the lazy dog was walking"
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert [ids.tolist() for ids in vocabulary.encode_batch([text, "", "dog"])] == [
        vocabulary.encode(text),
        [],
        vocabulary.encode("dog"),
    ]
    assert vocabulary.encode_batch([]) == []


def test_decoding_stops_at_the_end_and_shows_foreign_ids_as_unknown(vocabulary):
    dog = vocabulary.encode("dog")
    assert vocabulary.decode([*dog, 0, 0]) == "dog"
    assert vocabulary.decode([*dog, 1, *dog]) == "dog"
    unknown = vocabulary.decode([2])
    assert vocabulary.decode(np.array([197])) == vocabulary.decode([-1]) == unknown != ""
    assert vocabulary.decode([]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "the <extra_id_0> fox",
        "<extra_id_0> fox",
        "the fox <extra_id_99>",
        "<extra_id_1> <extra_id_0>",
        "the <extra_id_0>, and the <extra_id_1> ing",
    ],
)
def test_sentinels_in_text_survive(vocabulary, text):
    ids = vocabulary.encode_with_sentinels(text)
    assert vocabulary.decode(ids) == text


def test_text_around_sentinels_gets_the_ids_it_has_in_running_text(vocabulary):
    walking = vocabulary.encode("the walking fox")
    for whole, split in [
        ("the walking fox", "the walking<extra_id_0> fox"),
        ("the walking fox", "the walk<extra_id_0>ing fox"),
        ("the walking fox", "the<extra_id_0> walking fox"),
        ("the walking fox", "the <extra_id_0> walking fox"),
    ]:
        ids = vocabulary.encode_with_sentinels(split)
        text = [i for i in ids if i < 97]
        assert vocabulary.decode(text) == vocabulary.decode(vocabulary.encode(whole))
        assert ids.count(196) == 1
    assert vocabulary.encode_with_sentinels("the walking fox") == walking
    # A sentinel takes the place of a word and of the space before it.
    assert vocabulary.encode_with_sentinels("the <extra_id_0> fox") == [
        *vocabulary.encode("the"),
        196,
        *vocabulary.encode("fox"),
    ]


def test_a_sentinel_the_vocabulary_lacks_is_named(vocabulary, model_file):
    with pytest.raises(ValueError, match=r"<extra_id_100>.*<extra_id_0> to <extra_id_99>"):
        vocabulary.encode_with_sentinels("the <extra_id_100>")
    with pytest.raises(ValueError, match="none"):
        SentencePieceVocabulary(model_file, extra_ids=0).encode_with_sentinels("<extra_id_0>")


def test_pickles_without_its_file(vocabulary, model_file, tmp_path):
    copy = tmp_path / "copy.model"
    copy.write_bytes(model_file.read_bytes())
    made = SentencePieceVocabulary(copy)
    made.encode("loads the processor")
    state = pickle.dumps(made)
    copy.unlink()
    restored = pickle.loads(state)
    assert restored == vocabulary
    assert restored.vocab_size == vocabulary.vocab_size
    assert restored.encode("the dog") == vocabulary.encode("the dog")


def test_fingerprint_tells_sentinels_and_models_apart(vocabulary, model_file, tmp_path):
    other = _with_pieces(model_file, ["new"], to=tmp_path / "other.model")
    fingerprints = {
        vocabulary.fingerprint,
        SentencePieceVocabulary(model_file, extra_ids=10).fingerprint,
        SentencePieceVocabulary(other).fingerprint,
    }
    assert len(fingerprints) == 3
    assert SentencePieceVocabulary(str(model_file)).fingerprint in fingerprints


def test_pieces_as_people_read_them(vocabulary):
    shown = [vocabulary.piece(i) for i in vocabulary.encode_with_sentinels("the <extra_id_7> dog")]
    assert "".join(shown) == "▁the<extra_id_7>▁dog"
    assert [vocabulary.piece(i) for i in (0, 3, 9, 196)] == [
        *("<pad>", "[CLS]", "<eod>", "<extra_id_0>")
    ]


def test_sentinels_of_the_model_itself_are_not_added_twice(model_file, tmp_path):
    pieces = ["▁<extra_id_2>", "▁<extra_id_1>", "▁<extra_id_0>"]
    vocabulary = SentencePieceVocabulary(
        _with_pieces(model_file, pieces, to=tmp_path / "own.model")
    )
    assert vocabulary.vocab_size == 100
    assert vocabulary.num_sentinels == 3
    assert vocabulary.piece(98) == "<extra_id_1>"
    assert 99 in vocabulary.encode_with_sentinels("the <extra_id_0> dog")
    assert vocabulary.decode([99, *vocabulary.encode("dog"), 97]) == "<extra_id_0> dog <extra_id_2>"
    assert not vocabulary.token_ids.word_starts[97:].any()


def test_sentinels_in_another_order_are_refused(model_file, tmp_path):
    pieces = ["<extra_id_0>", "<extra_id_1>"]
    path = _with_pieces(model_file, pieces, to=tmp_path / "ascending.model")
    with pytest.raises(ValueError, match="counting down"):
        SentencePieceVocabulary(path)


def test_special_ids_of_other_models(tmp_path, model_file):
    trained = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["some words for a model", "and more words"] * 20),
        model_writer=trained,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (tmp_path / "default.model").write_bytes(trained.getvalue())
    ids = SentencePieceVocabulary(tmp_path / "default.model", extra_ids=0).token_ids
    assert (ids.pad, ids.unk, ids.bos, ids.eos) == (0, 0, 1, 2)

    size = SentencePieceVocabulary(tmp_path / "default.model", extra_ids=0).vocab_size
    own = _with_pieces(
        tmp_path / "default.model", ["<cls>", "<sep>", "<mask>", "<eop>"], to=tmp_path / "own.model"
    )
    ids = SentencePieceVocabulary(own, extra_ids=0).token_ids
    assert (ids.cls, ids.sep, ids.mask) == (size, size + 1, size + 2)
    assert ids.named == {"<eop>": size + 3}


def test_xlnets_special_tokens(tmp_path):
    trained = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["some words for a model", "and more words"] * 20),
        model_writer=trained,
        vocab_size=50,
        control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
        user_defined_symbols=["<eop>", "."],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (tmp_path / "spiece.model").write_bytes(trained.getvalue())
    vocabulary = SentencePieceVocabulary(tmp_path / "spiece.model", extra_ids=0)
    ids = vocabulary.token_ids
    assert (ids.unk, ids.bos, ids.eos, ids.cls, ids.sep, ids.pad, ids.mask) == (*range(7),)
    assert ids.named == {"<eod>": 7, "<eop>": 8}
    assert np.flatnonzero(ids.full_stops).tolist() == [9]
    assert not set(vocabulary.encode("<cls> words <mask>.<eod>")) & {1, 2, 3, 4, 5, 6, 7}


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "text.model").write_text("not a model")
    with pytest.raises(ValueError, match=r"text\.model is not a SentencePiece model"):
        SentencePieceVocabulary(tmp_path / "text.model")
    with pytest.raises(FileNotFoundError):
        SentencePieceVocabulary(tmp_path / "missing.model")
