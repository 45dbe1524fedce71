import io
import json
import logging

import numpy as np
import pytest
import sentencepiece as spm
import tokenizers

from t5x_like.data.cache import words
from t5x_like.interop.tokenizers import from_files, to_files
from t5x_like.vocabularies.code_points import CodePointVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from t5x_like.vocabularies.text import byte_level
from t5x_like.vocabularies.tokenizer_files import byte_bpe, wordpiece

NAMES = (
    *("bpe", "bpe_bytes", "byte_bpe", "bytes", "bytes_100", "characters"),
    *("unigram", "unigram_bytes", "wordpiece", "wordpiece_uncased", "words"),
)


def written(vocabulary, folder, model_type="t5"):
    to_files.write(vocabulary, folder, model_type=model_type)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def encode(tokenizer, texts):
    return [one.ids for one in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def encode_ours(vocabulary, texts):
    return [list(map(int, ids)) for ids in vocabulary.encode_batch(list(texts))]


def score(pieces, ids):
    return sum(pieces[i][1] for i in ids)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_ids_on_real_text_and_odd_text(vocabularies, texts, tmp_path, name):
    vocabulary = vocabularies[name]
    tokenizer = written(vocabulary, tmp_path)
    plain = [text for text in texts if "[X]" not in text]
    got, expected = encode(tokenizer, plain), encode_ours(vocabulary, plain)
    differing = [i for i, ids in enumerate(got) if ids != expected[i]]
    if not name.startswith("unigram"):
        assert [plain[i] for i in differing] == []
        return
    # Rounding settles what can be cut in several ways of equal score, such as a row of dashes.
    pieces = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(differing) <= len(plain) / 100
    for i in differing:
        assert score(pieces, got[i]) == pytest.approx(score(pieces, expected[i]), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_all_ids_have_the_same_names(vocabularies, tmp_path, name):
    vocabulary = vocabularies[name]
    tokenizer = written(vocabulary, tmp_path)
    ids = vocabulary.token_ids
    assert tokenizer.get_vocab_size() == vocabulary.vocab_size
    assert sorted(tokenizer.get_vocab().values()) == list(range(vocabulary.vocab_size))
    sentinels = 0 if name == "bytes" else ids.sentinels
    for i in {*ids.special, *map(ids.sentinel, range(sentinels))}:
        assert tokenizer.id_to_token(i) == vocabulary.piece(i)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bytes"])
def test_written_sentinels_get_their_ids(vocabularies, tmp_path, name):
    vocabulary = vocabularies[name]
    tokenizer = written(vocabulary, tmp_path)
    texts = [
        "<extra_id_0>",
        "The <extra_id_0> returns <extra_id_1> value",
        "<extra_id_99> or <extra_id_42>, re<extra_id_1>ing",
    ]
    assert encode(tokenizer, texts) == [vocabulary.encode_with_sentinels(text) for text in texts]


@pytest.mark.parametrize("name", NAMES)
def test_decoding_gives_the_same_text(vocabularies, texts, tmp_path, name):
    vocabulary = vocabularies[name]
    tokenizer = written(vocabulary, tmp_path)
    known = [ids for ids in encode_ours(vocabulary, texts) if vocabulary.token_ids.unk not in ids]
    assert len(known) > len(texts) / 3
    for ids in known:
        assert tokenizer.decode(ids) == vocabulary.decode(ids)


def test_a_mask_stands_for_a_word_with_its_space(vocabularies, tmp_path):
    vocabulary = vocabularies["byte_bpe"]
    (ids,) = encode(written(vocabulary, tmp_path), ["return [MASK] value"])
    expected = encode_ours(vocabulary, ["return", " value"])
    assert ids == [*expected[0], vocabulary.token_ids.mask, *expected[1]]


def frame(vocabulary, tokenizer):
    """The special tokens around `a` and around `a`, `b`, and token types."""
    a, b = encode_ours(vocabulary, ["a", "b"])
    texts = {tuple(a): "a", tuple(b): "b"}
    shown = []
    for encoding in (tokenizer.encode("a"), tokenizer.encode("a", "b")):
        words = [texts.get((i,)) or vocabulary.piece(i) for i in encoding.ids]
        shown.append((" ".join(words), "".join(map(str, encoding.type_ids))))
    return shown


@pytest.mark.parametrize(
    ("model_type", "single", "pair"),
    [
        ("bert", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("electra", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("albert", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("distilbert", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("modernbert", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("neobert", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("eurobert", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("deberta", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("deberta-v2", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] b [SEP]", "00011")),
        ("longformer", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] [SEP] b [SEP]", "000000")),
        ("roberta", ("[CLS] a [SEP]", "000"), ("[CLS] a [SEP] [SEP] b [SEP]", "000000")),
        ("bart", ("[CLS] a </s>", "000"), ("[CLS] a </s> </s> b </s>", "000000")),
        ("t5", ("a </s>", "00"), ("a </s> b </s>", "0000")),
        ("gpt2", ("a", "0"), ("a </s> b", "000")),
        ("modernbert-decoder", ("a", "0"), ("a </s> b", "000")),
        ("xlnet", ("a [SEP] [CLS]", "002"), ("a [SEP] b [SEP] [CLS]", "00112")),
    ],
)
def test_what_a_family_puts_around_text(vocabularies, tmp_path, model_type, single, pair):
    vocabulary = vocabularies["characters"]
    assert frame(vocabulary, written(vocabulary, tmp_path, model_type)) == [single, pair]


def published_byte_bpe(folder):
    """A vocabulary with RoBERTa's special tokens."""
    names = ["<s>", "<pad>", "</s>", "<unk>", *byte_level.CHARACTERS, "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return byte_bpe.read(folder / "vocab.json", folder / "merges.txt")


def test_code_points_have_transformers_own_tokenizer(tmp_path):
    """Which needs no file, and puts the same around a text; pairs have types here alone."""
    transformers = pytest.importorskip("transformers")
    vocabulary = CodePointVocabulary()
    to_files.write(vocabulary, tmp_path, model_type="canine", max_length=2048)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (type(theirs).__name__, theirs.model_max_length) == ("CanineTokenizer", 2048)
    first, second = vocabulary.encode("Grüße 東"), vocabulary.encode("b")
    cls, sep = vocabulary.token_ids.cls, vocabulary.token_ids.sep
    assert theirs("Grüße 東")["input_ids"] == [cls, *first, sep]
    assert theirs("Grüße 東", "b")["input_ids"] == [cls, *first, sep, *second, sep]
    assert from_files.find(tmp_path)[0] == vocabulary
    (tmp_path / "vocabulary" / "vocabulary.json").unlink()
    (tmp_path / "vocabulary").rmdir()  # as the released models have it
    assert from_files.find(tmp_path)[0] == vocabulary


@pytest.mark.parametrize("model_type", ["roberta", "bart"])
def test_a_vocabulary_with_the_familys_own_tokens(tmp_path, model_type):
    vocabulary = published_byte_bpe(tmp_path)
    assert frame(vocabulary, written(vocabulary, tmp_path, model_type)) == [
        ("<s> a </s>", "000"),
        ("<s> a </s> </s> b </s>", "000000"),
    ]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    roles = {name: value for name, value in config.items() if name.endswith("_token")}
    assert roles == {
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
    }


def test_tokens_that_a_vocabulary_lacks_are_left_out(vocabularies, tmp_path):
    tokenizer = written(vocabularies["bytes"], tmp_path, "bert")
    assert tokenizer.encode("a").ids == vocabularies["bytes"].encode("a")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert not {"cls_token", "sep_token", "mask_token"} & config.keys()


def sentencepiece_model(documents, **options):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter("\n".join(documents).split("\n")[:3000]),
        model_writer=model,
        vocab_size=500,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


ALBERTS = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    "normalization_rule_name": "nmt_nfkc_cf",
}
XLNETS = {
    "pad_id": -1,
    "unk_id": 0,
    "bos_id": 1,
    "eos_id": 2,
    "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
    "user_defined_symbols": ["<eop>", ".", "(", ")", '"', "-"],
}
PLAIN = {
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
}


@pytest.mark.parametrize("options", [ALBERTS, XLNETS, PLAIN], ids=["albert", "xlnet", "plain"])
def test_sentencepiece_models_of_other_makes(documents, texts, tmp_path, options):
    (tmp_path / "spiece.model").write_bytes(sentencepiece_model(documents, **options))
    vocabulary = SentencePieceVocabulary(tmp_path / "spiece.model", 0)
    assert vocabulary.cleans_text == (options is ALBERTS)
    got = encode(written(vocabulary, tmp_path / "hf", "xlnet"), texts)
    pieces = json.loads((tmp_path / "hf/tokenizer.json").read_text())["model"]["vocab"]
    differing = [
        text
        for text, ids, expected in zip(texts, got, encode_ours(vocabulary, texts), strict=True)
        if ids != expected and abs(score(pieces, ids) / score(pieces, expected) - 1) > 1e-6
    ]
    assert differing == []


@pytest.mark.parametrize(
    "options", [{"model_type": "word"}, {"model_type": "bpe", "user_defined_symbols": ["-"]}]
)
def test_what_a_tokenizer_json_cannot_say_is_refused(documents, tmp_path, options):
    content = sentencepiece_model(documents, **options)
    (tmp_path / "a.model").write_bytes(content)
    vocabulary = SentencePieceVocabulary(tmp_path / "a.model")
    with pytest.raises(
        ValueError, match=f"SentencePiece model does: it is {options['model_type']}"
    ):
        to_files.write(vocabulary, tmp_path, model_type="t5")


def test_no_text_and_no_family_are_refused(vocabularies, tmp_path):
    with pytest.raises(ValueError, match=r"PassThroughVocabulary.* has no text"):
        to_files.write(PassThroughVocabulary(9), tmp_path, model_type="t5")
    with pytest.raises(ValueError, match="no tokenizer for model type 'llama': albert, bart"):
        to_files.write(vocabularies["bpe"], tmp_path, model_type="llama")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_exported_comes_back(vocabularies, tmp_path, name):
    to_files.write(vocabularies[name], tmp_path, model_type="t5")
    found, line = from_files.find(tmp_path)
    assert found == vocabularies[name]
    assert str(tmp_path) in line


@pytest.fixture
def warned():
    """Records transformers' warnings."""
    records = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append
    logging.getLogger("transformers").addHandler(handler)
    yield records
    logging.getLogger("transformers").removeHandler(handler)


# transformers has no configuration of NeoBERT.
@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(to_files.FAMILIES.keys() - {"neobert"}))
@pytest.mark.parametrize("name", ["unigram", "wordpiece", "byte_bpe", "bytes_100"])
def test_auto_tokenizer(vocabularies, texts, tmp_path, warned, name, model_type):
    transformers = pytest.importorskip("transformers")
    vocabulary = vocabularies[name]
    to_files.write(vocabulary, tmp_path, model_type=model_type, max_length=512)
    transformers.AutoConfig.for_model(model_type).save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    few = texts[::40]
    assert tokenizer(few, verbose=False)["input_ids"] == [backend.encode(one).ids for one in few]
    assert len(tokenizer) == vocabulary.vocab_size
    assert tokenizer.model_max_length == 512
    ids = vocabulary.token_ids
    roles = [("pad", ids.pad), ("eos", ids.eos), ("cls", ids.cls), ("mask", ids.mask)]
    for role, i in roles:
        assert getattr(tokenizer, f"{role}_token_id") == i
    batch = tokenizer(["a b", "a"], ["b", "b"], padding=True)
    has_types = model_type in ("albert", "bert", "canine", "electra", "xlnet")
    assert ("token_type_ids" in batch) == has_types
    padded = batch["input_ids"][1]
    assert (padded[0] if model_type == "xlnet" else padded[-1]) == ids.pad
    assert warned == []


@pytest.mark.slow
def test_a_mask_keeps_its_space_in_auto_tokenizer(vocabularies, tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = vocabularies["byte_bpe"]
    to_files.write(vocabulary, tmp_path, model_type="roberta")
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path)("return [MASK]")["input_ids"]
    cls, sep, mask = (vocabulary.token_ids.given(role) for role in ("cls", "sep", "mask"))
    assert ids == [cls, *vocabulary.encode("return"), mask, sep]


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_a_published_bert(tmp_path, lowercase):
    transformers = pytest.importorskip("transformers")
    words = ["the", "quick", "fox", "##es", "e", "##f", "."] + ["The"] * (not lowercase)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (tmp_path / "vocab.txt").write_text("\n".join(names) + "\n")
    reference = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=lowercase)
    vocabulary = wordpiece.read(tmp_path / "vocab.txt")
    to_files.write(vocabulary, tmp_path / "hf", model_type="bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    texts = ["The quick foxes.", "THE éf [MASK]  fox", ""]
    expected = dict(reference(texts, texts[::-1]))
    assert dict(tokenizer(texts, texts[::-1])) == expected
    by_class = transformers.BertTokenizer.from_pretrained(tmp_path / "hf")
    assert dict(by_class(texts, texts[::-1])) == expected


@pytest.mark.parametrize("name", ["byte_bpe", "unigram", "wordpiece", "wordpiece_uncased"])
def test_words_have_the_tokens_of_a_list_of_words(vocabularies, tmp_path, name):
    """As `transformers` makes them under `is_split_into_words`, and word_ids as they say."""
    vocabulary = vocabularies[name]
    tokenizer = written(vocabulary, tmp_path)
    if name == "byte_bpe":
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    several = ["The", "U.S.", "(walking)", "naïve-Straße", ",", "it's", "Unfathomable", "1,234"]
    found = words.encode(vocabulary, several)
    theirs = tokenizer.encode(several, is_pretokenized=True, add_special_tokens=False)
    assert np.concatenate(found).tolist() == theirs.ids
    before = [None, *theirs.word_ids[:-1]]
    begins = [word != last for word, last in zip(theirs.word_ids, before, strict=True)]
    assert words.starts(found).tolist() == begins
    assert begins.count(False) > 0
    if name.startswith("wordpiece"):  # leaves nothing of a control character
        assert vocabulary.encode("\x01") == []
        assert words.encode(vocabulary, ["\x01"])[0].tolist() == [vocabulary.token_ids.unk]
