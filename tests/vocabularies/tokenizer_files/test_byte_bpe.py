"""Byte-level BPE from vocab.json with merges.txt, and from tokenizer.json."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_like.vocabularies import loading
from t5x_like.vocabularies.text import byte_level
from t5x_like.vocabularies.tokenizer_files import byte_bpe

MERGES = ["Ġ t", "h e", "Ġt he", "Ġ .", "# #"]


def write(directory: Path, *special: str, names: tuple[str, str] = byte_bpe.FILES[0]) -> Path:
    tokens = [*special, *byte_level.CHARACTERS, *(rule.replace(" ", "") for rule in MERGES)]
    directory.mkdir(exist_ok=True)
    vocab = json.dumps({token: i for i, token in enumerate(tokens)})
    (directory / names[0]).write_text(vocab, encoding="utf-8")
    text = "\n".join(["#version: 0.2", *MERGES, ""])
    (directory / names[1]).write_text(text, encoding="utf-8")
    return directory


@pytest.mark.parametrize("names", byte_bpe.FILES)
def test_a_pair_of_files(tmp_path, names):
    vocabulary = loading.load(write(tmp_path, "<|endoftext|>", names=names))
    ids = vocabulary.token_ids
    # GPT-2 has one special token for all roles, padding too.
    assert (ids.bos, ids.eos, ids.pad) == (0, 0, 0)
    assert ids.unk is ids.cls is ids.mask is None
    pieces = [vocabulary.piece(i) for i in vocabulary.encode("he the . é\n##")]
    assert pieces == ["he", "▁the", "▁.", "▁", "<0xC3>", "<0xA9>", "<0x0A>", "##"]
    starts, stops = ids.word_starts, ids.full_stops
    assert {vocabulary.piece(i) for i in range(vocabulary.vocab_size) if stops[i]} == {*".!?", "▁."}
    assert {"▁", "▁the", "<0x0A>"} < {
        vocabulary.piece(i) for i in range(vocabulary.vocab_size) if starts[i]
    }
    assert not starts[vocabulary.encode("##")].any()
    assert loading.load(tmp_path, extra_ids=3).vocab_size == vocabulary.vocab_size + 3


def test_robertas_names(tmp_path):
    vocabulary = loading.load(write(tmp_path, "<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    ids = vocabulary.token_ids
    assert (ids.bos, ids.cls, ids.pad, ids.eos, ids.sep, ids.unk, ids.mask) == (0, 0, 1, 2, 2, 3, 4)
    text = "<s> the<mask> </s>"
    assert not set(vocabulary.encode(text)) & set(ids.special)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.decode([0, *vocabulary.encode("the"), 2, 1, 1]) == "the"


def _tokenizer_json(directory: Path, **changes) -> Path:
    write(directory, "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    loading.load(directory).save(directory / "saved")
    fields = json.loads((directory / "saved/tokenizer.json").read_bytes())
    for name, value in changes.items():
        fields[name] = value(fields[name])
    path = directory / "changed" / "tokenizer.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(fields))
    return path


def test_a_tokenizer_json_by_itself(tmp_path):
    around = {
        "type": "RobertaProcessing",
        "sep": ["</s>", 2],
        "cls": ["<s>", 0],
        "trim_offsets": True,
        "add_prefix_space": False,
    }
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    new = {"id": 266, "content": "<|end|>", "special": True, "normalized": False}
    new |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    path = _tokenizer_json(
        tmp_path,
        truncation=lambda _: cut,
        post_processor=lambda _: around,
        added_tokens=lambda tokens: [*tokens, new],
    )
    pair = loading.load(tmp_path / "saved")
    for vocabulary in (loading.load(path), loading.load(path.parent)):
        ids = vocabulary.encode("the the the<|end|>")
        assert ids == [*pair.encode("the the the"), 266]
        assert vocabulary.vocab_size == pair.vocab_size + 1
        assert vocabulary.token_ids.named == {"<|end|>": 266}
        assert vocabulary.piece(266) == "<|end|>"


ENCODE = """
import os, sys
from t5x_like.vocabularies import loading
vocabulary = loading.load(sys.argv[1])
vocabulary.encode("one")
before = len(os.listdir("/proc/self/task"))
vocabulary.encode_batch(["one and two"] * 5000)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux does")
def test_a_batch_takes_no_threads(tmp_path):
    # A cache already has a worker process for each core.
    write(tmp_path, "<s>")
    usual = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-c", ENCODE, tmp_path]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=usual)
    assert done.stdout.strip() == "0"


def test_files_of_an_older_release_do_not_name_their_model(tmp_path):
    older = _tokenizer_json(tmp_path, model=lambda m: {k: v for k, v in m.items() if k != "type"})
    assert loading.load(older).encode("the") == loading.load(tmp_path / "saved").encode("the")


def test_broken_files_are_named(tmp_path):
    write(tmp_path, "<s>")
    with pytest.raises(ValueError, match=r"vocab\.json is not a tokenizer\.json.*directory"):
        loading.load(tmp_path / "vocab.json")
    (tmp_path / "merges.txt").write_text("x yz\n")
    with pytest.raises(ValueError, match=r"merges\.txt merges 'yz'"):
        loading.load(tmp_path)
    # GPT-1's files have these names too, but no bytes.
    (tmp_path / "vocab.json").write_text('{"x": 0, "yz</w>": 1}')
    (tmp_path / "merges.txt").write_text("x yz</w>\n")
    with pytest.raises(ValueError, match=r"vocab\.json is not of byte-level BPE: no token"):
        loading.load(tmp_path)
    (tmp_path / "merges.txt").write_text("not a merge\n")
    with pytest.raises(ValueError, match=r"are not the vocabulary \(JSON\) and the merges"):
        loading.load(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ValueError, match=r"nor vocab\.json with merges\.txt"):
        loading.load(tmp_path)
