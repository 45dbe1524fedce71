"""Several labelled texts in a row: the loss of a packed row is that of its texts alone."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_families import FAMILIES, VOCAB

from t5x_like.core.protocols.data import FeatureSpec, TokenIds
from t5x_like.data.rows.feature_converters import Encoder
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses, ordered_classes
from t5x_like.models.finetuned import FineTuned

NORMAL = nnx.initializers.normal(1.0)
LENGTHS = (5, 2, 7)
ROW, CLASSES = 18, 3
ROWS = {"inputs": FeatureSpec(ROW), "token_type_ids": FeatureSpec(ROW)}
WEIGHTS = {"example_weights": FeatureSpec(None, "float32")}
ENDS = ("start_positions", "end_positions")
OF_TAGS = {"labels": FeatureSpec(ROW), "word_ids": FeatureSpec(ROW)}
FORMS: dict[str, tuple[Any, dict[str, FeatureSpec]]] = {
    "classes": (label_losses.classes, {"labels": FeatureSpec(None)}),
    "numbers": (label_losses.numbers, {"labels": FeatureSpec(None, "float32")}),
    "ordered": (ordered_classes.ordered, {"labels": FeatureSpec(None)}),
    "tags": (label_losses.tags, OF_TAGS),
    "several": (label_losses.several, {"labels": FeatureSpec(None, "float32", (CLASSES,))}),
    "spans": (label_losses.spans, dict.fromkeys(ENDS, FeatureSpec(None))),
}


def texts(form: str) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)

    def labels(n: int) -> dict[str, np.ndarray]:
        if form == "tags":
            words = np.array([0, 1, 1, 2, 3, 0, 0])[:n]  # the last text has words of several pieces
            return {"labels": rng.integers(-1, CLASSES, n).astype(np.int32), "word_ids": words}
        if form == "numbers":
            return {"labels": np.float32(rng.normal())}
        if form == "several":
            return {"labels": rng.integers(0, 2, CLASSES).astype(np.float32)}
        if form == "spans":  # what the vocabulary leaves nothing of is not learned
            ends = np.sort(rng.integers(0, n, 2)).astype(np.int32) if n > 2 else (-1, -1)
            return dict(zip(ENDS, map(np.int32, ends), strict=True))
        return {"labels": rng.integers(0, CLASSES, 1).astype(np.int32)}  # as caches have them

    return [
        {
            "inputs": rng.integers(5, VOCAB, n).astype(np.int32),
            "token_type_ids": rng.integers(0, 2, n).astype(np.int32),
            "example_weights": np.float32(rng.uniform(0.5, 2)),
            **labels(n),
        }
        for n in LENGTHS
    ]


def batch(form: str, *, pack: bool) -> dict[str, np.ndarray]:
    """A packed row and one of padding; or a row for each example."""
    features = {**ROWS, **WEIGHTS, **FORMS[form][1]}
    convert = functools.partial(
        Encoder(pack).convert, features=features, ids=TokenIds(VOCAB, pad=1, eos=None)
    )
    examples = texts(form)
    rows = [convert(examples), convert([])] if pack else [convert([one]) for one in examples]
    of_rows = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    if not pack and form in ("classes", "ordered"):
        of_rows["labels"] = of_rows["labels"].reshape(-1)
    return of_rows


def made(family: str, form: str, pool: Any) -> FineTuned:
    labels = 1 if form == "choices" else CLASSES
    head: Any = functools.partial(
        label_heads.SequenceHead, num_labels=labels, pool=pool, activation=jnp.tanh, init=NORMAL
    )
    if form in ("tags", "spans"):
        labels = CLASSES if form == "tags" else len(ENDS)
        head = functools.partial(label_heads.TokenHead, num_labels=labels, init=NORMAL)

    def body(rngs: nnx.Rngs) -> Any:
        return FAMILIES[family].make(init_std=0.3)(rngs=rngs).encoder  # feels neighbours

    rngs = nnx.Rngs(0)
    return FineTuned(
        body,
        functools.partial(head, rngs=rngs),
        label_loss=FORMS.get(form, FORMS["classes"])[0],
        rngs=rngs,
    )


def asked(model: FineTuned) -> Any:
    """What a step knows of rows: terms and metrics, and the weights of terms."""
    return jax.jit(lambda rows: (model.terms(rows, None, ())[:2], model.weights(rows)))


@pytest.mark.parametrize(
    ("family", "form", "pool"),
    [
        ("bert", "classes", label_heads.first),
        ("bert", "tags", None),
        ("modernbert", "numbers", label_heads.mean),
        ("eurobert", "ordered", label_heads.last_that_counts),
        ("albert", "classes", label_heads.first),
        ("bert", "several", label_heads.mean),
    ],
)
def test_the_loss_of_a_row_is_that_of_its_texts(family: str, form: str, pool: Any) -> None:
    model = made(family, form, pool)

    sums = asked(model)
    packed, alone = (sums(batch(form, pack=pack)) for pack in (True, False))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5), packed, alone)
    mixed = batch(form, pack=True)
    mixed["encoder_segment_ids"] = np.minimum(mixed["encoder_segment_ids"], 1)
    changed = sums(mixed)[0][0]["task"].sum
    assert abs(changed - alone[0][0]["task"].sum) > 1e-2


def test_answers_of_a_row_are_sought_in_their_own_texts() -> None:
    model = made("bert", "spans", None)
    alone = batch("spans", pack=False)
    logits, mask = np.array(jax.jit(model.logits)(alone)), alone["encoder_attention_mask"]
    logits[mask == 0] = -np.inf  # rows of one text have padding besides
    log_p = np.array(jax.nn.log_softmax(logits, axis=1))
    ends = [(n, end, alone[name][n]) for n in (0, 2) for end, name in enumerate(ENDS)]
    weights = alone["example_weights"]
    (ours, metrics), _ = asked(model)(batch("spans", pack=True))
    expected = -sum(log_p[n, at, end] * weights[n] for n, end, at in ends)
    np.testing.assert_allclose(ours["task"].sum, expected, rtol=2e-5)
    np.testing.assert_allclose(ours["task"].weight, 2 * weights[[0, 2]].sum(), rtol=1e-6)
    right = [log_p[n, :, end].argmax() == at for n, end, at in ends]
    assert metrics["accuracy"] == (sum(right), len(right))


def test_choices_of_a_row_have_the_loss_that_they_have_alone() -> None:
    rng = np.random.default_rng(0)
    model = made("bert", "choices", label_heads.first)
    row = FeatureSpec(3, item=(6,))
    features = {"inputs": row, "token_type_ids": row, "labels": FeatureSpec(None), **WEIGHTS}
    convert = functools.partial(Encoder.convert, features=features, ids=TokenIds(VOCAB, pad=1))
    examples = []
    for lengths in [(5, 2, 6), (3, 0, 2), (0, 0, 0)]:  # an empty one is none
        inputs, types = np.full((2, 3, 6), -1, np.int32)
        for n, length in enumerate(lengths):
            inputs[n, :length] = rng.integers(5, VOCAB, length)
            types[n, :length] = rng.integers(0, 2, length)
        weights = {"labels": np.int32([2]), "example_weights": np.float32(rng.uniform(0.5, 2))}
        examples.append({"inputs": inputs, "token_type_ids": types, **weights})

    def stacked(rows: list[Any]) -> dict[str, np.ndarray]:
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    packed = stacked([convert(Encoder(True), examples), convert(Encoder(True), [])])
    alone = stacked([convert(Encoder(), [one]) for one in examples])
    alone["labels"] = alone["labels"].reshape(-1)
    assert packed["encoder_input_tokens"].shape == (2, ROW)
    np.testing.assert_array_equal(
        packed["alternative_positions"][0, [0, 13]], [[0, 5, 7], [13, -1, 16]]
    )
    sums = [*map(asked(model), (packed, alone))]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5), *sums)
    assert sums[0][1]["task"] > 0


def test_a_text_of_a_row_has_its_own_answer() -> None:
    model = made("bert", "classes", label_heads.mean)
    packed, alone = (model.logits(batch("classes", pack=pack)) for pack in (True, False))
    firsts = np.cumsum([0, *LENGTHS[:-1]])
    np.testing.assert_allclose(packed[firsts], alone, rtol=2e-5, atol=1e-6)
