"""Each published family's special tokens, by the names in its vocabulary."""

import pytest

from t5x_like.vocabularies import special_tokens

FAMILIES = {
    "T5": ("<pad> </s> <unk>", {"pad": 0, "eos": 1, "unk": 2}, {}),
    "BERT": (
        "[PAD] [UNK] [CLS] [SEP] [MASK]",
        {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4},
        {},
    ),
    "ALBERT": (
        "<pad> <unk> [CLS] [SEP] [MASK]",
        {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4},
        {},
    ),
    "XLNet": (
        "<unk> <s> </s> <cls> <sep> <pad> <mask> <eod> <eop>",
        {"unk": 0, "bos": 1, "eos": 2, "cls": 3, "sep": 4, "pad": 5, "mask": 6},
        {"<eod>": 7, "<eop>": 8},
    ),
    "RoBERTa and BART": (
        "<s> <pad> </s> <unk> <mask>",
        {"bos": 0, "cls": 0, "pad": 1, "eos": 2, "sep": 2, "unk": 3, "mask": 4},
        {},
    ),
    "GPT-2": ("<|endoftext|>", {"bos": 0, "eos": 0}, {}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_roles_are_found_by_name(family):
    names, roles, named = FAMILIES[family]
    ids = {name: i for i, name in enumerate(names.split())}
    nothing = dict.fromkeys(special_tokens.ROLES)
    found = special_tokens.by_role(ids)
    assert found == nothing | roles
    assert special_tokens.additional_ids(ids, found) == named
    assert all(map(special_tokens.is_special, ids))


def test_ours_serve_every_objective():
    ids = {name: i for i, name in enumerate(special_tokens.TRAINED)}
    roles = special_tokens.by_role(ids)
    assert [roles[name] for name in ("pad", "eos", "unk", "cls", "sep", "mask")] == [*range(6)]
    assert roles["bos"] is None
    assert special_tokens.additional_ids(ids, roles) == {"[R]": 6, "[S]": 7, "[X]": 8, "<eod>": 9}


def test_ordinary_text_is_not_special():
    assert not any(map(special_tokens.is_special, ["cls", "[cls]", "##s", "[unused1]", "s", ""]))
