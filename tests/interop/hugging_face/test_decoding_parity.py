"""Decoding equals transformers' `generate` token for token, with the same weights, on real text."""

import itertools

import numpy as np
import parity
import pytest
import torch
import transformers

from t5x_like.data.corpora import registry
from t5x_like.inference.decoding.decode import decode
from t5x_like.inference.decoding.settings import Decoding, Specials
from t5x_like.vocabularies.byte import ByteVocabulary

PAD, EOS, NEW = 0, 1, 12
ROWS, LENGTH = 200, 40
# Spread so widely that what a model writes depends on what it reads.
KINDS = {
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=384, d_model=32, d_ff=48, d_kv=8, num_heads=4, num_layers=2,
            initializer_factor=1.5, decoder_start_token_id=PAD,
        )
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=384, d_model=32, encoder_ffn_dim=48, decoder_ffn_dim=48, encoder_layers=2,
            decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, init_std=0.4,
            max_position_embeddings=64, pad_token_id=PAD, bos_token_id=2, eos_token_id=EOS,
            decoder_start_token_id=EOS, forced_eos_token_id=None,
        )
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=384, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=48,
            initializer_range=0.4, bos_token_id=EOS, eos_token_id=EOS,
        )
    ),
}  # fmt: skip
SETTINGS = {
    "greedy": {},
    "beams": {"num_beams": 4, "length_penalty": 0.6},
    "early": {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True,
              "num_return_sequences": 3},
    "never": {"num_beams": 3, "early_stopping": "never", "length_penalty": -1.0},
    "rules": {"num_beams": 2, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3,
              "min_new_tokens": 5, "forced_eos_token_id": EOS, "forced_bos_token_id": 70},
    "greedy rules": {"no_repeat_ngram_size": 3, "repetition_penalty": 1.2},
}  # fmt: skip


def texts():
    """Real text: lines of Python's documentation, as bytes."""
    vocabulary = ByteVocabulary()
    documents = registry.get("stdlib_docs").documents("validation")
    lines = (
        line.strip() for document in documents for line in "".join(document["targets"]).splitlines()
    )
    return [vocabulary.encode(x)[:LENGTH] for x in itertools.islice(filter(None, lines), ROWS)]


@pytest.fixture(scope="module", params=KINDS)
def both(request, tmp_path_factory):
    torch.manual_seed(0)
    theirs = KINDS[request.param]().eval()
    return theirs, parity.ours_of(theirs, tmp_path_factory.mktemp(request.param))


def padded(rows, *, left):
    counts = np.zeros((len(rows), LENGTH), np.int32)
    tokens = counts.copy()
    for ids, count, row in zip(tokens, counts, rows, strict=True):
        where = slice(LENGTH - len(row), None) if left else slice(len(row))
        ids[where], count[where] = row, 1
    return tokens, counts


def generated(model, tokens, counts, eos, **settings):
    with torch.no_grad():
        found = model.generate(
            torch.tensor(tokens).long(),
            attention_mask=torch.tensor(counts).long(),
            generation_config=transformers.GenerationConfig(
                max_new_tokens=NEW,
                eos_token_id=eos,
                pad_token_id=PAD,
                decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
                **settings,
            ),
        ).numpy()
    new = found[:, 1 if model.config.is_encoder_decoder else tokens.shape[1] :]
    new = np.pad(new, ((0, 0), (0, NEW - new.shape[1])), constant_values=PAD)
    ended = np.cumsum(new == eos, axis=1) - (new == eos)
    return np.where(ended, PAD, new)  # their beam search fills up rows with the end


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_every_token_is_transformers(both, name):
    theirs, ours = both
    alone = not theirs.config.is_encoder_decoder
    settings = SETTINGS[name]
    tokens, counts = padded(texts(), left=alone)
    # An end that many rows reach, and others do not.
    endless = generated(theirs, tokens, counts, None)
    share = [(np.any(endless == i, axis=1).mean(), i) for i in range(2, 384)]
    eos = min(share, key=lambda one: abs(one[0] - 0.5))[1]
    if "forced_eos_token_id" in settings:
        settings = {**settings, "forced_eos_token_id": eos}
    if alone and "repetition_penalty" in settings:
        # There a first token can be forced only where an encoder reads the text.
        settings = {k: v for k, v in settings.items() if k != "forced_bos_token_id"}
        # Their rules count padding as text: one row at a time has none.
        rows = texts()[:24]
        tokens, counts = padded(rows, left=True)
        whole = [np.asarray(row)[None] for row in rows]
        want = [generated(theirs, row, np.ones_like(row), eos, **settings) for row in whole]
        want = np.concatenate(want)
    else:
        want = generated(theirs, tokens, counts, eos, **settings)
    if alone:
        batch = {"decoder_input_tokens": tokens, "decoder_segment_ids": counts}
    else:
        start = np.full((len(tokens), 1), theirs.config.decoder_start_token_id, np.int32)
        batch = {
            "encoder_input_tokens": tokens,
            "encoder_attention_mask": counts,
            "decoder_input_tokens": start,
        }
    found = decode(
        ours,
        batch,
        decoding=Decoding(max_new_tokens=NEW, **settings),
        specials=Specials(eos, PAD),
    )
    got = np.asarray(found.tokens).reshape(want.shape)
    assert np.any(got == eos, axis=1).mean() > 0.2
    assert len(np.unique(got, axis=0)) > 20
    np.testing.assert_array_equal(got, want)
