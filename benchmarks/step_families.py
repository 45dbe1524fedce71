"""The same random rows and models of transformers for each family, for `step_vs_hf.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import transformers
from torch.nn import functional

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.data.samples.packing import best_fit

IGNORED = -100  # the label that transformers leaves out of a loss
ARGUMENTS = {
    "input_ids": "encoder_input_tokens",
    "attention_mask": "encoder_attention_mask",
    "token_type_ids": "encoder_token_type_ids",
}

Batch = dict[str, np.ndarray]


class Theirs(NamedTuple):
    """A transformers model and the function that computes its loss."""

    model: torch.nn.Module
    loss: Callable[[], torch.Tensor]


def tensor(x: np.ndarray) -> torch.Tensor:
    """Ids or labels as torch needs them."""
    return torch.from_numpy(x.astype(np.int64))


class Rows:
    """Random text [rows, length] of ids from 1000 on, one row in eight a little shorter.

    With `any_length`, rows have from an eighth of the length to all of it.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        vocab_size: int,
        pad_id: int = 0,
        any_length: bool = False,
    ) -> None:
        self.random = np.random.default_rng(0)
        size, length = shape
        lengths = np.full(size, length)
        lengths[::8] -= length // 8
        if any_length:
            lengths = np.linspace(length // 8, length, size).astype(int)
        self.counts = (np.arange(length) < lengths[:, None]).astype(np.int32)
        drawn = self.random.integers(1000, vocab_size, shape, dtype=np.int32)
        self.tokens = np.where(self.counts, drawn, pad_id).astype(np.int32)

    def masked(self, mask_id: int) -> tuple[Batch, np.ndarray]:
        """What our encoders read, 15 % masked, and labels for transformers, [rows, length]."""
        size, length = self.tokens.shape
        slots = -(-15 * length // 100)
        shortest = self.counts.sum(axis=1).min()
        positions = np.stack(
            [np.sort(self.random.choice(shortest, slots, replace=False)) for _ in range(size)]
        ).astype(np.int32)
        targets = np.take_along_axis(self.tokens, positions, axis=1)
        tokens, labels = self.tokens.copy(), np.full(self.tokens.shape, IGNORED)
        np.put_along_axis(tokens, positions, mask_id, axis=1)
        np.put_along_axis(labels, positions, targets, axis=1)
        batch = {
            "encoder_input_tokens": tokens,
            "encoder_attention_mask": self.counts,
            "encoder_token_type_ids": (np.arange(length) >= length // 2) * self.counts,
            "masked_positions": positions,
            "masked_targets": targets,
            "masked_loss_weights": np.ones(positions.shape, np.float32),
        }
        return batch, labels

    def packed(self, mask_id: int) -> tuple[Batch, np.ndarray]:
        """As `masked`, with as many texts in each of our rows as fit; labels are of one a row."""
        tokens, labels = self.tokens.copy(), np.full(self.tokens.shape, IGNORED)
        texts = []
        for row, length in enumerate(self.counts.sum(axis=1)):
            slots = -(-15 * length // 100)
            places = np.sort(self.random.choice(length, slots, replace=False)).astype(np.int32)
            labels[row, places], tokens[row, places] = tokens[row, places], mask_id
            texts.append(
                {
                    "inputs": tokens[row, :length],
                    "masked_positions": places,
                    "masked_targets": labels[row, places].astype(np.int32),
                    "masked_loss_weights": np.ones(slots, np.float32),
                }
            )
        room = self.tokens.shape[1]
        shared = [*best_fit([self.counts.sum(axis=1)[None]], [room])]
        slots = max(sum(len(texts[n]["masked_positions"]) for n in row) for row in shared)
        features = {name: FeatureSpec(slots) for name in ("masked_positions", "masked_targets")}
        features |= {"inputs": FeatureSpec(room)}
        features["masked_loss_weights"] = FeatureSpec(slots, "float32")
        ids = TokenIds(int(self.tokens.max()) + 1, pad=0, eos=None)
        rows = [
            Encoder(pack=True).convert([texts[n] for n in row], features=features, ids=ids)
            for row in shared
        ]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}, labels

    def pairs(self) -> np.ndarray:
        """Labels of pairs of sentences, [rows]."""
        return self.random.integers(0, 2, len(self.tokens), dtype=np.int32)


def read(batch: Batch) -> dict[str, torch.Tensor]:
    """The arguments of an encoder."""
    return {theirs: tensor(batch[ours]) for theirs, ours in ARGUMENTS.items() if ours in batch}


def bert_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens and next sentences."""
    config = transformers.BertConfig()
    rows = Rows(shape, vocab_size=config.vocab_size)
    batch, labels = rows.masked(mask_id=103)
    batch["next_sentence_label"] = rows.pairs()
    model = transformers.BertForPreTraining(config)
    given = read(batch) | {
        "labels": tensor(labels),
        "next_sentence_label": tensor(batch["next_sentence_label"]),
    }
    return batch, Theirs(model, lambda: model(**given).loss)


def roberta_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens."""
    config = transformers.RobertaConfig(
        vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
    )
    batch, labels = Rows(shape, vocab_size=config.vocab_size, pad_id=1).masked(mask_id=50264)
    del batch["encoder_token_type_ids"]
    given = read(batch) | {"labels": tensor(labels)}
    model = transformers.RobertaForMaskedLM(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def modernbert_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens."""
    config = transformers.ModernBertConfig()  # it drops nothing
    rows = Rows(shape, vocab_size=50280, pad_id=config.pad_token_id or 0)
    batch, labels = rows.masked(mask_id=50284)
    del batch["encoder_token_type_ids"]
    given = read(batch) | {"labels": tensor(labels)}
    model = transformers.ModernBertForMaskedLM(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def modernbert_base_packed(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens of texts of many lengths, which are packed in our rows, and padded in theirs.

    Their packed rows need a kernel that CPUs lack.
    """
    config = transformers.ModernBertConfig()
    rows = Rows(shape, vocab_size=50280, pad_id=config.pad_token_id or 0, any_length=True)
    batch, labels = rows.packed(mask_id=50284)
    model = transformers.ModernBertForMaskedLM(config)
    given = {
        "input_ids": tensor(np.where(labels >= 0, 50284, rows.tokens)),
        "attention_mask": tensor(rows.counts),
        "labels": tensor(labels),
    }
    return batch, Theirs(model, lambda: model(**given).loss)


def deberta_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens by an encoder of the size of v3's base."""
    config = transformers.DebertaV2Config(
        hidden_size=768,
        num_attention_heads=12,
        num_hidden_layers=12,
        intermediate_size=3072,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type="c2p|p2c",
        position_biased_input=False,
    )
    batch, labels = Rows(shape, vocab_size=config.vocab_size).masked(mask_id=128000)
    del batch["encoder_token_type_ids"]
    given = read(batch) | {"labels": tensor(labels)}
    model = transformers.DebertaV2ForMaskedLM(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def albert_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Masked tokens and the order of sentences, as in version 2."""
    config = transformers.AlbertConfig(
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    rows = Rows(shape, vocab_size=config.vocab_size)
    batch, labels = rows.masked(mask_id=4)
    batch["sentence_order_label"] = rows.pairs()
    model = transformers.AlbertForPreTraining(config)
    given = read(batch) | {
        "labels": tensor(labels),
        "sentence_order_label": tensor(batch["sentence_order_label"]),
    }
    return batch, Theirs(model, lambda: model(**given).loss)


def electra_small(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """A generator of a quarter of the width, sampled from, and a discriminator."""
    config = transformers.ElectraConfig()
    narrow = transformers.ElectraConfig(
        hidden_size=64, num_attention_heads=1, intermediate_size=256
    )
    discriminator = transformers.ElectraForPreTraining(config)
    generator = transformers.ElectraForMaskedLM(narrow)
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    rows = Rows(shape, vocab_size=config.vocab_size)
    batch, labels = rows.masked(mask_id=103)
    given, original, targets = read(batch), tensor(rows.tokens), tensor(labels)
    is_masked, counts = targets != IGNORED, given["attention_mask"].bool()
    context = {name: given[name] for name in ("attention_mask", "token_type_ids")}

    def loss() -> torch.Tensor:
        logits = generator(**given).logits[is_masked]
        generated = functional.cross_entropy(logits, targets[is_masked])
        with torch.no_grad():
            noise = -torch.empty_like(logits).exponential_().log()
            read_tokens = original.clone()
            read_tokens[is_masked] = (logits + noise).argmax(dim=-1)
        found = discriminator(input_ids=read_tokens, **context).logits[counts]
        replaced = (read_tokens != original)[counts].float()
        detected = functional.binary_cross_entropy_with_logits(found, replaced)
        return generated + 50.0 * detected

    return batch, Theirs(torch.nn.ModuleList([discriminator, generator]), loss)


def xlnet_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """One token in six, predicted in a random order, without memory."""
    config = transformers.XLNetConfig(
        d_model=768, n_layer=12, n_head=12, d_inner=3072, use_mems_train=False
    )
    rows = Rows(shape, vocab_size=config.vocab_size, pad_id=5)
    batch, _ = rows.masked(mask_id=6)
    (size, length), count = shape, shape[1] // 6
    order = np.stack([rows.random.permutation(length) for _ in range(size)]).astype(np.int32)
    # The last tokens in the order, among tokens that are not padding, are predicted.
    last = np.argsort(np.where(rows.counts, order, -1), axis=1)[:, -count:]
    positions = np.sort(last, axis=1).astype(np.int32)
    targets = np.take_along_axis(rows.tokens, positions, axis=1)
    is_target = np.zeros(shape, bool)
    np.put_along_axis(is_target, positions, True, axis=1)
    # All see a token that is not predicted; those after a predicted token see it.
    query, key = np.where(is_target, order, 0), np.where(is_target, order, -1)
    batch |= {
        "encoder_input_tokens": rows.tokens,
        "masked_positions": positions,
        "masked_targets": targets,
        "masked_loss_weights": np.ones(positions.shape, np.float32),
        "permutation_query_order": query,
        "permutation_key_order": key,
        "reset_memory": np.ones(size, np.int32),
        "backward": np.zeros(size, np.int32),
    }
    given = read(batch) | {
        "perm_mask": torch.from_numpy((query[:, :, None] <= key[:, None]).astype(np.float32)),
        "target_mapping": torch.from_numpy(np.eye(length, dtype=np.float32)[positions]),
        "labels": tensor(targets),
    }
    model = transformers.XLNetLMHeadModel(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def _translated(
    inputs: Rows, outputs: Rows, *, start: int
) -> tuple[Batch, dict[str, torch.Tensor]]:
    """An encoder-decoder's batch and their model; the decoder starts from `start`."""
    shifted = np.pad(outputs.tokens, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
    batch = {
        "encoder_input_tokens": inputs.tokens,
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": outputs.tokens,
        "decoder_loss_weights": outputs.counts.astype(np.float32),
    }
    labels = np.where(outputs.counts, outputs.tokens, IGNORED)
    return batch, {
        "input_ids": tensor(inputs.tokens),
        "attention_mask": tensor(inputs.counts),
        "labels": tensor(labels),
    }


def t5_small(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Spans of a row four times as long (512 and 114 tokens)."""
    config = transformers.T5Config(
        d_model=512, d_ff=2048, num_layers=6, num_heads=8, d_kv=64, decoder_start_token_id=0
    )
    inputs = Rows((shape[0], 4 * shape[1]), vocab_size=config.vocab_size)
    outputs = Rows((shape[0], 114 * shape[1] // 128), vocab_size=config.vocab_size)
    batch, given = _translated(inputs, outputs, start=0)
    model = transformers.T5ForConditionalGeneration(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def longt5_tglobal_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """Gap sentences of a row eight times as long (1,024 and 227 tokens)."""
    config = transformers.LongT5Config(
        d_model=768,
        d_ff=2048,
        num_layers=12,
        num_heads=12,
        feed_forward_proj="gated-gelu",
        encoder_attention_type="transient-global",
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    inputs = Rows((shape[0], 8 * shape[1]), vocab_size=config.vocab_size)
    outputs = Rows((shape[0], 8 * shape[1] * 910 // 4096), vocab_size=config.vocab_size)
    batch, given = _translated(inputs, outputs, start=0)
    model = transformers.LongT5ForConditionalGeneration(config)
    return batch, Theirs(model, lambda: model(**given).loss)


def bart_base(shape: tuple[int, int]) -> tuple[Batch, Theirs]:
    """A row, and a target of the same length."""
    config = transformers.BartConfig(
        vocab_size=50265,
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        attention_dropout=0.1,
    )
    rows = [Rows(shape, vocab_size=config.vocab_size, pad_id=1) for _ in range(2)]
    batch, given = _translated(*rows, start=2)
    model = transformers.BartForConditionalGeneration(config)
    return batch, Theirs(model, lambda: model(**given).loss)


_MADE_BY = (
    *(bert_base, electra_small, roberta_base, modernbert_base, xlnet_base, albert_base),
    *(modernbert_base_packed, deberta_base, t5_small, longt5_tglobal_base, bart_base),
)
FAMILIES = {make.__name__: make for make in _MADE_BY}
