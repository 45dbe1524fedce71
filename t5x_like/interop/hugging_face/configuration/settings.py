"""Settings of a config.json, which anybody may have written: each is checked when it is read."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_MOST = 2**31 - 1
"""The largest size or id: arrays have 32-bit indices."""


class _Kind(NamedTuple):
    """The values that a setting may have, in words and as a test.

    `real` says whether whole numbers are converted to floats.
    """

    words: str
    allows: Callable[[Any], bool]
    real: bool = False


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(least: int) -> _Kind:
    return _Kind(
        f"a whole number from {least} to {_MOST}",
        lambda value: _is_whole(value) and least <= value <= _MOST,
    )


def _number(words: str, allows: Callable[[float], bool]) -> _Kind:
    def is_number(value: Any) -> bool:
        return (_is_whole(value) and abs(value) <= _MOST) or isinstance(value, float)

    return _Kind(
        words,
        lambda value: is_number(value) and math.isfinite(value) and allows(value),
        real=True,
    )


_SIZE = _whole(1)
_SIZES = _Kind(
    "a whole number above 0, or a list of such",
    lambda value: (
        _SIZE.allows(value)
        or (isinstance(value, list) and bool(value) and all(map(_SIZE.allows, value)))
    ),
)
_COUNT = _whole(0)
_RATE = _number("a number from 0 to below 1", lambda value: 0 <= value < 1)
_POSITIVE = _number("a number above 0", lambda value: value > 0)
_SPREAD = _number("a number of 0 or more", lambda value: value >= 0)
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_TEXTS = _Kind(
    "a list of texts", lambda value: isinstance(value, list) and all(map(_TEXT.allows, value))
)
_ONE_OR_SEVERAL = _Kind(
    "a text, or a list of texts", lambda value: _TEXT.allows(value) or _TEXTS.allows(value)
)
_OBJECT = _Kind("an object", lambda value: isinstance(value, dict))

_NAMES: dict[_Kind, str] = {
    _SIZE: """
        vocab_size hidden_size intermediate_size embedding_size dim hidden_dim n_embd n_inner
        d_model d_inner d_ff d_kv encoder_ffn_dim decoder_ffn_dim num_hidden_layers num_layers
        num_decoder_layers n_layers n_layer encoder_layers decoder_layers num_hidden_groups
        inner_group_num num_attention_heads num_heads n_heads n_head encoder_attention_heads
        decoder_attention_heads max_position_embeddings n_positions num_labels start_n_top end_n_top
        relative_attention_num_buckets relative_attention_max_distance global_attn_every_n_layers
        local_attention num_key_value_heads head_dim max_length sliding_window pooler_hidden_size
        attention_head_size num_hash_functions num_hash_buckets local_transformer_stride
        downsampling_rate upsampling_kernel_size
    """,
    _COUNT: "type_vocab_size mem_len reuse_len pad_token_id eos_token_id sep_token_id "
    "conv_kernel_size",
    _SIZES: "attention_window",
    _whole(-_MOST): "clamp_len position_buckets max_relative_positions",
    _RATE: """
        hidden_dropout_prob attention_probs_dropout_prob classifier_dropout_prob classifier_dropout
        dropout attention_dropout activation_dropout dropout_rate seq_classif_dropout qa_dropout
        summary_first_dropout summary_last_dropout resid_pdrop attn_pdrop embd_pdrop mlp_dropout
        embedding_dropout pooler_dropout cls_dropout
    """,
    _POSITIVE: """
        layer_norm_eps layer_norm_epsilon norm_eps rms_norm_eps global_rope_theta local_rope_theta
        rope_theta
    """,
    _SPREAD: "initializer_range init_std embedding_init_range",
    _FLAG: "is_decoder same_length scale_embedding scale_decoder_outputs tie_word_embeddings",
    _TEXT: """
        model_type hidden_act activation activation_function afn ff_activation feed_forward_proj
        attn_type problem_type hidden_activation classifier_activation classifier_pooling
        clf_pooling pooler_hidden_act
    """,
    _TEXTS: "architectures layer_types",
    _ONE_OR_SEVERAL: "pos_att_type",
    _OBJECT: "id2label rope_parameters",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_MAY_BE_NULL = frozenset(
    """
    architectures classifier_dropout classifier_dropout_prob cls_dropout eos_token_id head_dim
    id2label layer_types local_rope_theta mem_len n_inner num_decoder_layers num_key_value_heads
    pad_token_id pos_att_type problem_type reuse_len rope_parameters rope_theta sep_token_id
    """.split()
)


_OF_NO_RESULT = frozenset(
    """
    _name_or_path adapters architectures attn_implementation auto_map bad_words_ids
    begin_suppress_tokens bos_token bos_token_id chunk_size_feed_forward classifier_dropout
    classifier_dropout_prob cls_dropout cls_token_id d_head decoder_init_range
    decoder_start_token_id dense_act_fn deterministic_flash_attn directionality
    diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size end_n_top
    eos_token eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing id2label init_std initializer_cutoff_factor
    initializer_factor initializer_range is_encoder_decoder is_gated_act label2id language
    legacy length_penalty mask_token mask_token_id max_length min_length model_type n_ctx
    no_repeat_ngram_size normalize_before num_beam_groups num_beams num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token pad_token_id
    pooler_dropout pooler_hidden_act pooler_hidden_size prefix pretraining_tp problem_type
    qa_dropout remove_invalid_values repad_logits_with_grad repetition_penalty return_dict
    return_dict_in_generate sep_token_id seq_classif_dropout sparse_pred_ignore_index
    sparse_prediction start_n_top static_position_embeddings summary_activation
    summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type
    summary_use_proj suppress_tokens task_specific_params temperature tokenizer_class top_k
    top_p torch_dtype torchscript transformers_version typical_p use_bfloat16 use_cache
    use_mems_eval use_mems_train vocab_size_or_config_json_file
    """.split()
)
"""Settings that change no result: names, ids, training, sizes that repeat others, heads that a
class does not have, and how text is generated, which `generation_config.json` says."""


class Settings(Mapping[str, Any]):
    """The settings of one config.json by name.

    Sizes are at most 2^31 - 1. Whether they are those of the weights is another question, which
    `model_directory.read` asks. A setting that no family reads may have any value.

    Raises:
      ValueError: a setting that is read is of another type or out of its range; names the file.
    """

    def __init__(self, values: Mapping[str, Any], origin: object) -> None:
        """`origin` is the name of the file in errors."""
        self._values = values
        self._origin = origin
        self._read: set[str] = set()

    def unread(self) -> list[str]:
        """Settings with their values that nobody has read, and that say something."""
        return [
            f"{name}: {reprlib.repr(value)}"
            for name, value in sorted(self._values.items())
            if name not in self._read | _OF_NO_RESULT and value not in (None, False, [], {}, "")
        ]

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        value, kind = self._values[name], _KINDS.get(name)
        unset = value is None and name in _MAY_BE_NULL
        if kind is not None and not unset and not kind.allows(value):
            raise ValueError(
                f"{self._origin} has {name} {reprlib.repr(value)}, which is not {kind.words}: the "
                "file is damaged, or of another kind of model"
            )
        return float(value) if kind is not None and kind.real and not unset else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
