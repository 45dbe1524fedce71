"""Rules that change the chances of the next token: temperature, top-k, top-p, repetition, length.

Suffixes: R rows, S positions, V vocabulary.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

_NEVER = -jnp.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRules:
    """Names and meanings are those of transformers' `GenerationConfig`.

    Attributes:
      max_new_tokens: the most tokens of an answer, its end included.
      min_new_tokens: an answer does not end before it has so many tokens; at most `max_new_tokens`.
      do_sample: whether to draw tokens; otherwise the likeliest ones are taken.
      temperature: divides the logits before a draw.
      top_k: draws from the k likeliest tokens; 0 from all.
      top_p: draws from the fewest tokens whose probabilities sum to at least this (Holtzman et al.,
        2020).
      repetition_penalty: logits of tokens that occurred are divided by it if above 0, else
        multiplied (CTRL, section 4.1).
      no_repeat_ngram_size: no n tokens in a row occur twice; 0 allows it.
      forced_bos_token_id: the first token of every answer, such as mBART's language; None: free.
      forced_eos_token_id: the last token of an answer that has `max_new_tokens`; None: free.
    """

    max_new_tokens: int = 64
    min_new_tokens: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None

    def __post_init__(self) -> None:
        least = {"max_new_tokens": 1, "min_new_tokens": 0, "top_k": 0, "no_repeat_ngram_size": 0}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} must be at least {smallest}, not {getattr(self, name)}")
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens={self.min_new_tokens} is above "
                f"max_new_tokens={self.max_new_tokens}: no answer has so many tokens"
            )
        for name in ("forced_bos_token_id", "forced_eos_token_id"):
            if not isinstance(getattr(self, name), int | None):
                raise ValueError(f"{name} must be the id of one token, not {getattr(self, name)}")
        for name in ("temperature", "repetition_penalty"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        changed = [
            name
            for name, usual in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0))
            if getattr(self, name) != usual
        ]
        if changed and not self.do_sample:
            raise ValueError(
                f"{', '.join(changed)} has no effect on the likeliest token: set do_sample too"
            )

    def adjust(
        self, logits_RV: jax.Array, written_RS: jax.Array, *, step: jax.Array, eos: int
    ) -> jax.Array:
        """The logits, or log-probabilities, of the next token after all rules: float32 [R, V].

        Args:
          logits_RV: float32.
          written_RS: int32, the prompt and the answer so far; below 0 where there is no token.
          step: int32 [], how many tokens the answer has.
          eos: the id that ends an answer.
        """
        if self.repetition_penalty != 1:
            logits_RV = _penalize(logits_RV, written_RS, self.repetition_penalty)
        if self.no_repeat_ngram_size:
            repeats_RV = _repeats(written_RS, logits_RV.shape[1], self.no_repeat_ngram_size)
            logits_RV = jnp.where(repeats_RV, _NEVER, logits_RV)
        ids_V = jnp.arange(logits_RV.shape[1])
        if self.min_new_tokens:
            logits_RV = jnp.where((ids_V == eos) & (step < self.min_new_tokens), _NEVER, logits_RV)
        for token, when in (
            (self.forced_bos_token_id, 0),
            (self.forced_eos_token_id, self.max_new_tokens - 1),
        ):
            if token is not None:
                forced_V = jnp.where(ids_V == token, 0.0, _NEVER)
                logits_RV = jnp.where(step == when, forced_V, logits_RV)
        if not self.do_sample:
            return logits_RV
        logits_RV = logits_RV / self.temperature
        if self.top_k:
            least_R1 = jax.lax.top_k(logits_RV, min(self.top_k, len(ids_V)))[0][:, -1:]
            logits_RV = jnp.where(logits_RV < least_R1, _NEVER, logits_RV)
        if self.top_p < 1:
            logits_RV = _nucleus(logits_RV, self.top_p)
        return logits_RV


def _penalize(logits_RV: jax.Array, written_RS: jax.Array, penalty: float) -> jax.Array:
    rows_R1 = jnp.arange(len(written_RS))[:, None]
    # Ids below 0 go past the end, where nothing is written.
    ids_RS = jnp.where(written_RS < 0, logits_RV.shape[1], written_RS)
    seen_RV = jnp.zeros(logits_RV.shape, bool).at[rows_R1, ids_RS].set(True, mode="drop")
    less_RV = jnp.where(logits_RV < 0, logits_RV * penalty, logits_RV / penalty)
    return jnp.where(seen_RV, less_RV, logits_RV)


def _repeats(written_RS: jax.Array, vocab_size: int, n: int) -> jax.Array:
    """Bool [R, V]: the tokens that would end n tokens which have occurred."""
    rows, length = written_RS.shape
    if length < n:
        return jnp.zeros((rows, vocab_size), bool)
    # The answer's last token is that before the first position without one, after all others.
    used_R = length - (jnp.cumsum(written_RS[:, ::-1] >= 0, axis=1) == 0).sum(axis=1)
    offsets = jnp.arange(n - 1)
    last_RN = jnp.take_along_axis(
        written_RS, jnp.maximum(used_R[:, None] - (n - 1) + offsets, 0), axis=1
    )
    starts = jnp.arange(length - n + 1)
    grams_RWN = written_RS[:, starts[:, None] + jnp.arange(n)]
    same_RW = (grams_RWN[..., :-1] == last_RN[:, None]).all(axis=-1)
    whole_RW = (grams_RWN >= 0).all(axis=-1)
    ends_RW = jnp.where(same_RW & whole_RW, grams_RWN[..., -1], vocab_size)
    return (
        jnp.zeros((rows, vocab_size), bool)
        .at[jnp.arange(rows)[:, None], ends_RW]
        .set(True, mode="drop")
    )


def _nucleus(logits_RV: jax.Array, top_p: float) -> jax.Array:
    """Leaves out tokens beyond the fewest whose probabilities sum to `top_p`."""
    sorted_RV = jnp.sort(logits_RV, axis=1, descending=True)
    p_RV = jax.nn.softmax(sorted_RV)
    before_RV = jnp.cumsum(p_RV, axis=1) - p_RV
    least_R1 = jnp.where(before_RV < top_p, sorted_RV, jnp.inf).min(axis=1, keepdims=True)
    return jnp.where(logits_RV < least_R1, _NEVER, logits_RV)
