"""The files of an exported directory besides weights, as transformers' users see them."""

from __future__ import annotations

import json
import os

import pytest
from flax import nnx

from t5x_like.interop.hugging_face import model_directory
from t5x_like.interop.tokenizers import to_files
from t5x_like.models import bart, bert, t5

transformers = pytest.importorskip("transformers")

SIZES = {"d_model": 16, "d_ff": 24, "num_heads": 2}


def exported(model, vocabulary, folder):
    """The directory as `t5x_like export` writes it."""
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    model_directory.write(folder, model, params, ids=vocabulary.token_ids)
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    length = model_directory.max_length(model)
    to_files.write(vocabulary, folder, model_type=kind, max_length=length)
    return folder


def made(kind, vocabulary):
    size = {"vocab_size": vocabulary.vocab_size, **SIZES}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    rngs = nnx.Rngs(0)
    if kind == "bert":
        return bert.Bert(bert.Config(**size, num_layers=1, max_positions=16), rngs=rngs)
    if kind == "roberta":
        pad = vocabulary.token_ids.pad
        fields = {"padding_position": pad, "type_vocab_size": 1, "max_positions": 17 + pad}
        fields["sentence_head"] = False
        return bert.Bert(bert.Config(**size, num_layers=1, **fields), rngs=rngs)
    if kind == "bart":
        return bart.Bart(bart.Config(**size, **layers, max_positions=16), rngs=rngs)
    return t5.T5(t5.Config(**size, **layers, d_kv=8), rngs=rngs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "bart"])
def test_long_text_is_truncated_to_what_the_model_reads(vocabularies, tmp_path, kind):
    """Without a length in the tokenizer's files, pipelines crash inside the model."""
    vocabulary = vocabularies["wordpiece" if kind == "bert" else "byte_bpe"]
    folder = exported(made(kind, vocabulary), vocabulary, tmp_path)
    ask = transformers.pipeline("feature-extraction", str(folder), framework="pt")
    (states,) = ask("a few words " * 50, truncation=True)
    assert len(states) == 16


def test_all_special_tokens_are_known_and_all_files_can_be_read(vocabularies, tmp_path):
    vocabulary = vocabularies["wordpiece"]
    exported(made("bert", vocabulary), vocabulary, tmp_path)
    ids = vocabulary.token_ids
    names = {vocabulary.piece(i) for i in ids.special} | set(ids.named)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert names <= set(tokenizer.all_special_tokens)
    said = json.loads((tmp_path / "special_tokens_map.json").read_text())
    assert said["mask_token"] == "[MASK]"
    assert "<eod>" in said["additional_special_tokens"]
    mask = os.umask(0)
    os.umask(mask)
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.is_file()
    }
    assert set(modes.values()) == {0o666 & ~mask}, modes
    assert not (tmp_path / "generation_config.json").exists()


def test_what_generates_says_with_which_ids(vocabularies, tmp_path):
    vocabulary = vocabularies["unigram"]
    exported(made("t5", vocabulary), vocabulary, tmp_path)
    found = transformers.GenerationConfig.from_pretrained(tmp_path)
    ids = vocabulary.token_ids
    assert (found.eos_token_id, found.pad_token_id) == (ids.eos, ids.pad)
    assert found.decoder_start_token_id == ids.pad
    # It has no limit of positions.
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer("a few words " * 500, truncation=True).input_ids) > 1000
