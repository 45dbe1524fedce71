import json
import os

import pytest

from t5x_like.vocabularies import loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary


def test_by_name_and_by_file(model_file):
    assert loading.load("bytes") == ByteVocabulary()
    assert loading.load("bytes", extra_ids=100) == ByteVocabulary(extra_ids=100)
    assert loading.load(model_file) == SentencePieceVocabulary(model_file, extra_ids=100)
    assert loading.load(str(model_file), extra_ids=0).vocab_size == 97


def test_saved_vocabularies_come_back(model_file, tmp_path):
    for number, vocabulary in enumerate(
        [
            ByteVocabulary(extra_ids=7),
            PassThroughVocabulary(10, eos=None),
            SentencePieceVocabulary(model_file, extra_ids=5),
        ]
    ):
        directory = tmp_path / f"new/{number}"
        vocabulary.save(directory)
        assert loading.load(directory) == vocabulary
        assert not [name for name in os.listdir(directory) if name.endswith(".tmp")]
    assert loading.load(directory, extra_ids=5).vocab_size == 102
    with pytest.raises(ValueError, match="saved with 5 extra ids, and 100 are"):
        loading.load(directory, extra_ids=100)


def test_replaced_model_is_refused(model_file, tmp_path):
    SentencePieceVocabulary(model_file).save(tmp_path)
    with (tmp_path / "vocabulary.model").open("ab") as file:
        file.write(b"\x1a\x02\x18\x00")
    with pytest.raises(ValueError, match="fingerprint"):
        loading.load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"class": "Unheard"}', '{"class": "Byte"}'])
def test_a_foreign_description_is_refused(content, tmp_path):
    (tmp_path / "vocabulary.json").write_text(content)
    with pytest.raises(ValueError, match=r"vocabulary\.json (is damaged|does not describe a voc)"):
        loading.load(tmp_path)


@pytest.mark.parametrize("name", ["vocab.json.gz", "spiece.model.zst", "bert.zip"])
def test_packed_files_are_to_be_unpacked(name, tmp_path):
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    with pytest.raises(ValueError, match=f"{name} is packed: unpack it"):
        loading.load(tmp_path / name)


def test_there_is_no_negative_number_of_sentinels(model_file):
    for spec in ("bytes", model_file):
        with pytest.raises(ValueError, match=r"extra_ids of .* is .* 0 to \d+, not -5"):
            loading.load(spec, extra_ids=-5)


def test_description_is_readable(model_file, tmp_path):
    vocabulary = SentencePieceVocabulary(model_file)
    vocabulary.save(tmp_path)
    assert json.loads((tmp_path / "vocabulary.json").read_text()) == {
        "class": "SentencePiece",
        "extra_ids": 100,
        "fingerprint": vocabulary.fingerprint,
    }


def test_missing_ones_are_named_with_what_is_there(tmp_path):
    (tmp_path / "english.model").touch()
    with pytest.raises(FileNotFoundError, match=r"englsh\.model.*english\.model"):
        loading.load(tmp_path / "englsh.model")
    with pytest.raises(FileNotFoundError, match="no directory"):
        loading.load(tmp_path / "nowhere" / "english.model")
    with pytest.raises(
        ValueError, match=r"holds no vocabulary: .*; give the file itself: .*english"
    ):
        loading.load(tmp_path)
