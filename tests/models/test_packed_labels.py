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
ROW, CLASSES = 16, 3
ROWS = {"inputs": FeatureSpec(ROW), "token_type_ids": FeatureSpec(ROW)}
WEIGHTS = {"example_weights": FeatureSpec(None, "float32")}
OF_TAGS = {"labels": FeatureSpec(ROW), "word_ids": FeatureSpec(ROW)}
FORMS: dict[str, tuple[Any, dict[str, FeatureSpec]]] = {
    "classes": (label_losses.classes, {"labels": FeatureSpec(None)}),
    "numbers": (label_losses.numbers, {"labels": FeatureSpec(None, "float32")}),
    "ordered": (ordered_classes.ordered, {"labels": FeatureSpec(None)}),
    "tags": (label_losses.tags, OF_TAGS),
}


def texts(form: str) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)

    def labels(n: int) -> dict[str, np.ndarray]:
        if form == "tags":
            words = np.array([0, 1, 1, 2, 3, 0, 0])[:n]  # the last text has words of several pieces
            return {"labels": rng.integers(-1, CLASSES, n).astype(np.int32), "word_ids": words}
        if form == "numbers":
            return {"labels": np.float32(rng.normal())}
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
    head: Any = functools.partial(
        label_heads.SequenceHead, num_labels=CLASSES, pool=pool, activation=jnp.tanh, init=NORMAL
    )
    if form == "tags":
        head = functools.partial(label_heads.TokenHead, num_labels=CLASSES, init=NORMAL)

    def body(rngs: nnx.Rngs) -> Any:
        return FAMILIES[family].make(init_std=0.3)(rngs=rngs).encoder  # feels neighbours

    rngs = nnx.Rngs(0)
    return FineTuned(body, functools.partial(head, rngs=rngs), label_loss=FORMS[form][0], rngs=rngs)


@pytest.mark.parametrize(
    ("family", "form", "pool"),
    [
        ("bert", "classes", label_heads.first),
        ("bert", "tags", None),
        ("modernbert", "numbers", label_heads.mean),
        ("eurobert", "ordered", label_heads.last_that_counts),
        ("albert", "classes", label_heads.first),
    ],
)
def test_the_loss_of_a_row_is_that_of_its_texts(family: str, form: str, pool: Any) -> None:
    model = made(family, form, pool)

    @jax.jit
    def sums(rows: Any) -> Any:
        return model.terms(rows, None, ())[:2], model.weights(rows)

    packed, alone = (sums(batch(form, pack=pack)) for pack in (True, False))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5), packed, alone)
    mixed = batch(form, pack=True)
    mixed["encoder_segment_ids"] = np.minimum(mixed["encoder_segment_ids"], 1)
    changed = sums(mixed)[0][0]["task"].sum
    assert abs(changed - alone[0][0]["task"].sum) > 1e-2


def test_a_text_of_a_row_has_its_own_answer() -> None:
    model = made("bert", "classes", label_heads.mean)
    packed, alone = (model.logits(batch("classes", pack=pack)) for pack in (True, False))
    firsts = np.cumsum([0, *LENGTHS[:-1]])
    np.testing.assert_allclose(packed[firsts], alone, rtol=2e-5, atol=1e-6)
