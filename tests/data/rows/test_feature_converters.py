"""The converters against SeqIO's, padded and packed, and beyond what SeqIO does."""

from __future__ import annotations

import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import (
    Decoder,
    Encoder,
    EncoderDecoder,
    PrefixDecoder,
    default_converter,
    start_id,
)

LENGTHS = {"inputs": 10, "targets": 7}
FEATURES = {name: FeatureSpec(length) for name, length in LENGTHS.items()}
IDS = TokenIds(50)
RoBERTa = TokenIds(60, pad=1, eos=2, unk=3, bos=0, cls=0, sep=2, mask=59)


def tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def convert(converter, examples: list[dict], ids: TokenIds = IDS) -> dict[str, np.ndarray]:
    return converter.convert(examples, features=FEATURES, ids=ids)


def random_examples(count: int, *, longest: dict[str, int], seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            name: rng.integers(1, 50, rng.integers(1, n + 1)).astype(np.int32)
            for name, n in longest.items()
        }
        for _ in range(count)
    ]


def seqio_rows(examples: list[dict], converter: seqio.FeatureConverter) -> list[dict]:
    lengths = {name: LENGTHS[name] for name in examples[0]}
    spec = {name: tf.TensorSpec([None], tf.int32) for name in lengths}
    ds = tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=spec)
    return list(converter(ds, lengths).as_numpy_iterator())


def greedy_rows(examples: list[dict]) -> list[list[dict]]:
    """SeqIO's packing: neighbours share a row while all features fit, in batches of the longest."""
    rows: list[list[dict]] = []
    for start in range(0, len(examples), max(LENGTHS.values())):
        rows.append([])
        for example in examples[start : start + max(LENGTHS.values())]:
            row = [*rows[-1], example]
            if any(sum(len(e[name]) for e in row) > n for name, n in LENGTHS.items()):
                rows.append([example])
            else:
                rows[-1] = row
    return rows


def assert_same_rows(ours: list[dict], theirs: list[dict]) -> None:
    assert len(ours) == len(theirs)
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.keys() == reference.keys()
        for name, value in reference.items():
            assert mine[name].tolist() == value.tolist(), name
            weights = name == "decoder_loss_weights"
            assert mine[name].dtype == (np.float32 if weights else np.int32)


@pytest.mark.slow
def test_padded_rows_equal_seqio():
    # The last token lies at the end of the row, and some features are empty.
    edges = [
        {"inputs": np.arange(1, 11, dtype=np.int32), "targets": np.arange(1, 8, dtype=np.int32)},
        {"inputs": tokens(), "targets": tokens(5, 1)},
        {"inputs": tokens(3), "targets": tokens()},
        {"inputs": tokens(3, 0, 4), "targets": tokens(5, 1)},
    ]
    examples = edges + random_examples(40, longest=LENGTHS, seed=0)
    ours = [convert(EncoderDecoder(), [example]) for example in examples]
    assert_same_rows(ours, seqio_rows(examples, seqio.EncDecFeatureConverter(pack=False)))
    targets = [{"targets": example["targets"]} for example in examples]
    ours = [convert(Decoder(decoder_start="pad"), [example]) for example in targets]
    assert_same_rows(ours, seqio_rows(targets, seqio.LMFeatureConverter(pack=False)))
    # SeqIO treats a token 0 as padding here, and marks some padding where there are no targets.
    pairs = [one for one in examples if np.all(one["inputs"]) and len(one["targets"])]
    ours = [convert(PrefixDecoder(), [example]) for example in pairs]
    assert_same_rows(ours, seqio_rows(pairs, seqio.PrefixLMFeatureConverter(pack=False)))


@pytest.mark.slow
def test_packed_rows_equal_seqio():
    examples = [
        {"inputs": tokens(7, 8, 5, 1), "targets": tokens(3, 9, 1)},
        {"inputs": tokens(8, 4, 9, 3, 1), "targets": tokens(4, 1)},
        *random_examples(60, longest={"inputs": 5, "targets": 4}, seed=1),
        *random_examples(20, longest=LENGTHS, seed=2),
        *random_examples(20, longest={"inputs": 2, "targets": 2}, seed=3),
    ]
    rows = greedy_rows(examples)
    assert {len(row) for row in rows} >= {1, 2, 3, 4}
    ours = [convert(EncoderDecoder(pack=True), row) for row in rows]
    assert_same_rows(ours, seqio_rows(examples, seqio.EncDecFeatureConverter(pack=True)))


