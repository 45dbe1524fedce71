"""The encoder-decoder converter against SeqIO's, padded and packed, and beyond what SeqIO does."""

from __future__ import annotations

import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like.data.feature_converters import EncoderDecoder

LENGTHS = {"inputs": 10, "targets": 7}


def tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def random_examples(count: int, *, longest: dict[str, int], seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            name: rng.integers(1, 50, rng.integers(1, n + 1)).astype(np.int32)
            for name, n in longest.items()
        }
        for _ in range(count)
    ]


def seqio_rows(examples: list[dict], *, pack: bool) -> list[dict]:
    spec = {name: tf.TensorSpec([None], tf.int32) for name in LENGTHS}
    ds = tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=spec)
    converter = seqio.EncDecFeatureConverter(pack=pack)
    return list(converter(ds, LENGTHS).as_numpy_iterator())


def greedy_rows(examples: list[dict]) -> list[list[dict]]:
    """SeqIO's packing: next to each other while all features fit, in batches of the longest."""
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


def assert_same_rows(ours: list[dict], theirs: list[dict], converter: EncoderDecoder) -> None:
    shapes = converter.shapes(LENGTHS)
    assert len(ours) == len(theirs)
    for mine, reference in zip(ours, theirs, strict=True):
        assert {k: (v.shape, v.dtype) for k, v in mine.items()} == shapes
        assert list(mine) == list(shapes)
        assert mine.keys() == reference.keys()
        for name, value in reference.items():
            assert mine[name].tolist() == value.tolist(), name


def test_padded_rows_equal_seqio():
    converter = EncoderDecoder()
    # The last token right at the end of the row, and features that are empty.
    edges = [
        {"inputs": np.arange(1, 11, dtype=np.int32), "targets": np.arange(1, 8, dtype=np.int32)},
        {"inputs": tokens(), "targets": tokens(5, 1)},
        {"inputs": tokens(3), "targets": tokens()},
        {"inputs": tokens(3, 0, 4), "targets": tokens(5, 0, 1)},
    ]
    examples = edges + random_examples(40, longest=LENGTHS, seed=0)
    ours = [converter.convert([example], LENGTHS) for example in examples]
    assert_same_rows(ours, seqio_rows(examples, pack=False), converter)


def test_packed_rows_equal_seqio():
    converter = EncoderDecoder(pack=True)
    examples = [
        {"inputs": tokens(7, 8, 5, 1), "targets": tokens(3, 9, 1)},
        {"inputs": tokens(8, 4, 9, 3, 1), "targets": tokens(4, 1)},
        *random_examples(60, longest={"inputs": 5, "targets": 4}, seed=1),
        *random_examples(20, longest=LENGTHS, seed=2),
        *random_examples(20, longest={"inputs": 2, "targets": 2}, seed=3),
    ]
    rows = greedy_rows(examples)
    assert {len(row) for row in rows} >= {1, 2, 3, 4}
    ours = [converter.convert(row, LENGTHS) for row in rows]
    assert_same_rows(ours, seqio_rows(examples, pack=True), converter)


def test_an_empty_feature_does_not_shift_the_segments():
    examples = [
        {"inputs": tokens(), "targets": tokens(5, 1)},
        {"inputs": tokens(6, 1), "targets": tokens()},
        {"inputs": tokens(7), "targets": tokens(8)},
    ]
    row = EncoderDecoder(pack=True).convert(examples, LENGTHS)
    assert row["encoder_segment_ids"].tolist() == [2, 2, 3, 0, 0, 0, 0, 0, 0, 0]
    assert row["decoder_segment_ids"].tolist() == [1, 1, 3, 0, 0, 0, 0]
    assert row["decoder_input_tokens"].tolist() == [0, 5, 0, 0, 0, 0, 0]
    full = [{"inputs": tokens(1), "targets": np.arange(1, 8)}, examples[1]]
    row = EncoderDecoder(pack=True).convert(full, LENGTHS)
    assert row["decoder_segment_ids"].tolist() == [1] * 7
    assert row["encoder_segment_ids"].tolist() == [1, 2, 2, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("pack", [False, True])
def test_no_example_makes_a_row_of_padding(pack: bool):
    converter = EncoderDecoder(pack=pack)
    row = converter.convert([], LENGTHS)
    assert {k: (v.shape, v.dtype) for k, v in row.items()} == converter.shapes(LENGTHS)
    assert not any(value.any() for value in row.values())


def test_explicit_loss_weights_are_used_as_given():
    plain = {"inputs": tokens(4, 1), "targets": tokens(5, 1)}
    weighted = {
        "inputs": tokens(4, 1),
        "targets": tokens(5, 6, 7, 1),
        "targets_loss_weights": np.array([0.0, 0.5, 1.0], np.float32),
    }
    row = EncoderDecoder(pack=True).convert([plain, weighted], LENGTHS)
    assert row["decoder_loss_weights"].tolist() == [1, 1, 0, 0.5, 1, 1, 0]
    short = EncoderDecoder().convert([weighted], {"inputs": 10, "targets": 2})
    assert short["decoder_loss_weights"].tolist() == [0, 0.5]


def test_longer_examples_are_trimmed_to_the_row():
    example = {"inputs": np.arange(1, 20), "targets": np.arange(1, 20)}
    row = EncoderDecoder().convert([example], LENGTHS)
    assert row["encoder_input_tokens"].tolist() == list(range(1, 11))
    assert row["decoder_target_tokens"].tolist() == list(range(1, 8))


def test_what_does_not_fit_is_refused():
    example = {"inputs": tokens(1, 2, 3, 4), "targets": tokens(1, 2, 3, 4)}
    with pytest.raises(ValueError, match="8 tokens of 'targets' do not fit a row of 7"):
        EncoderDecoder(pack=True).convert([example, example], LENGTHS)
    with pytest.raises(ValueError, match="pack=True"):
        EncoderDecoder().convert([example, example], LENGTHS)
    with pytest.raises(ValueError, match=r"\['targets'\] missing"):
        EncoderDecoder().convert([{"inputs": tokens(1)}], LENGTHS)
