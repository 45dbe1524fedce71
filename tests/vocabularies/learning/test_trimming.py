"""A trimmed vocabulary divides its text as before, with fewer ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t5x_like.cli import main
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.interop.tokenizers import kinds
from t5x_like.vocabularies import carrying, loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning import trimming
from t5x_like.vocabularies.subwords import SubwordVocabulary

SOME = ["She was talking about the dog.", "A quick fox"]
OTHER = "the quick dog was a fox"  # of the same characters


@pytest.mark.parametrize("written", [False, True], ids=["", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece", "byte_bpe"])
def test_the_text_is_divided_as_before(
    kind: str, written: bool, trained: dict[str, Vocabulary], tmp_path: Path
) -> None:
    base = trained[kind]
    if written:  # as for users of transformers
        base.save(tmp_path)
        base = SubwordVocabulary(json.dumps(kinds.describe(base, tmp_path)))
    new = trimming.trim(base, SOME)
    assert new.vocab_size < base.vocab_size
    assert new.decode(new.encode(SOME[0])) == base.decode(base.encode(SOME[0]))
    assert new.token_ids.unk not in new.encode(OTHER)
    assert new.decode(new.encode_with_sentinels("a <extra_id_7> dog")) == "a <extra_id_7> dog"
    ours, theirs = new.token_ids.to_json(), base.token_ids.to_json()
    assert {name for name, i in ours.items() if i is None} == {
        name for name, i in theirs.items() if i is None
    }
    of = carrying.carried(new, base, range(new.vocab_size))
    assert [*of] == [*range(new.vocab_size)]
    assert all([base.piece(i) for i in ids] == [new.piece(n)] for n, ids in of.items())
    assert trimming.trim(new, SOME).vocab_size == new.vocab_size


def test_ids_around_a_text_and_of_tokens_of_a_user_are_renumbered(
    trained: dict[str, Vocabulary],
) -> None:
    base = trained["wordpiece"]
    assert isinstance(base, SubwordVocabulary)
    fields = json.loads(base.tokenizer_json)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special", "normalized"), False)
    number = len(fields["model"]["vocab"])
    fields["added_tokens"].append({"id": number, "content": "[E1]", **flags})
    ids = base.token_ids
    fields["post_processor"] = {
        "type": "BertProcessing",
        "sep": ["[SEP]", ids.sep],
        "cls": ["[CLS]", ids.cls],
    }
    new = trimming.trim(SubwordVocabulary(json.dumps(fields)), SOME)
    assert isinstance(new, SubwordVocabulary)
    (marked,) = new.encode("[E1]")
    assert new.piece(marked) == "▁[E1]"
    step = json.loads(new.tokenizer_json)["post_processor"]
    assert step["sep"] == ["[SEP]", new.token_ids.sep]


def test_a_command_writes_it(trained: dict[str, Vocabulary], tmp_path: Path, capsys) -> None:
    trained["bpe"].save(tmp_path / "base")
    (tmp_path / "text.txt").write_text("\n\n".join(SOME * 20))
    of = ["vocab", "--corpus", str(tmp_path / "text.txt"), "--trim", str(tmp_path / "base")]
    assert main.main([*of, "--output", str(tmp_path / "new")]) == 0
    new = loading.load(tmp_path / "new")
    assert new.vocab_size < trained["bpe"].vocab_size
    assert f"{new.vocab_size} of {trained['bpe'].vocab_size} ids" in capsys.readouterr().out
    for more in (["--type", "bpe"], ["--size", "50"], ["--extend", "x"]):
        with pytest.raises(SystemExit):
            main.main([*of, "--output", str(tmp_path / "no"), *more])


def test_bytes_cannot_be_trimmed() -> None:
    with pytest.raises(ValueError, match="only a vocabulary of pieces can be trimmed"):
        trimming.trim(ByteVocabulary(), SOME)