def test_an_empty_feature_does_not_shift_the_segments():
    examples = [
        {"inputs": tokens(), "targets": tokens(5, 1)},
        {"inputs": tokens(6, 1), "targets": tokens()},
        {"inputs": tokens(7), "targets": tokens(8)},
    ]
    row = convert(EncoderDecoder(pack=True), examples)
    assert row["encoder_segment_ids"].tolist() == [2, 2, 3, 0, 0, 0, 0, 0, 0, 0]
    assert row["decoder_segment_ids"].tolist() == [1, 1, 3, 0, 0, 0, 0]
    assert row["decoder_input_tokens"].tolist() == [0, 5, 0, 0, 0, 0, 0]
    full = [{"inputs": tokens(1), "targets": np.arange(1, 8)}, examples[1]]
    row = convert(EncoderDecoder(pack=True), full)
    assert row["decoder_segment_ids"].tolist() == [1] * 7
    assert row["encoder_segment_ids"].tolist() == [1, 2, 2, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("pack", [False, True])
def test_no_example_makes_a_row_of_padding(pack: bool):
    for converter in (EncoderDecoder(pack), Decoder(pack), PrefixDecoder(pack)):
        empty = convert(converter, [])
        full = convert(converter, random_examples(1, longest=LENGTHS, seed=0))
        assert [(k, v.shape, v.dtype) for k, v in empty.items()] == [
            (k, v.shape, v.dtype) for k, v in full.items()
        ]
        assert not any(value.any() for value in empty.values())


def test_explicit_loss_weights_are_used_as_given():
    plain = {"inputs": tokens(4, 1), "targets": tokens(5, 1)}
    weighted = {
        "inputs": tokens(4, 1),
        "targets": tokens(5, 6, 7, 1),
        "targets_loss_weights": np.array([0.0, 0.5, 1.0], np.float32),
    }
    row = convert(EncoderDecoder(pack=True), [plain, weighted])
    assert row["decoder_loss_weights"].tolist() == [1, 1, 0, 0.5, 1, 1, 0]
    short = EncoderDecoder().convert(
        [weighted], features=FEATURES | {"targets": FeatureSpec(2)}, ids=IDS
    )
    assert short["decoder_loss_weights"].tolist() == [0, 0.5]


def test_longer_examples_are_trimmed_to_the_row():
    example = {"inputs": np.arange(1, 20), "targets": np.arange(1, 20)}
    row = convert(EncoderDecoder(), [example])
    assert row["encoder_input_tokens"].tolist() == list(range(1, 11))
    assert row["decoder_target_tokens"].tolist() == list(range(1, 8))


def test_what_does_not_fit_is_refused():
    example = {"inputs": tokens(1, 2, 3, 4), "targets": tokens(1, 2, 3, 4)}
    with pytest.raises(ValueError, match="8 tokens of 'targets' do not fit a row of 7"):
        convert(EncoderDecoder(pack=True), [example, example])
    with pytest.raises(ValueError, match="pack=True"):
        convert(EncoderDecoder(), [example, example])
    with pytest.raises(ValueError, match=r"\['targets'\] missing"):
        convert(EncoderDecoder(), [{"inputs": tokens(1)}])
    with pytest.raises(ValueError, match="'cls'"):
        convert(Decoder(decoder_start="cls"), [example])


def test_bart_reads_end_of_sequence_first_and_pads_with_its_own_id():
    example = {"inputs": tokens(0, 59, 7, 2), "targets": tokens(0, 5, 6, 7, 2)}
    row = convert(EncoderDecoder(decoder_start="eos"), [example], RoBERTa)
    assert row["encoder_input_tokens"].tolist() == [0, 59, 7, 2, 1, 1, 1, 1, 1, 1]
    assert row["decoder_target_tokens"].tolist() == [0, 5, 6, 7, 2, 1, 1]
    assert row["decoder_input_tokens"].tolist()[:5] == [2, 0, 5, 6, 7]
    assert row["decoder_loss_weights"].tolist() == [1, 1, 1, 1, 1, 0, 0]


def test_only_decoders_have_a_first_id():
    ids = TokenIds(9, eos=3)
    for converter, first in ((EncoderDecoder(), 0), (Decoder(), 3), (Encoder(), None)):
        assert start_id(converter, ids) == first


def test_packed_sequences_of_a_decoder_each_begin_with_the_start():
    row = convert(Decoder(pack=True), [{"targets": tokens(5, 6)}, {"targets": tokens(7, 8, 9)}])
    assert row["decoder_input_tokens"].tolist() == [1, 5, 1, 7, 8, 0, 0]
    assert row["decoder_segment_ids"].tolist() == [1, 1, 2, 2, 2, 0, 0]
    assert row["decoder_positions"].tolist() == [0, 1, 0, 1, 2, 0, 0]


def test_a_packed_prefix_is_seen_from_both_sides():
    examples = [
        {"inputs": tokens(7, 8, 5), "targets": tokens(3, 9, 1)},
        {"inputs": tokens(), "targets": tokens(4, 1)},
        {"inputs": tokens(6), "targets": tokens()},
    ]
    row = convert(PrefixDecoder(pack=True), examples)
    assert row["decoder_causal_attention"].tolist()[:9] == [1, 1, 1, 1, 0, 0, 1, 0, 1]
    assert row["decoder_loss_weights"].tolist()[:9] == [0, 0, 0, 1, 1, 1, 1, 1, 0]
    assert row["decoder_segment_ids"].tolist()[:9] == [1] * 6 + [2] * 2 + [3]
    assert row["decoder_input_tokens"].tolist()[:9] == [0, 7, 8, 5, 3, 9, 0, 4, 0]


MASKED = {
    "inputs": FeatureSpec(6),
    "token_type_ids": FeatureSpec(6),
    "masked_positions": FeatureSpec(3),
    "masked_targets": FeatureSpec(3),
    "masked_loss_weights": FeatureSpec(3, "float32"),
    "next_sentence_label": FeatureSpec(None),
}


def test_an_encoder_is_told_what_to_predict():
    example = {
        "inputs": tokens(0, 59, 7, 2),
        "token_type_ids": tokens(0, 0, 1, 1),
        "masked_positions": tokens(1),
        "masked_targets": tokens(0),
        "masked_loss_weights": np.ones(1, np.float32),
        "next_sentence_label": np.int32(1),
    }
    row = Encoder().convert([example], features=MASKED, ids=RoBERTa)
    assert {name: value.tolist() for name, value in row.items()} == {
        "encoder_input_tokens": [0, 59, 7, 2, 1, 1],
        "encoder_attention_mask": [1, 1, 1, 1, 0, 0],
        "encoder_token_type_ids": [0, 0, 1, 1, 0, 0],
        "masked_positions": [1, 0, 0],
        "masked_targets": [0, 0, 0],
        "masked_loss_weights": [1, 0, 0],
        "next_sentence_label": 1,
    }
    padding = Encoder().convert([], features=MASKED, ids=RoBERTa)
    assert [(k, v.shape, v.dtype) for k, v in padding.items()] == [
        (k, v.shape, v.dtype) for k, v in row.items()
    ]
    assert not padding["encoder_attention_mask"].any()
    assert not padding["masked_loss_weights"].any()
    with pytest.raises(ValueError, match="Encoder"):
        Encoder().convert([example, example], features=MASKED, ids=RoBERTa)
    with pytest.raises(ValueError, match="masked_positions"):
        Encoder().convert([{"inputs": tokens(1)}], features=MASKED, ids=RoBERTa)


def test_an_encoder_reads_several_texts_in_a_row():
    features = {name: spec for name, spec in MASKED.items() if spec.length is not None}
    first = {
        "inputs": tokens(0, 59, 2),
        "token_type_ids": tokens(0, 0, 0),
        "masked_positions": tokens(1),
        "masked_targets": tokens(7),
        "masked_loss_weights": np.ones(1, np.float32),
    }
    second = first | {"inputs": tokens(0, 2), "token_type_ids": tokens(0, 1)}
    row = Encoder(pack=True).convert([first, second], features=features, ids=RoBERTa)
    assert {name: value.tolist() for name, value in row.items()} == {
        "encoder_input_tokens": [0, 59, 2, 0, 2, 1],
        "encoder_attention_mask": [1, 1, 1, 1, 1, 0],
        "encoder_segment_ids": [1, 1, 1, 2, 2, 0],
        "encoder_positions": [0, 1, 2, 0, 1, 0],
        "encoder_token_type_ids": [0, 0, 0, 0, 1, 0],
        "masked_positions": [1, 4, 0],
        "masked_targets": [7, 7, 0],
        "masked_loss_weights": [1, 1, 0],
    }
    padding = Encoder(pack=True).convert([], features=features, ids=RoBERTa)
    assert [(k, v.shape, v.dtype) for k, v in padding.items()] == [
        (k, v.shape, v.dtype) for k, v in row.items()
    ]
    for too_many, name in (([first] * 3, "inputs"), ([second] * 4, "inputs")):
        with pytest.raises(ValueError, match=f"{name}.* do not fit a row"):
            Encoder(pack=True).convert(too_many, features=features, ids=RoBERTa)


def test_the_default_follows_the_objective():
    kinds = {"encoder": Encoder(), "decoder": Decoder(), "encoder_decoder": EncoderDecoder()}
    for kind, converter in kinds.items():
        objective = type("Fake", (), {"kind": kind})()
        assert default_converter(objective) == converter
    bart = type("Bart", (), {"kind": "encoder_decoder", "decoder_start": "eos"})()
    assert default_converter(bart) == EncoderDecoder(decoder_start="eos")
    encoder = type("Fake", (), {"kind": "encoder"})()
    assert default_converter(encoder, pack=True) == Encoder(pack=True)
    with pytest.raises(ValueError, match="known kinds are"):
        default_converter(type("Fake", (), {"kind": "other"})())
