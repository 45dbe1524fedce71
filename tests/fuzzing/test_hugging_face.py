"""A directory of Hugging Face: config.json of every family."""

from __future__ import annotations

import json

import jax
import numpy as np
from flax import nnx
from mutations import of_json, one_of

from t5x_like.interop.hugging_face import families, model_directory

SIZES = {"vocab_size": 9, "num_labels": 3}
BERT = {
    **SIZES,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
}
T5 = {**SIZES, "d_model": 4, "d_ff": 6, "d_kv": 2, "num_heads": 2, "num_layers": 1}
BART = {
    **SIZES,
    "d_model": 4,
    "max_position_embeddings": 7,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 6),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
}
GPT = {**SIZES, "n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 7, "n_inner": 6}
XLNET = {**SIZES, "d_model": 4, "d_inner": 6, "n_head": 2, "n_layer": 1, "mem_len": 3}
DISTILBERT = {
    **SIZES,
    "dim": 4,
    "hidden_dim": 6,
    "n_heads": 2,
    "n_layers": 1,
    "max_position_embeddings": 7,
}
DEBERTA = {
    **BERT,
    "num_hidden_layers": 2,
    "relative_attention": True,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "pos_att_type": "c2p|p2c",
    "position_buckets": 4,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 3,
    "conv_act": "gelu",
}
MODELS = {
    "BertForPreTraining": ("bert", {**BERT, "hidden_act": "relu"}),
    "RobertaForSequenceClassification": ("roberta", {**BERT, "classifier_dropout": None}),
    "AlbertForMaskedLM": ("albert", {**BERT, "embedding_size": 3, "num_hidden_groups": 1}),
    "ElectraForTokenClassification": ("electra", {**BERT, "embedding_size": 3}),
    "DistilBertForQuestionAnswering": ("distilbert", {**DISTILBERT, "qa_dropout": 0.2}),
    "ModernBertForMaskedLM": ("modernbert", {**BERT, "local_attention": 4}),
    "ModernBertDecoderForCausalLM": ("modernbert-decoder", {**BERT, "local_attention": 4}),
    "NeoBERTLMHead": ("neobert", {**BERT, "max_length": 7}),
    "EuroBertForSequenceClassification": ("eurobert", {**BERT, "num_key_value_heads": 1}),
    "DebertaV2ForMaskedLM": ("deberta-v2", DEBERTA),
    "CanineForTokenClassification": (
        "canine",
        {**BERT, "num_hash_buckets": 9, "num_hash_functions": 2},
    ),
    "LongformerForQuestionAnswering": ("longformer", {**BERT, "attention_window": [4]}),
    "XLNetForMultipleChoice": ("xlnet", {**XLNET, "summary_last_dropout": 0.2}),
    "T5ForConditionalGeneration": ("t5", {**T5, "feed_forward_proj": "gated-gelu"}),
    "LongT5ForConditionalGeneration": ("longt5", {**T5, "global_block_size": 2}),
    "LEDForConditionalGeneration": ("led", {**BART, "attention_window": [4]}),
    "BartForConditionalGeneration": ("bart", {**BART, "scale_embedding": True}),
    "GPT2LMHeadModel": ("gpt2", {**GPT, "layer_norm_epsilon": 1e-5}),
}


def make(folder):
    for architecture, (model_type, config) in MODELS.items():
        config = {**config, "model_type": model_type, "architectures": [architecture]}
        make_model = families.of_config(config).from_hf(config, architecture)
        model = nnx.eval_shape(lambda make_model=make_model: make_model(rngs=nnx.Rngs(0)))
        shapes = nnx.to_pure_dict(nnx.state(model, nnx.Param))
        params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)
        model_directory.write(folder / architecture, model, params)
        whole = json.loads((folder / architecture / "config.json").read_bytes()) | config
        (folder / architecture / "config.json").write_text(json.dumps(whole))


def read(folder):
    found = model_directory.read(folder)
    model = nnx.eval_shape(lambda: found.make(rngs=nnx.Rngs(0)))
    model_directory.write(folder / "again", model, found.params)


def damage(draw, files):
    return one_of(draw, files, of_json, ["config.json"])


def test_damaged_settings(fuzz):
    fuzz(__file__, damage)
