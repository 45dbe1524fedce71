"""Kinds of the `tokenizers` library, characters, and saved vocabularies."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from mutations import of_bytes, of_json, of_text, one_of

from t5x_like.interop.tokenizers import from_files
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning import vocabulary_recipe
from t5x_like.vocabularies.passthrough import PassThroughVocabulary

TEXTS = [f"the value {i} of a list is text, if not a class é" for i in range(200)]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s", "value", "a", "é"]


def make(folder):
    for kind, size in (("wordpiece", 80), ("byte_bpe", 290), ("characters", 40)):
        recipe = vocabulary_recipe.Recipe(kind=kind, size=size, extra_ids=3)
        vocabulary_recipe.train(TEXTS, folder / kind, recipe, progress=False)
        if kind != "characters":
            (folder / f"{kind}-json").mkdir()
            fields = json.loads((folder / kind / "tokenizer.json").read_bytes())
            (folder / f"{kind}-json" / "tokenizer.json").write_text(json.dumps(fields))
    pieces = [["<unk>", 0.0], ["▁", -2.0], *([one, -3.0] for one in ("▁the", "value", "a", "é"))]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    unigram = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}]},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, space],
        },
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False},
    }
    (folder / "unigram").mkdir()
    (folder / "unigram" / "tokenizer.json").write_text(json.dumps(unigram))
    ByteVocabulary(5).save(folder / "bytes")
    PassThroughVocabulary(90, 1).save(folder / "ids")
    (folder / "vocab").mkdir()
    (folder / "vocab" / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "vocab" / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer", "extra_ids": 3})
    )
    (folder / "pair").mkdir()
    fields = json.loads((folder / "byte_bpe" / "tokenizer.json").read_bytes())["model"]
    (folder / "pair" / "vocab.json").write_text(json.dumps(fields["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in fields["merges"])
    (folder / "pair" / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")


def read(folder):
    if (folder / "tokenizer_config.json").exists():
        vocabulary, note = from_files.find(folder)
        if vocabulary is None:
            raise ValueError(note)
    else:
        vocabulary = loading.load(folder)
    if not isinstance(vocabulary, PassThroughVocabulary):
        ids = vocabulary.encode_with_sentinels("the value of é 語")
        vocabulary.decode(ids)
        vocabulary.encode_batch(["a", " b"])
        getattr(vocabulary, "encode_following", vocabulary.encode_batch)(["a", " b"])
    vocabulary.token_ids  # noqa: B018 (computed when asked for)
    for i in range(min(vocabulary.vocab_size, 1000)):
        vocabulary.piece(i)
    vocabulary.save(folder / "again")


def damage(draw, files):
    name = draw(st.sampled_from(sorted(files)))
    change = draw(
        st.sampled_from(
            [of_json, of_json, of_bytes] if name.endswith("json") else [of_text, of_bytes]
        )
    )
    return one_of(draw, files, change, [name])


def test_damaged_tokenizers(fuzz):
    fuzz(__file__, damage)
