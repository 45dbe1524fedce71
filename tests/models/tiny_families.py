"""A small model of every family, and random batches in which rows predict unequal numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from t5x_like.layers.heads import label_heads
from t5x_like.models import (
    albert,
    awd_lstm,
    bart,
    bart_decoder,
    bert,
    bert_decoder,
    canine,
    canine_pretraining,
    deberta_v3,
    distilbert,
    electra,
    eurobert,
    gpt,
    led,
    longformer,
    longt5,
    modernbert,
    modernbert_decoder,
    neobert,
    prefix_lm,
    skip_gram,
    spanbert,
    t5,
)
from t5x_like.models import xlnet as xl
from t5x_like.models.double_heads import DoubleHeads

VOCAB, LENGTH, SLOTS, ROWS = 64, 16, 6, 16
_SIZES = {"vocab_size": VOCAB, "d_model": 16, "d_ff": 32, "num_heads": 4}
_ENCODER = {**_SIZES, "num_layers": 2, "max_positions": LENGTH + 2}
_SIDES = {**_SIZES, "num_encoder_layers": 2, "num_decoder_layers": 2}

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Family:
    """A constructor, a configuration without dropout, and the kind of its batches."""

    model: Callable[..., Any]
    config: Any
    batch: Callable[[np.random.Generator], Batch]

    def make(self, **changes: Any) -> Callable[..., Any]:
        config = dataclasses.replace(self.config, **changes)
        return lambda *, rngs: self.model(config, rngs=rngs)


def masked(rng: np.random.Generator) -> Batch:
    """For encoders: rows of different lengths; one is only padding."""
    lengths = rng.integers(6, LENGTH + 1, ROWS)
    lengths[-1] = 0
    counts = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    slots = np.minimum(rng.integers(1, SLOTS + 1, ROWS), lengths)
    weights = (np.arange(SLOTS) < slots[:, None]).astype(np.float32)
    order = np.argsort(rng.random((ROWS, LENGTH)) + (1 - counts), axis=1)[:, :SLOTS]
    return {
        "encoder_input_tokens": _tokens(rng, LENGTH) * counts,
        "encoder_attention_mask": counts,
        "encoder_token_type_ids": (np.arange(LENGTH) > 7).astype(np.int32) * counts,
        "masked_positions": (order * (weights > 0)).astype(np.int32),
        "masked_targets": _tokens(rng, SLOTS) * (weights > 0),
        "masked_loss_weights": weights,
        "next_sentence_label": rng.integers(0, 2, ROWS).astype(np.int32),
        "sentence_order_label": rng.integers(0, 2, ROWS).astype(np.int32),
    }


def with_global_tokens(rng: np.random.Generator) -> Batch:
    batch = masked(rng)
    return batch | {
        "encoder_global_mask": (batch["encoder_input_tokens"] % 5 == 1).astype(np.int32)
    }


def with_subwords(rng: np.random.Generator) -> Batch:
    batch = masked(rng)
    return batch | {"masked_subwords": batch["masked_targets"] % 30}


def with_boundaries(rng: np.random.Generator) -> Batch:
    batch = masked(rng)
    at = batch["masked_positions"]
    return batch | {
        "boundary_left_positions": np.maximum(at - 1, 0),
        "boundary_right_positions": np.minimum(at + 1, LENGTH - 1),
        "boundary_offsets": rng.integers(0, 3, at.shape).astype(np.int32),
        "boundary_loss_weights": batch["masked_loss_weights"] * (at > 1),
    }


def taught(rng: np.random.Generator) -> Batch:
    return masked(rng) | {
        "teacher_logits": rng.normal(size=(ROWS, LENGTH, VOCAB)).astype(np.float32),
        "teacher_states": rng.normal(size=(ROWS, LENGTH, 16)).astype(np.float32),
    }


def permuted(rng: np.random.Generator) -> Batch:
    batch = masked(rng)
    order = rng.permuted(np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)), axis=1)
    return batch | {
        "permutation_query_order": order,
        "permutation_key_order": order,
        "reset_memory": rng.integers(0, 2, ROWS).astype(np.int32),
        "backward": rng.integers(0, 2, ROWS).astype(np.int32),
    }


def translated(rng: np.random.Generator) -> Batch:
    batch = {"encoder_input_tokens": _tokens(rng, LENGTH)}
    batch["encoder_input_tokens"][:, -3:] = 0
    return batch | written(rng)


def written(rng: np.random.Generator) -> Batch:
    counts = np.arange(12) < rng.integers(2, 13, (ROWS, 1))
    targets = _tokens(rng, 12) * counts
    return {
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
        "decoder_target_tokens": targets.astype(np.int32),
        "decoder_loss_weights": counts.astype(np.float32),
    }


def around(rng: np.random.Generator) -> Batch:
    """Words that see up to three others; one row is only padding."""
    lengths = rng.integers(2, LENGTH + 1, ROWS)
    lengths[3] = 0
    radius = rng.integers(1, 4, (ROWS, LENGTH, 1))
    present = np.arange(LENGTH) < lengths[:, None]
    return {
        "encoder_input_tokens": _tokens(rng, LENGTH) * present,
        "encoder_attention_mask": present.astype(np.int32),
        "reach": ((np.arange(3) < radius) * present[..., None]).astype(np.int32),
        "negatives": rng.integers(0, VOCAB, (ROWS, LENGTH, 4)).astype(np.int32),
    }


def chosen(rng: np.random.Generator) -> Batch:
    """Two texts a row, of which one is right; the last row has no choice."""
    texts = [written(rng) for _ in range(2)]
    batch = {name: np.stack([text[name] for text in texts], axis=1) for name in texts[0]}
    labels = rng.integers(0, 2, ROWS).astype(np.int32)
    labels[-1] = -1
    return batch | {"labels": labels}


def _two_heads(config: gpt.Config, *, rngs: Any) -> DoubleHeads:
    head = functools.partial(
        label_heads.SequenceHead, num_labels=1, pool=label_heads.last_that_counts
    )
    return DoubleHeads(functools.partial(gpt.Gpt, config), head, rngs=rngs)


def _tokens(rng: np.random.Generator, length: int) -> np.ndarray:
    return rng.integers(4, VOCAB, (ROWS, length)).astype(np.int32)


_STILL = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
_BERT = bert.Config(**_ENCODER, **_STILL)
_ELECTRA = electra.Config(**_ENCODER, **_STILL, d_embedding=8, generator_width=0.5)
FAMILIES = {
    "bert": Family(bert.Bert, _BERT, masked),
    "roberta": Family(
        bert.Bert,
        dataclasses.replace(_BERT, padding_position=0, type_vocab_size=1, sentence_head=False),
        masked,
    ),
    "spanbert": Family(spanbert.SpanBert, spanbert.Config(**_ENCODER, **_STILL), with_boundaries),
    "distilbert": Family(distilbert.DistilBert, distilbert.Config(**_ENCODER, **_STILL), taught),
    "modernbert": Family(
        modernbert.ModernBert,
        modernbert.Config(**{**_ENCODER, "num_layers": 3}, window=2, global_every=2),
        masked,
    ),
    "neobert": Family(neobert.NeoBert, neobert.Config(**_ENCODER), masked),
    "eurobert": Family(eurobert.EuroBert, eurobert.Config(**_ENCODER, num_kv_heads=2), masked),
    "longformer": Family(
        longformer.Longformer,
        longformer.Config(**_ENCODER, **_STILL, window=3, padding_position=0),
        with_global_tokens,
    ),
    "canine_c": Family(
        canine_pretraining.CanineC,
        canine.Config(**_ENCODER, **_STILL, num_hashes=4, num_buckets=24, block=6),
        masked,
    ),
    "canine_s": Family(
        canine_pretraining.CanineS,
        canine.Config(
            **_ENCODER, **_STILL, num_hashes=2, num_buckets=24, block=LENGTH, num_subwords=30
        ),
        with_subwords,
    ),
    "deberta_v3": Family(
        deberta_v3.DebertaV3,
        deberta_v3.Config(**{**_ENCODER, "num_layers": 4}, **_STILL, buckets=8),
        masked,
    ),
    "albert": Family(albert.Albert, albert.Config(**_ENCODER, **_STILL, d_embedding=8), masked),
    "electra": Family(electra.Electra, _ELECTRA, masked),
    "electra_all_tokens": Family(
        electra.Electra,
        dataclasses.replace(_ELECTRA, discriminator=electra.AllTokens, discriminator_weight=1.0),
        masked,
    ),
    "xlnet": Family(xl.XLNet, xl.Config(**_SIZES, **_STILL, num_layers=2, mem_len=8), permuted),
    "t5": Family(t5.T5, t5.Config(**_SIDES, d_kv=4), translated),
    "longt5": Family(
        longt5.LongT5, longt5.Config(**_SIDES, d_kv=4, local_radius=3, summed_block=4), translated
    ),
    "bart": Family(
        bart.Bart, bart.Config(**_SIDES, **_STILL, max_positions=LENGTH, pad_id=0), translated
    ),
    "led": Family(
        led.Led,
        led.Config(
            **_SIDES, **_STILL, max_positions=LENGTH, window=3, pad_id=0, global_tokens="first"
        ),
        translated,
    ),
    "skip_gram": Family(skip_gram.SkipGram, skip_gram.Config(vocab_size=VOCAB, d_model=16), around),
    "awd_lstm": Family(
        awd_lstm.AwdLstm,
        awd_lstm.Config(vocab_size=VOCAB, d_embedding=16, cells=24, dropout_multiplier=0.0),
        written,
    ),
    "gpt": Family(gpt.Gpt, gpt.Config(**_ENCODER, **_STILL), written),
    "gpt_two_heads": Family(_two_heads, gpt.Config(**_ENCODER, **_STILL, pad_id=0), chosen),
    "bert_decoder": Family(
        bert_decoder.BertDecoder,
        bert_decoder.Config(**_ENCODER, **_STILL, d_embedding=8, padding_position=0),
        written,
    ),
    "modernbert_decoder": Family(
        modernbert_decoder.ModernBertDecoder,
        modernbert_decoder.Config(**{**_ENCODER, "num_layers": 3}, window=2, global_every=2),
        written,
    ),
    "bart_decoder": Family(
        bart_decoder.BartDecoder,
        bart_decoder.Config(
            **_SIZES, **_STILL, num_decoder_layers=2, max_positions=LENGTH, pad_id=0, pre_norm=True
        ),
        written,
    ),
    "prefix_lm": Family(
        prefix_lm.PrefixLm,
        prefix_lm.Config(**_SIZES, d_kv=4, num_decoder_layers=2),
        written,
    ),
}
