"""Beam search, which keeps the likeliest sequences, as transformers defines it.

Suffixes: B batch, W beams, C candidates, R = B * W rows, S positions, T most new tokens,
V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.core.protocols.model import Decodable
from t5x_like.inference.decoding.settings import Decoding, Specials

_WORST = -1e9  # a score that no sequence has; finite, as in transformers


class _Sequences(NamedTuple):
    """The tokens of sequences, [B, W, S], and their scores [B, W]."""

    tokens: jax.Array
    scores: jax.Array


class _State(NamedTuple):
    """The state that the loop carries.

    `open` are the unfinished sequences, best first, `whole` the finished ones, `is_whole` [B, W]
    where these exist, and `better` [B]: whether an open sequence may still become the best.
    """

    step: jax.Array
    open: _Sequences
    whole: _Sequences
    is_whole: jax.Array
    better: jax.Array
    cache: Any


def search(
    model: Decodable,
    cache: Any,
    written_RS: jax.Array,
    *,
    keys_B: jax.Array,
    decoding: Decoding,
    specials: Specials,
    start: int,
) -> tuple[jax.Array, jax.Array]:
    """The best sequences.

    Args:
      model: gives the logits of the next token.
      cache: of R rows, which have read all positions before `start`.
      written_RS: int32, the prompts up to position `start`, then -1.
      keys_B: a key for each text. With `do_sample`, candidates are drawn in place of the
        likeliest.
      decoding: the settings.
      specials: the ids that end and fill up answers.
      start: the prompts' last position.

    Returns:
      int32 [B, num_return_sequences, T], -1 after the end, and float32 scores
      [B, num_return_sequences], best first.
    """
    written_BWS = written_RS.reshape(-1, decoding.num_beams, written_RS.shape[1])

    def unfinished(state: _State) -> jax.Array:
        going_on = state.better.any() & (state.step < decoding.max_new_tokens)
        if decoding.early_stopping is True:
            going_on &= ~state.is_whole.all()
        return going_on

    def extend(state: _State) -> _State:
        position = start + state.step
        flat_RS = state.open.tokens.reshape(written_RS.shape)
        last_R = jax.lax.dynamic_index_in_dim(flat_RS, position, axis=1, keepdims=False)
        logits_RV, cache = model.decode_step(state.cache, jnp.maximum(last_R, 0), position)
        log_p_RV = jax.nn.log_softmax(logits_RV[:, : specials.vocab_size])
        log_p_RV = decoding.adjust(log_p_RV, flat_RS, step=state.step, eos=specials.eos)
        return _next(
            state,
            log_p_RV.reshape(*written_BWS.shape[:2], -1),
            cache,
            keys_B=keys_B,
            decoding=decoding,
            eos=specials.eos,
            position=position + 1,
        )

    last = jax.lax.while_loop(unfinished, extend, _begin(written_BWS, cache))
    answers = decoding.num_return_sequences
    return last.whole.tokens[:, :answers, start + 1 :], last.whole.scores[:, :answers]


def _begin(written_BWS: jax.Array, cache: Any) -> _State:
    worst_BW = jnp.full(written_BWS.shape[:2], _WORST)
    return _State(
        jnp.int32(0),
        # Only the first of a text's equal sequences counts at the start.
        _Sequences(written_BWS, worst_BW.at[:, 0].set(0.0)),
        _Sequences(written_BWS, worst_BW),
        jnp.zeros(worst_BW.shape, bool),
        jnp.ones(len(written_BWS), bool),
        cache,
    )


def _next(
    state: _State,
    log_p_BWV: jax.Array,
    cache: Any,
    *,
    keys_B: jax.Array,
    decoding: Decoding,
    eos: int,
    position: jax.Array,
) -> _State:
    """The state after a token at `position`, whose log-probabilities are given."""
    batch, width = log_p_BWV.shape[:2]
    drawn_B = jax.vmap(lambda key: jax.random.fold_in(key, state.step))(keys_B)
    candidates, origin_BC = _candidates(
        state.open,
        log_p_BWV,
        position=position,
        keys_B=drawn_B if decoding.do_sample else None,
    )
    last_BC = jax.lax.dynamic_index_in_dim(candidates.tokens, position, axis=2, keepdims=False)
    ends_BC = (last_BC == eos) | (state.step == decoding.max_new_tokens - 1)
    running_BC = candidates.scores + jnp.where(ends_BC, _WORST, 0.0)
    scores_BW, kept_BW = jax.lax.top_k(running_BC, width)
    opened = _Sequences(_rows(candidates.tokens, kept_BW), scores_BW)
    whole, is_whole = _finish(state, candidates, ends_BC, decoding=decoding)
    origin_BW = jnp.take_along_axis(origin_BC, kept_BW, axis=1)
    return _State(
        state.step + 1,
        opened,
        whole,
        is_whole,
        _may_improve(state, opened, whole, is_whole, decoding=decoding),
        cache.reorder((jnp.arange(batch)[:, None] * width + origin_BW).reshape(-1)),
    )


def _candidates(
    sequences: _Sequences, log_p_BWV: jax.Array, *, position: jax.Array, keys_B: jax.Array | None
) -> tuple[_Sequences, jax.Array]:
    """The 2 W best (or drawn) continuations of a text's sequences, and the beam of each, [B, C].

    As one of them in two may have ended, W are left to go on with.
    """
    batch, width, vocabulary = log_p_BWV.shape
    total_BN = (log_p_BWV + sequences.scores[..., None]).reshape(batch, -1)
    order_BN = total_BN
    if keys_B is not None:  # draws without replacement are the largest after Gumbel noise
        noise_BN = jax.vmap(lambda key: jax.random.gumbel(key, total_BN.shape[1:]))(keys_B)
        order_BN = total_BN + noise_BN
    _, chosen_BC = jax.lax.top_k(order_BN, 2 * width)
    origin_BC, tokens_BC = chosen_BC // vocabulary, (chosen_BC % vocabulary).astype(jnp.int32)
    tokens_BCS = jax.lax.dynamic_update_slice_in_dim(
        _rows(sequences.tokens, origin_BC), tokens_BC[..., None], position, axis=2
    )
    return _Sequences(tokens_BCS, jnp.take_along_axis(total_BN, chosen_BC, axis=1)), origin_BC


def _finish(
    state: _State, candidates: _Sequences, ends_BC: jax.Array, *, decoding: Decoding
) -> tuple[_Sequences, jax.Array]:
    """The best W of the finished sequences and of the W best candidates that end here."""
    width = decoding.num_beams
    ends_BC &= jnp.arange(2 * width) < width
    scores_BC = candidates.scores / (state.step + 1.0) ** decoding.length_penalty
    allowed_BC = ends_BC & state.better[:, None]
    if decoding.early_stopping is True:
        allowed_BC &= ~state.is_whole.all(axis=1, keepdims=True)
    scores_BC += jnp.where(allowed_BC, 0.0, _WORST)
    merged_scores = jnp.concatenate([state.whole.scores, scores_BC], axis=1)
    merged_tokens = jnp.concatenate([state.whole.tokens, candidates.tokens], axis=1)
    scores_BW, kept_BW = jax.lax.top_k(merged_scores, width)
    is_whole = jnp.concatenate([state.is_whole, ends_BC], axis=1)
    return (
        _Sequences(_rows(merged_tokens, kept_BW), scores_BW),
        jnp.take_along_axis(is_whole, kept_BW, axis=1),
    )


def _may_improve(
    state: _State,
    opened: _Sequences,
    whole: _Sequences,
    is_whole: jax.Array,
    *,
    decoding: Decoding,
) -> jax.Array:
    """Bool [B]: whether the best open sequence would beat the worst finished one, once finished."""
    length = state.step + 1.0
    if decoding.early_stopping == "never" and decoding.length_penalty > 0:
        length = jnp.float32(decoding.max_new_tokens)
    best_B1 = opened.scores[:, :1] / length**decoding.length_penalty
    worst_BW = jnp.where(is_whole, whole.scores.min(axis=1, keepdims=True), _WORST)
    return state.better & (best_B1 > worst_BW).any(axis=1)


def _rows(x_BWS: jax.Array, chosen_BC: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x_BWS, chosen_BC[..., None], axis=1)
