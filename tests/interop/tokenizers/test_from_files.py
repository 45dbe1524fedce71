import json
import shutil

import pytest

from t5x_like.interop.tokenizers import from_files, to_files
from t5x_like.vocabularies import files, loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary

BERTS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfox\n##es\n"


@pytest.fixture
def spiece(vocabularies, tmp_path):
    """A directory with a SentencePiece model of 1200 pieces, as for T5, ALBERT and XLNet."""
    vocabularies["unigram"].save(tmp_path / "saved")
    folder = tmp_path / "hf"
    folder.mkdir()
    shutil.copy(tmp_path / "saved" / files.MODEL, folder / "spiece.model")
    return folder


def found(folder):
    vocabulary, line = from_files.find(folder)
    assert vocabulary is not None, line
    return vocabulary


def config(folder, name="config.json", **fields):
    (folder / name).write_text(json.dumps(fields))


@pytest.mark.parametrize(("model_type", "extra"), [("t5", 100), ("albert", 0), ("xlnet", 0)])
def test_a_model_file_has_the_familys_sentinels(spiece, model_type, extra):
    config(spiece, model_type=model_type)
    vocabulary = found(spiece)
    assert vocabulary.vocab_size == 1200 + extra
    assert (vocabulary.token_ids.sentinels or 0) == extra


@pytest.mark.parametrize(
    "fields",
    [
        {"extra_ids": 7},
        {"additional_special_tokens": [f"<extra_id_{i}>" for i in range(7)], "extra_ids": 100},
        {"added_tokens_decoder": {"1200": {"content": "<extra_id_6>"}}},
    ],
)
def test_the_tokenizers_own_words_on_sentinels_come_first(spiece, fields):
    config(spiece, model_type="t5")
    config(spiece, "tokenizer_config.json", **fields)
    assert found(spiece).vocab_size == 1207


def test_a_model_file_counts_for_more_than_what_was_made_of_it(vocabularies, spiece, tmp_path):
    to_files.write(vocabularies["unigram"], tmp_path / "made", model_type="albert")
    shutil.copy(tmp_path / "made" / "tokenizer.json", spiece)
    config(spiece, model_type="albert")
    assert isinstance(found(spiece), SentencePieceVocabulary)


@pytest.mark.parametrize("model", [{"type": "Unigram"}, {"type": "Other", "vocab": {}}])
def test_a_tokenizer_that_the_library_cannot_run(tmp_path, model):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    vocabulary, why = from_files.find(tmp_path)
    assert vocabulary is None
    assert "tokenizer.json" in why


def test_fairseqs_ids_are_refused(spiece):
    (spiece / "spiece.model").rename(spiece / "sentencepiece.bpe.model")
    vocabulary, why = from_files.find(spiece)
    assert vocabulary is None
    assert "save the tokenizer again, as tokenizer.json" in why


def test_weights_alone(tmp_path):
    config(tmp_path, model_type="bert")
    vocabulary, why = from_files.find(tmp_path)
    assert vocabulary is None
    assert f"{tmp_path} holds no vocabulary" in why


def test_a_damaged_file_is_no_vocabulary(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("[")
    (tmp_path / "vocab.txt").write_text(BERTS)
    assert from_files.find(tmp_path)[0] is None
    (tmp_path / "tokenizer_config.json").write_text("[]")
    assert "config.json is damaged: it holds no JSON object" in from_files.find(tmp_path)[1]


@pytest.mark.parametrize(
    ("settings", "text", "ids"),
    [
        ({"do_lower_case": True}, "FOXES", [5, 6]),
        ({"do_lower_case": False}, "FOXES", [1]),
        ({"do_lower_case": True, "strip_accents": False}, "FÖX", [7]),
        ({"do_lower_case": True}, "FÖX", [5]),
        ({"do_lower_case": False, "strip_accents": True}, "föx", [5]),
        ({"tokenize_chinese_chars": False}, "中文", [8]),
        ({"mask_token": "<blank>"}, "fox", [5]),
    ],
)
def test_word_pieces_as_the_settings_say(tmp_path, settings, text, ids):
    (tmp_path / "vocab.txt").write_text(f"{BERTS}föx\n中文\n<blank>\n", encoding="utf-8")
    config(tmp_path, "tokenizer_config.json", **settings)
    vocabulary = found(tmp_path)
    assert vocabulary.encode(text) == ids
    assert vocabulary.token_ids.mask == (9 if "mask_token" in settings else 4)
    vocabulary.save(tmp_path / "saved")
    assert loading.load(tmp_path / "saved") == vocabulary == loading.load(tmp_path)


def test_settings_that_cannot_be_followed_are_named(vocabularies, tmp_path):
    vocabularies["wordpiece_uncased"].save(tmp_path)
    (tmp_path / files.DESCRIPTION).unlink()
    config(tmp_path, "tokenizer_config.json", do_lower_case=True, word_splitter="mine")
    vocabulary, line = from_files.find(tmp_path)
    assert vocabulary is not None
    assert "no meaning here: word_splitter: 'mine'" in line
    for wrong in ({"do_lower_case": False}, {"do_lower_case": 3}, {"do_basic_tokenize": False}):
        config(tmp_path, "tokenizer_config.json", **wrong)
        vocabulary, line = from_files.find(tmp_path)
        assert vocabulary is None
        assert next(iter(wrong)) in line


def test_byt5(tmp_path):
    config(tmp_path, model_type="t5", tokenizer_class="ByT5Tokenizer")
    assert found(tmp_path) == ByteVocabulary()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe"])
def test_files_that_transformers_wrote(vocabularies, texts, tmp_path, name):
    transformers = pytest.importorskip("transformers")
    vocabularies[name].save(tmp_path)
    made = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / files.TOKENIZER))
    made.save_pretrained(tmp_path / "hf")
    vocabulary = found(tmp_path / "hf")
    assert vocabulary.encode_batch(texts) == vocabularies[name].encode_batch(texts)
