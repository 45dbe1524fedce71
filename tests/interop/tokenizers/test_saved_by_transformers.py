"""Directories that transformers has saved, with added tokens and normalisers of their own."""

import json
import shutil

import pytest
from odd_texts import ODD

from t5x_like.interop.tokenizers import from_files, to_files
from t5x_like.vocabularies import files, loading

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

ADDED = ("xylograph", "kelvinium")
MARK = "[E1]"
TEXTS = (
    *ODD,
    *("", "The ferry left.", "xylograph", "a xylograph, kelviniumed!", "[E1] the [E1]a", "x[E1] y"),
    *("Größe ÉTÉ été", "THE VALUE of Straße", "  two  spaces ", "tab\tand\nline", "naïve—dash"),
    *("Київ й ї", "कुल कल", "中文 and 日本", "ﷺ", "1,234.5 %", "http://a.b/c?d=e&f", "a" * 300),
    *("(return value)", "self.__init__(x, y)", "I'm; you're", "…and so on…", "\u200f\u200e"),
)
KINDS = {  # name: class of transformers, vocabulary that it is made from, family here
    "bert": ("BertTokenizer", "wordpiece_uncased", "bert"),
    "roberta": ("RobertaTokenizer", "byte_bpe", "roberta"),
    "t5": ("T5Tokenizer", "unigram", "t5"),
    "albert": ("AlbertTokenizer", "unigram", "albert"),
    "xlnet": ("XLNetTokenizer", "unigram", "xlnet"),
    "camembert": ("CamembertTokenizer", "unigram", "roberta"),
}


def source(vocabulary, name, folder):
    """A directory as transformers' class of this name reads it."""
    vocabulary.save(folder)
    if name in ("t5", "albert", "xlnet"):
        (folder / files.MODEL).rename(folder / "spiece.model")
    elif name == "camembert":
        (folder / files.MODEL).rename(folder / "sentencepiece.bpe.model")
    else:
        fields = json.loads((folder / files.TOKENIZER).read_bytes())["model"]
        (folder / files.TOKENIZER).unlink()
        tokens = sorted(fields["vocab"], key=fields["vocab"].get)
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
        if name == "roberta":
            (folder / "vocab.json").write_text(json.dumps(fields["vocab"]))
            merges = "\n".join(" ".join(pair) for pair in fields["merges"])
            (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    return folder


def ids_of(tokenizer, texts=TEXTS):
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


@pytest.fixture(params=KINDS)
def saved(request, vocabularies, tmp_path):
    """transformers' tokenizer, and the directory that it has saved."""
    normalizers = pytest.importorskip("tokenizers").normalizers
    cls, made_from, family = KINDS[request.param]
    folder = source(vocabularies[made_from], request.param, tmp_path / "source")
    options = {"strip_accents": False} if request.param == "bert" else {}
    tokenizer = getattr(transformers, cls).from_pretrained(folder, **options)
    own = [normalizers.Replace("—", " - ")]
    before = tokenizer.backend_tokenizer.normalizer
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(
        [*own, *([before] if before else [])]
    )
    tokenizer.add_tokens([*ADDED])
    tokenizer.add_special_tokens({"additional_special_tokens": [MARK]}, False)
    tokenizer.save_pretrained(tmp_path / "saved")
    return tokenizer, tmp_path / "saved", family


def test_ids_are_those_of_transformers_before_and_after_a_round_trip(saved, tmp_path):
    tokenizer, folder, family = saved
    vocabulary, line = from_files.find(folder)
    assert vocabulary is not None, line
    expected = ids_of(tokenizer)
    assert [list(ids) for ids in vocabulary.encode_batch(TEXTS)] == expected
    assert vocabulary.vocab_size == max(tokenizer.get_vocab().values()) + 1
    for token in (*ADDED, MARK):
        assert vocabulary.piece(tokenizer.convert_tokens_to_ids(token)).strip("▁") == token
    ids = vocabulary.token_ids
    for role in ("pad", "cls", "sep", "mask"):
        if (theirs := getattr(tokenizer, f"{role}_token_id")) is not None:
            assert getattr(ids, role) == theirs

    to_files.write(vocabulary, tmp_path / "exported", model_type=family)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert ids_of(again) == expected
    assert from_files.find(tmp_path / "exported")[0] == vocabulary
    assert loading.load(folder) == vocabulary


def test_words_and_sentinels(saved):
    tokenizer, folder, _ = saved
    vocabulary, _ = from_files.find(folder)
    ids = vocabulary.token_ids
    starts = [bool(ids.word_starts[i]) for i in vocabulary.encode("a return xylograph")]
    assert starts[1]
    assert starts[-1]
    if ids.sentinels:
        text = "The <extra_id_0> value <extra_id_99> of it"
        assert vocabulary.encode_with_sentinels(text) == ids_of(tokenizer, [text])[0]
        assert vocabulary.decode(vocabulary.encode_with_sentinels(text)) == text
        assert ids.sentinel(0) == tokenizer.convert_tokens_to_ids("<extra_id_0>")


def test_tokens_that_somebody_adds_to_an_export_count(vocabularies, tmp_path):
    for name, family in (("wordpiece", "bert"), ("unigram", "t5")):
        exported = tmp_path / name
        to_files.write(vocabularies[name], exported, model_type=family)
        tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
        tokenizer.add_tokens([*ADDED])
        tokenizer.save_pretrained(exported)
        vocabulary, line = from_files.find(exported)
        assert vocabulary.vocab_size == vocabularies[name].vocab_size + len(ADDED), line
        assert vocabulary.encode("a xylograph") == ids_of(tokenizer, ["a xylograph"])[0]


def test_what_a_model_file_does_not_say_is_read_from_the_tokenizer(vocabularies, tmp_path):
    """XLNet's tokenizer strips accents, which its .model does not."""
    folder = source(vocabularies["unigram"], "xlnet", tmp_path / "source")
    tokenizer = transformers.XLNetTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(tmp_path / "saved")
    shutil.copy(folder / "spiece.model", tmp_path / "saved")
    vocabulary, _ = from_files.find(tmp_path / "saved")
    assert vocabulary.encode("Größe été") == ids_of(tokenizer, ["Größe été"])[0]
