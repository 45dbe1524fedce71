"""CANINE (Clark et al., 2022): an encoder of characters, most of whose layers read molecules.

Suffixes: B batch, L characters, M molecules, K masked characters, D d_model, N layers.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention import masks
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics import embeddings, hashed
from t5x_like.layers.basics.depth import above, at, below_as_parts
from t5x_like.layers.basics.dropout import give_keys, subkeys
from t5x_like.layers.basics.embeddings import InputEmbedding
from t5x_like.layers.basics.modules import Init
from t5x_like.layers.families.body import EncoderBody
from t5x_like.layers.heads.masked_lm import at_positions
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks import molecules, standard_parts
from t5x_like.layers.stacks.blocks import POST_NORM, EncoderLayer
from t5x_like.layers.stacks.encoder import encoder_stack

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

HeadsRead = Literal["characters", "molecules"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture of a CANINE; the defaults are those of the published sizes (section 3).

    `num_layers` are those among molecules; one layer of characters is before them and one after.
    """

    vocab_size: int = 1_114_112  # code points that may occur; no table has them
    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_layers: int = 12
    max_positions: int = 16384
    type_vocab_size: int = 16
    num_hashes: int = 8
    num_buckets: int = 16384  # rows of each table of characters, and scores of a character
    block: int = 128  # characters that see each other in the first layer
    downsampling: int = 4  # characters of a molecule
    upsampling_width: int = 4  # characters that the convolution after the molecules reads
    num_subwords: int = 119_547  # of the vocabulary that CANINE-S predicts: mBERT's, cased
    heads_read: HeadsRead = "characters"  # the states that heads of tasks read
    sentence_head: bool = True  # with a pooler and a classifier of pairs of sentences
    norm_epsilon: float = 1e-12
    # `activation` is exact, as in the weights published at Hugging Face; the original code has the
    # tanh form of gelu.

    may_be_zero: ClassVar[tuple[str, ...]] = (
        *standard_parts.Config.may_be_zero,
        "type_vocab_size",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        hashed.check(self.d_model, self.num_hashes, name="canine.Config.num_hashes")
        if self.heads_read not in get_args(HeadsRead):
            raise ValueError(
                f"canine.Config.heads_read is characters or molecules, got {self.heads_read!r}"
            )

    @property
    def init(self) -> Init:
        """Cut at two std."""
        return nnx.initializers.truncated_normal(self.init_std)


class _Read(NamedTuple):
    """Rows until the last layer, which reads `joined`: [B, L, D] but for molecules."""

    embedded: jax.Array
    first: jax.Array
    molecules: States
    joined: jax.Array


class Encoder(EncoderBody, nnx.Module):
    """A CANINE without heads, as transformers' CanineModel computes it.

    A batch holds int32 `encoder_input_tokens`, the code points, `encoder_attention_mask` (1 for
    characters, 0 for padding) and `encoder_token_type_ids`, [B, L] each. Float32
    `encoder_head_mask`, [B, N, H], multiplies the values of heads of the layers among molecules.

    As in the published code, the last layer sees the whole row and not blocks, the molecule of the
    last characters makes room for that of the first, [CLS], and the mask of molecules is not
    shifted with them. Convolutions read states of padding beside a text: what a row gives depends a
    little on whether it is padded.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = standard_parts.parts(config, POST_NORM)
        stack = functools.partial(encoder_stack, config, made_of, rngs=rngs)
        last, to_the_end = config.num_layers + 1, config.heads_read == "characters"
        on_layer = functools.partial(at, of=last + to_the_end)
        # Heads that read molecules have these beside them, and use nothing of them.
        on_last: Any = functools.partial(on_layer, n=last) if to_the_end else above
        self.embedding = _embedding(config, rngs)
        self.initial = on_layer(stack(num_layers=1), 0)
        self.downsampling = on_layer(
            molecules.Downsampling(
                config.d_model, rate=config.downsampling, **_beside(config, rngs)
            ),
            1,
        )
        self.stack = on_layer(stack(num_layers=config.num_layers), 1)
        self.upsampling = on_last(
            molecules.Upsampling(
                config.d_model,
                width=config.upsampling_width,
                dropouts=config.dropouts,
                **_beside(config, rngs),
            )
        )
        self.final = on_last(stack(num_layers=1))
        self.config = config

    @property
    def max_tokens(self) -> int | None:
        """The number of its positions."""
        return self.config.max_positions

    def embedded(self, characters: jax.Array, batch: Batch, key: jax.Array | None) -> jax.Array:
        """The vectors of characters, int32 [B, L], where those of a batch are: [B, L, D].

        Raises:
          ValueError: there are fewer than a molecule has, or more than there are positions.
        """
        length = characters.shape[1]
        embeddings.check_length(length, max_positions=self.config.max_positions)
        if length < self.config.downsampling:
            raise ValueError(
                f"rows of {length} characters have no molecule of {self.config.downsampling}: pad "
                "them"
            )
        types_BL = batch.get("encoder_token_type_ids") if self.config.type_vocab_size > 1 else None
        return self.embedding(
            characters,
            embeddings.positions_in_row(characters),
            types_BL,
            dtype=self.config.dtype,
            key=key,
        )

    def read(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> _Read:
        """All but the last layer; of molecules what is wanted."""
        keys = subkeys(key, 4)
        config, present_BL = self.config, batch["encoder_attention_mask"]
        embedded_BLD = self.embedded(batch["encoder_input_tokens"], batch, keys[0])
        first_BLD = molecules.in_blocks(
            self.initial, embedded_BLD, present_BL, size=config.block, key=keys[1]
        )
        present_BM = molecules.of_groups(present_BL, config.downsampling)
        found = self.stack.encode(
            self.downsampling(first_BLD),
            views=View(mask=Mask(present=present_BM)),
            heads_BNH=batch.get("encoder_head_mask"),
            key=keys[2],
            want=want,
        )
        joined_BLD = self.upsampling(first_BLD, self._of_characters(found.last, batch), keys[3])
        return _Read(embedded_BLD, first_BLD, found, joined_BLD)

    def _of_characters(self, molecules_BMD: jax.Array, batch: Batch) -> jax.Array:
        length = batch["encoder_input_tokens"].shape[1]
        return molecules.repeated(molecules_BMD, length, self.config.downsampling)

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The states that heads read; `key` None: without dropout.

        Those of molecules, [B, M, D], of which the first is that of [CLS], or of `states`.
        """
        if self.config.heads_read == "characters":
            return self._characters(batch, key, want=want)
        return self.read(batch, key, want=want).molecules

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """States of characters, [B, L, D], without dropout.

        Of all layers, [N + 3, B, L, D], those of molecules are repeated for each character.

        Raises:
          ValueError: attention is wanted.
        """
        return self._characters(batch, want=want)

    def _characters(
        self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST
    ) -> States:
        if want.attention:
            raise ValueError(
                "the layers of a CANINE attend to characters or to molecules: no one array holds "
                "the probabilities of all"
            )
        keys = subkeys(key, 2)
        read = self.read(batch, keys[0], want=want)
        view = View(mask=Mask(present=batch["encoder_attention_mask"]))
        last_BLD = self.final.encode(read.joined, views=view, key=keys[1]).last
        if read.molecules.states is None:
            return States(last_BLD)
        deep_NBLD = jax.vmap(lambda x_BMD: self._of_characters(x_BMD, batch))(
            read.molecules.states[1:]
        )
        outer = (x_BLD[None] for x_BLD in (read.embedded, read.first))
        return States(last_BLD, jnp.concatenate([*outer, deep_NBLD, last_BLD[None]]))

    def predicting(self, batch: Batch, key: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """The states at `masked_positions`, [B, K, D], and those of molecules, [B, M, D].

        The last layer computes no others (section 3.4): so the former are those of `hidden`.
        """
        keys = subkeys(key, 2)
        read = self.read(batch, keys[0])
        view = View(mask=Mask(present=batch["encoder_attention_mask"]))

        def body(layer: EncoderLayer, x_BKD: jax.Array, key: jax.Array | None) -> Any:
            give_keys(layer, key)
            keys = subkeys(key, 2)
            memory = layer.attention.keys_values(read.joined)
            x_BKD, _ = layer.attended(
                layer.attention_norm, layer.attention, x_BKD, memory, view=view, key=keys[0]
            )
            return layer.feed_forward(x_BKD, keys[1]), None

        asked_BKD = at_positions(read.joined, batch["masked_positions"])
        found_BKD, _ = self.final(body, asked_BKD, self.final.keys(keys[1]))
        return found_BKD, read.molecules.last

    def products(self, counts_BL: jax.Array) -> jax.Array:
        """Multiply-adds of a forward pass, float32 []."""
        characters = accounting.count(counts_BL)
        return self.products_of_predicting(counts_BL, characters, counts_BL)

    def products_of_predicting(
        self, counts_BL: jax.Array, predicted: jax.Array, predicted_BK: jax.Array
    ) -> jax.Array:
        """The same where the last layer computes `predicted` states alone, float32 [].

        `predicted_BK` is above 0 for them.
        """
        config, characters = self.config, accounting.count(counts_BL)
        length = counts_BL.shape[1]
        blocks_BN = jnp.pad(counts_BL, ((0, 0), (0, -length % config.block)))
        blocks_BN = (blocks_BN > 0).reshape(len(counts_BL), -1, config.block).sum(axis=2)
        groups_BM = molecules.of_groups(counts_BL, config.downsampling)
        pairs = (blocks_BN.astype(jnp.float32) ** 2).sum()
        pairs += config.num_layers * masks.visible_pairs(groups_BM, groups_BM)
        row_pairs = (predicted_BK > 0).sum(axis=1) * (counts_BL > 0).sum(axis=1)
        pairs += row_pairs.astype(jnp.float32).sum()
        of_keys = 2.0 * config.d_model**2
        of_final = accounting.matrix_size(self.final) - of_keys
        return (
            characters * (accounting.matrix_size(self.initial, self.upsampling) + of_keys)
            + accounting.count(groups_BM) * accounting.matrix_size(self.downsampling, self.stack)
            + predicted * of_final
            + 2.0 * config.d_model * pairs
        )


def _embedding(config: Config, rngs: nnx.Rngs) -> InputEmbedding:
    made = InputEmbedding(
        config.num_buckets,
        config.d_model,
        max_positions=config.max_positions,
        type_vocab_size=config.type_vocab_size,
        init=config.init,
        norm=standard_parts.norm(config, rngs),
        dropouts=config.dropouts,
        table=functools.partial(hashed.HashEmbedding, num_hashes=config.num_hashes),
        rngs=rngs,
    )
    below_as_parts(made.tokens)
    return made


def _beside(config: Config, rngs: nnx.Rngs) -> dict[str, Any]:
    """The parts of what is between the layers of characters and those of molecules."""
    return {
        "activation": config.activation,
        "norm": standard_parts.norm(config, rngs),
        "dtype": config.dtype,
        "rngs": rngs,
    }
