"""The unigram figures by hand, and batches that differ just where they should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.evaluation import baselines
from t5x_like.evaluation.evaluator import evaluate

IDS = TokenIds(vocab_size=20, sentinels=5)  # 19, 18, ...


def batch() -> dict[str, np.ndarray]:
    """Two spans in the first row, one in the second, which ends in padding."""
    return {
        "encoder_input_tokens": np.array([[5, 19, 6, 18, 1], [7, 19, 1, 0, 0]], np.int32),
        "decoder_target_tokens": np.array([[19, 8, 18, 9, 1], [19, 17, 1, 0, 0]], np.int32),
        "decoder_loss_weights": np.array([[1, 1, 1, 0.5, 1], [1, 1, 1, 0, 0]], np.float32),
    }


def test_content_is_what_is_no_sentinel_no_end_and_no_padding() -> None:
    made = baselines.content_only(batch(), IDS)
    # Id 17 stands for no blank in the second row: it is text, as high bytes are.
    want = np.array([[0, 1, 0, 0.5, 0], [0, 1, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(made["decoder_loss_weights"], want)
    assert made["decoder_loss_weights"].dtype == np.float32
    for name in ("encoder_input_tokens", "decoder_target_tokens"):
        np.testing.assert_array_equal(made[name], batch()[name])


def test_top_ids_without_the_first_sentinel_are_text() -> None:
    rows = batch() | {"encoder_input_tokens": np.array([[5, 18, 17, 1, 0]] * 2, np.int32)}
    weights = baselines.content_only(rows, IDS)["decoder_loss_weights"]
    np.testing.assert_array_equal(weights[0], [1, 1, 1, 0.5, 0])


def test_blanked_encoder_keeps_sentinels_and_end_in_place() -> None:
    made = baselines.blank_encoder(batch(), IDS)
    want = [[0, 19, 0, 18, 1], [0, 19, 1, 0, 0]]
    np.testing.assert_array_equal(made["encoder_input_tokens"], want)
    for name in ("decoder_loss_weights", "decoder_target_tokens"):
        np.testing.assert_array_equal(made[name], batch()[name])
    np.testing.assert_array_equal(
        batch()["encoder_input_tokens"][0], [5, 19, 6, 18, 1], err_msg="the batch given is kept"
    )


def test_without_sentinels_the_top_id_is_text_and_a_mask_is_not_blanked() -> None:
    ids = TokenIds(vocab_size=20, mask=4, bos=3, unk=2)
    rows = {
        "encoder_input_tokens": np.array([[3, 19, 4, 2, 1, 0]], np.int32),
        "decoder_target_tokens": np.array([[3, 19, 2, 1, 0]], np.int32),
        "decoder_loss_weights": np.array([[1, 1, 1, 1, 0]], np.float32),
    }
    weights = baselines.content_only(rows, ids)["decoder_loss_weights"]
    np.testing.assert_array_equal(weights, [[0, 1, 1, 0, 0]])
    tokens = baselines.blank_encoder(rows, ids)["encoder_input_tokens"]
    np.testing.assert_array_equal(tokens, [[3, 0, 4, 0, 1, 0]])


@pytest.mark.parametrize(
    ("targets", "weights"),
    [
        ("decoder_target_tokens", "decoder_loss_weights"),
        ("masked_targets", "masked_loss_weights"),
    ],
)
def test_unigram_by_hand(targets: str, weights: str) -> None:
    # Smoothed 1, 1, 4, 1 of 7; the second batch weighs nothing.
    counts = np.array([0, 0, 3, 0], np.int64)
    rows = {targets: np.array([[2, 3]]), weights: np.array([[1, 3]], np.float32)}
    nothing = {**rows, weights: np.zeros((1, 2), np.float32)}
    found = evaluate(baselines.unigram(counts), None, [rows, nothing])
    loss = -(math.log(4 / 7) + 3 * math.log(1 / 7)) / 4
    assert found == pytest.approx({"loss": loss, "accuracy": 0.25, "perplexity": math.exp(loss)})


def test_special_targets_are_as_frequent_beside_text_as_in_the_rows() -> None:
    # Two of eight targets are ends, one a begin; padding and what weighs nothing do not count.
    rows = {
        "masked_targets": np.array([[5, 6, 7, 5, 1], [3, 1, 8, 0, 1]]),
        "masked_loss_weights": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.float32),
    }
    ids = TokenIds(vocab_size=9, bos=3)
    counts = np.array([0, 0, 4, 0, 0, 90, 3, 2, 1])
    found = baselines.with_special_targets(counts, [rows], ids)
    assert found == pytest.approx([0, 40, 4, 20, 0, 90, 3, 2, 1])
    without = {**rows, "masked_targets": np.full((2, 5), 6)}
    assert baselines.with_special_targets(counts, [without], ids) == pytest.approx(counts)


def test_sentinels_are_special_unless_the_text_has_them() -> None:
    rows = {
        "decoder_target_tokens": np.array([[9, 5, 8, 7]]),
        "decoder_loss_weights": np.ones((1, 4), np.float32),
    }
    counts = np.array([0, 0, 0, 0, 0, 90, 0, 10, 0, 0])
    ids = TokenIds(vocab_size=10, sentinels=3)
    found = baselines.with_special_targets(counts, [rows], ids)
    assert found == pytest.approx([0, 0, 0, 0, 0, 90, 0, 10, 50, 50])


def test_unigram_of_a_language_model_has_bits_per_byte() -> None:
    rows = {
        "decoder_target_tokens": np.array([[2, 3, 1]]),
        "decoder_loss_weights": np.array([[1, 1, 0]], np.float32),
    }
    step = baselines.unigram(np.zeros(4, np.int64))
    found = evaluate(step, None, [rows], token_bytes=np.array([0, 9, 3, 1], np.int32))
    assert found["bits_per_byte"] == pytest.approx(2 * 2 / 4)


def test_labels_by_their_shares():
    """A model that always gives the commoner label knows nothing; a row of padding has none."""
    mask = np.array([[1, 1], [1, 0], [1, 1], [1, 1], [0, 0]])
    labels = np.array([1, 1, 0, 1, 0])
    rows = [{"sentence_order_label": labels, "encoder_attention_mask": mask}]
    found = baselines.label_shares(rows, {"replaced_share": 0.1})
    assert found["sentence_accuracy"] == 0.75
    assert found["sentence_loss"] == pytest.approx(0.5623, abs=1e-4)
    assert found["discriminator_text_loss"] == pytest.approx(0.3251, abs=1e-4)
    assert found["replaced_auc"] == 0.5
    assert baselines.label_shares([{"encoder_attention_mask": mask}], {}) == {}


def test_tags_by_their_shares():
    """Neither padding nor further tokens of words, -1, have a tag."""
    mask = np.array([[1, 1, 1], [1, 1, 0]])
    rows = [{"labels": np.array([[2, -1, 2], [-1, 0, 0]]), "encoder_attention_mask": mask}]
    found = baselines.class_shares(rows)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx(0.6365, abs=1e-4)
