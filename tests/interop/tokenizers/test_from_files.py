import json
import shutil

import pytest

from t5x_like.interop.tokenizers import from_files
from t5x_like.vocabularies import files
from t5x_like.vocabularies.byte import ByteVocabulary

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


def test_a_model_file_counts_for_more_than_what_was_made_of_it(spiece):
    (spiece / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    assert found(spiece).vocab_size == 1200


def test_unigram_without_its_model_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    vocabulary, why = from_files.find(tmp_path)
    assert vocabulary is None
    assert "give the .model file" in why


def test_fairseqs_ids_are_refused(spiece):
    (spiece / "spiece.model").rename(spiece / "sentencepiece.bpe.model")
    vocabulary, why = from_files.find(spiece)
    assert vocabulary is None
    assert "mBART" in why


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


@pytest.mark.parametrize("lower", [True, False])
def test_word_pieces_in_the_case_that_the_directory_says(tmp_path, lower):
    (tmp_path / "vocab.txt").write_text(BERTS)
    config(tmp_path, "tokenizer_config.json", do_lower_case=lower)
    assert found(tmp_path).encode("FOXES") == ([5, 6] if lower else [1])


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
