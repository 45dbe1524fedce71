"""Writes answers token by token, by greedy or random choice or by beam search.

Suffixes: B batch, R rows (each text of the batch once for each answer), L prompt length, T most new
tokens, V vocabulary.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from t5x_like.core.protocols.model import Decodable
from t5x_like.inference.decoding import beam_search
from t5x_like.inference.decoding.settings import Answers, Decoding, Specials

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_FACTOR = 0x9E3779B1  # odd, so that its powers never vanish


@functools.partial(jax.jit, static_argnames=("decoding", "specials"))
def decode(
    model: Decodable,
    batch: Batch,
    *,
    decoding: Decoding = Decoding(),  # noqa: B008, frozen
    specials: Specials = Specials(),  # noqa: B008, a tuple
) -> Answers:
    """Answers to a batch of texts; stops when every row has ended.

    Args:
      model: reads the batch with its `prefill`.
      batch: what `prefill` reads. `decoder_input_tokens`, int32 [B, L], holds the first tokens of
        the answers or, in a model without an encoder, the prompts, all of which end at position
        L - 1; L is at least 1. `decoder_segment_ids` [B, L] is 0 before them.
      decoding: the settings. What is drawn depends on the text and the seed alone, so that it is
        the same in any batch.
      specials: the ids that end and fill up answers.

    Raises:
      ValueError: the model has too few positions.
    """
    prompt_BL = batch["decoder_input_tokens"]
    length = prompt_BL.shape[1]
    counts_BL = batch.get("decoder_segment_ids", jnp.ones_like(prompt_BL))
    # The last token is not read.
    cache = model.prefill(batch, max_length=length + decoding.max_new_tokens - 1)
    rows = decoding.num_beams if decoding.num_beams > 1 else decoding.num_return_sequences
    if rows > 1:
        cache = cache.repeat(rows)
    room = ((0, 0), (0, decoding.max_new_tokens))
    # Ids below 0 are not tokens: the rules leave them out.
    written_RS = jnp.repeat(
        jnp.pad(jnp.where(counts_BL > 0, prompt_BL, -1), room, constant_values=-1), rows, axis=0
    )
    search = beam_search.search if decoding.num_beams > 1 else _choose
    tokens, scores = search(
        model,
        cache,
        written_RS,
        keys_B=_text_keys(batch, decoding.seed),
        decoding=decoding,
        specials=specials,
        start=length - 1,
    )
    return Answers(jnp.where(tokens < 0, specials.pad, tokens), scores)


def _text_keys(batch: Batch, seed: int) -> jax.Array:
    """A key for each text, [B], which its tokens and the seed decide."""
    prompt_BL = batch["decoder_input_tokens"]
    counts_BL = batch.get("decoder_segment_ids", jnp.ones_like(prompt_BL))
    digest_B = _digest(prompt_BL, counts_BL)
    if "encoder_input_tokens" in batch:
        tokens_BM = batch["encoder_input_tokens"]
        counts_BM = batch.get("encoder_attention_mask", jnp.ones_like(tokens_BM))
        digest_B = digest_B * jnp.uint32(_FACTOR) + _digest(tokens_BM, counts_BM)
    return jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))(digest_B)


def _digest(tokens_BL: jax.Array, counts_BL: jax.Array) -> jax.Array:
    """Uint32 [B], the same whatever padding there is: a polynomial of the tokens that count."""
    counts_BL = (counts_BL > 0).astype(jnp.int32)
    powers = jnp.cumprod(jnp.full(tokens_BL.shape[1] + 1, jnp.uint32(_FACTOR)))
    terms_BL = (tokens_BL + 1).astype(jnp.uint32) * powers[jnp.cumsum(counts_BL, axis=1)]
    return (terms_BL * counts_BL.astype(jnp.uint32)).sum(axis=1, dtype=jnp.uint32)


def _choose(
    model: Decodable,
    cache: object,
    written_RS: jax.Array,
    *,
    keys_B: jax.Array,
    decoding: Decoding,
    specials: Specials,
    start: int,
) -> tuple[jax.Array, jax.Array]:
    """Takes the likeliest token of each position, or draws one.

    Arguments and results are those of `beam_search.search`.
    """
    rows, answers = written_RS.shape[0], decoding.num_return_sequences
    # Answers to one text have keys of their own.
    keys_R = jax.vmap(lambda key: jax.random.split(key, answers))(keys_B).reshape(rows)
    first = (
        jnp.int32(0),
        jnp.zeros(rows, bool),
        written_RS,
        jnp.zeros(rows, jnp.float32),
        cache,
    )

    def unfinished(state: tuple) -> jax.Array:
        step, done_R, *_ = state
        return (step < decoding.max_new_tokens) & ~done_R.all()

    def write(state: tuple) -> tuple:
        step, done_R, written_RS, scores_R, cache = state
        position = start + step
        last_R = jax.lax.dynamic_index_in_dim(written_RS, position, axis=1, keepdims=False)
        logits_RV, cache = model.decode_step(cache, jnp.maximum(last_R, 0), position)
        logits_RV = decoding.adjust(
            logits_RV[:, : specials.vocab_size], written_RS, step=step, eos=specials.eos
        )
        log_p_RV = jax.nn.log_softmax(logits_RV)
        if decoding.do_sample:
            tokens_R = jax.vmap(_draw, (0, 0, None))(keys_R, logits_RV, step)
        else:
            tokens_R = logits_RV.argmax(axis=-1)
        found_R = jnp.take_along_axis(log_p_RV, tokens_R[:, None], axis=1)[:, 0]
        scores_R += jnp.where(done_R, 0, found_R)
        tokens_R = jnp.where(done_R, -1, tokens_R.astype(jnp.int32))
        written_RS = jax.lax.dynamic_update_slice_in_dim(
            written_RS, tokens_R[:, None], position + 1, axis=1
        )
        return step + 1, done_R | (tokens_R == specials.eos), written_RS, scores_R, cache

    _, _, written_RS, scores_R, _ = jax.lax.while_loop(unfinished, write, first)
    return (
        written_RS[:, start + 1 :].reshape(-1, answers, decoding.max_new_tokens),
        scores_R.reshape(-1, answers),
    )


def _draw(key: jax.Array, logits_V: jax.Array, step: jax.Array) -> jax.Array:
    return jax.random.categorical(jax.random.fold_in(key, step), logits_V)
