"""What all families share: config.json as a whole, and models as gin text."""

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from t5x_like.config import gin_config
from t5x_like.config.object_text import model_text
from t5x_like.core.protocols.data import TokenIds
from t5x_like.interop.hugging_face import families, model_directory
from t5x_like.interop.hugging_face.configuration.settings import Settings

BERT = {
    "vocab_size": 9,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 7,
    "hidden_dropout_prob": 0.3,
}
GPT = {"vocab_size": 9, "n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 7, "attn_pdrop": 0.3}
T5 = {"vocab_size": 9, "d_model": 4, "d_ff": 6, "d_kv": 2, "num_heads": 2, "num_layers": 1}
BART = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    "vocab_size": 9,
    "d_model": 4,
    "dropout": 0.3,
    **{f"{side}_ffn_dim": 6 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
}
MODERNBERT = {
    **{name: size for name, size in BERT.items() if name != "hidden_dropout_prob"},
    "num_hidden_layers": 22,  # transformers' default has a kind for each of so many
    "attention_dropout": 0.3,
    "classifier_dropout": 0.2,
    "global_rope_theta": 80_000.0,
}
EUROBERT = {
    **{name: size for name, size in BERT.items() if name != "hidden_dropout_prob"},
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500.0,
    "head_dim": 2,
}
DEBERTA = {
    **BERT,
    "num_hidden_layers": 2,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "c2p|p2c",
    "pooler_hidden_size": 4,
    "cls_dropout": 0.2,
}
DEBERTA_V2 = {**DEBERTA, "position_buckets": 4, "share_att_key": True}
DEBERTA_V2 |= {"norm_rel_ebd": "layer_norm"}
DISTILBERT = {"vocab_size": 9, "dim": 4, "hidden_dim": 6, "n_heads": 2, "n_layers": 1}
XLNET = {"vocab_size": 9, "d_model": 4, "d_inner": 6, "n_head": 2, "n_layer": 1, "dropout": 0.3}
CLASSES, TAGS, CHOICES, SPANS = (
    f"For{name}"
    for name in (
        "SequenceClassification",
        "TokenClassification",
        "MultipleChoice",
        "QuestionAnswering",
    )
)
TASKS = (CLASSES, TAGS, CHOICES, SPANS)
OF_T5 = ("ForConditionalGeneration", "Model", "EncoderModel", CLASSES, TAGS, SPANS)
OF_BART = ("ForConditionalGeneration", "Model", "ForCausalLM", CLASSES, SPANS)
OF_GPT = ("LMHeadModel", "Model", "DoubleHeadsModel", CLASSES)
# By model type: the prefix of class names, their endings, and a small config.json. Heads are
# the same on bodies of the same kind.
FAMILIES = {
    "bert": (
        "Bert",
        (
            *("ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction", "Model", *TASKS),
            "Model(add_pooling_layer=False)",
        ),
        {**BERT, "hidden_act": "relu", "classifier_dropout": 0.2},
    ),
    "roberta": ("Roberta", ("ForMaskedLM", "Model", *TASKS), BERT),
    "distilbert": ("DistilBert", ("ForMaskedLM", "Model", *TASKS), DISTILBERT),
    "modernbert": (
        "ModernBert",
        ("ForMaskedLM", "Model", *TASKS),
        MODERNBERT,
    ),
    "modernbert-decoder": (
        "ModernBertDecoder",
        ("ForCausalLM", "Model", CLASSES),
        {**MODERNBERT, "local_attention": 6},
    ),
    "eurobert": ("EuroBert", ("ForMaskedLM", "Model", CLASSES, TAGS), EUROBERT),
    "longformer": (
        "Longformer",
        ("ForMaskedLM", "Model", *TASKS),
        {**BERT, "attention_window": 4, "layer_norm_eps": 1e-5},
    ),
    "canine": (
        "Canine",
        ("Model", *TASKS),
        {
            **BERT,
            "max_position_embeddings": 9,
            "num_hash_buckets": 9,
            "num_hash_functions": 2,
            "local_transformer_stride": 3,
        },
    ),
    "deberta": ("Deberta", ("ForMaskedLM", CLASSES), DEBERTA),
    "deberta-v2": ("DebertaV2", ("ForMaskedLM", "Model", *TASKS), DEBERTA_V2),
    "albert": ("Albert", ("ForPreTraining", "ForMaskedLM", "Model", *TASKS), BERT),
    "electra": ("Electra", ("ForPreTraining", "ForMaskedLM", "Model", *TASKS), BERT),
    "xlnet": (
        "XLNet",
        ("LMHeadModel", "Model", *TASKS, "ForQuestionAnsweringSimple"),
        {**XLNET, "ff_activation": "relu", "mem_len": 3},
    ),
    "t5": ("T5", OF_T5, {**T5, "feed_forward_proj": "gated-silu", "classifier_dropout": 0.2}),
    "mt5": ("MT5", OF_T5[:1], {**T5, "num_decoder_layers": 2}),
    "umt5": ("UMT5", OF_T5[:1], {**T5, "feed_forward_proj": "gated-gelu"}),
    "longt5": (
        "LongT5",
        OF_T5[:3],
        {**T5, "encoder_attention_type": "transient-global", "local_radius": 3},
    ),
    "led": (
        "LED",
        ("ForConditionalGeneration", "Model", SPANS),
        {**BART, "activation_function": "relu", "attention_window": 4},
    ),
    "bart": ("Bart", OF_BART, {**BART, "activation_function": "relu"}),
    "mbart": ("MBart", OF_BART[:1], {**BART, "scale_embedding": True}),
    "gpt2": ("GPT2", (*OF_GPT, TAGS, SPANS), {**GPT, "n_inner": 6}),
    "openai-gpt": ("OpenAIGPT", OF_GPT, GPT),
}
WITHOUT_HEADS = {"led", "longt5"}
# Encoders that see only one side where this is set.
DECODERS = {"bert": "LMHeadModel", "roberta": "ForCausalLM", "electra": "ForCausalLM"}


def abstract(make):
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))


def built(model_type, head, **more):
    """The constructor, and the abstract model."""
    start, _, sizes = FAMILIES[model_type]
    config = {"model_type": model_type, "num_labels": 3, **sizes, **more}
    make = families.of_config(config).from_hf(config, start + head)
    return make, abstract(make)


WRONG = (None, True, "", "1", "x" * 10_000, -1, 0, 1.5, 2**31, 10**30, 1e400, [], [1], {}, {"a": 1})


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_setting_of_another_type_or_size_is_refused_by_name(model_type):
    """Every setting that a family reads, in every class: a message, or a constructor."""
    start, heads, sizes = FAMILIES[model_type]
    heads = (heads[0], *heads[-2:])
    config = {"model_type": model_type, "num_labels": 3, "is_decoder": False, **sizes}
    read: set[str] = set()

    class Recorded(Settings):
        def __getitem__(self, name):
            read.add(name)
            return super().__getitem__(name)

    for head in heads:
        family = families.of_config(config)
        abstract(family.from_hf(Recorded(config, "FILE"), start + head))
    assert sizes.keys() <= read
    for name in sorted(read):
        for wrong in WRONG:
            given = Settings({**config, name: wrong}, "FILE/config.json")
            for head in heads:
                with contextlib.suppress(ValueError):
                    families.of_config(given).from_hf(given, start + head)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_setting_that_no_family_reads_is_named(model_type):
    transformers = pytest.importorskip("transformers")
    start, heads, sizes = FAMILIES[model_type]
    usual = transformers.AutoConfig.for_model(model_type).to_dict() | sizes
    given = Settings({**usual, "attention_sinks": 128, "use_flash": False}, "FILE")
    families.of_config(given).from_hf(given, start + heads[0])
    assert given.unread() == ["attention_sinks: 128"]


@pytest.mark.parametrize(
    ("name", "size"),
    [("vocab_size", 2**31 - 1), ("hidden_size", 2**30), ("num_hidden_layers", 2**30)],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    name, size, tmp_path
):
    written(tmp_path, "bert", "ForMaskedLM")
    path = tmp_path / model_directory.CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: size}))
    with pytest.raises(
        ValueError, match=r"config\.json asks for .* they belong to different models"
    ):
        model_directory.read(tmp_path)


def shapes(model):
    return jax.tree.map(lambda leaf: leaf.shape, nnx.to_pure_dict(nnx.state(model, nnx.Param)))


@pytest.mark.parametrize(
    ("model_type", "head"),
    [(name, head) for name, (_, ends, _) in FAMILIES.items() for head in ends]
    + list(DECODERS.items()),
)
def test_gin_text_of_an_import_makes_the_same_model(model_type, head):
    more = {"is_decoder": True, "hidden_act": "gelu"} if head == DECODERS.get(model_type) else {}
    make, model = built(model_type, head, **more)
    gin_config.load_text(model_text(make, title="An import."))
    again = abstract(gin_config.macro("MODEL"))
    assert shapes(again) == shapes(model)
    for field in dataclasses.fields(model.config):
        found, given = (getattr(x.config, field.name) for x in (again, model))
        assert callable(given) or found == given, field.name
    # Functions, heads and tasks: as they would be exported.
    family = families.of_model(model)
    assert family.to_hf(again) == family.to_hf(model)


def written(directory, model_type, head, *, ids=None, original=None, **more):
    """The config.json of an export."""
    _, model = built(model_type, head, **more)
    params = jax.tree.map(np.zeros, shapes(model), is_leaf=lambda x: isinstance(x, tuple))
    model_directory.write(directory, model, params, ids=ids, original=original)
    return model_directory.read_config(directory)


SENTIMENT = {
    "architectures": ["DistilBertForSequenceClassification"],
    "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
    "label2id": {"NEGATIVE": 0, "POSITIVE": 1},
    "problem_type": "single_label_classification",
    "dim": 768,
    "torch_dtype": "float16",
}


def test_what_an_import_knew_comes_back(tmp_path):
    found = written(
        tmp_path, "distilbert", CLASSES, original=SENTIMENT, ids=TokenIds(9, pad=3), num_labels=2
    )
    for name in ("architectures", "id2label", "label2id", "problem_type"):
        assert found[name] == SENTIMENT[name], name
    # The model comes first, and what the original does not name comes from the vocabulary.
    assert (found["dim"], found["dtype"], found["pad_token_id"]) == (4, "float32", 3)
    assert "torch_dtype" not in found


def test_names_of_other_labels_and_the_config_of_another_class_are_left(tmp_path):
    found = written(tmp_path / "3", "distilbert", CLASSES, original=SENTIMENT, num_labels=3)
    assert found["num_labels"] == 3
    assert "id2label" not in found
    found = written(tmp_path / "tags", "distilbert", TAGS, original=SENTIMENT, num_labels=2)
    assert not {"id2label", "problem_type"} & found.keys()


def test_a_decoder_starts_as_it_did(tmp_path):
    original = {
        "architectures": ["MBartForConditionalGeneration"],
        "decoder_start_token_id": 7,
        "forced_eos_token_id": 2,
    }
    ids = TokenIds(9, pad=1, eos=4, bos=None)
    head = "ForConditionalGeneration"
    found = written(tmp_path / "same", "mbart", head, original=original, ids=ids)
    assert {**found, **original} == found
    found = written(tmp_path / "new", "mbart", head, ids=ids)
    assert (found["decoder_start_token_id"], found["eos_token_id"]) == (None, 4)
    assert found["bos_token_id"] is None  # The published one is another token here.


@pytest.mark.parametrize(
    ("model_type", "ids", "expected"),
    [
        ("bart", TokenIds(9, pad=5, eos=4, bos=3), {"pad": 1, "eos": 4, "bos": 3, "start": 4}),
        ("bart", None, {"pad": 1, "eos": 2, "bos": 0, "start": 2}),
        ("t5", TokenIds(9, eos=4), {"pad": 0, "eos": 4, "start": 0}),
        ("gpt2", TokenIds(9, pad=8, eos=8, unk=None), {"pad": None, "eos": 8, "bos": None}),
        ("gpt2", TokenIds(9, pad=0, eos=8, unk=0), {"pad": None, "eos": 8, "bos": None}),
        ("gpt2", TokenIds(9, pad=3, eos=8, bos=7), {"pad": 3, "eos": 8, "bos": 7}),
        ("roberta", TokenIds(9, pad=0, eos=None), {"pad": 1, "eos": None, "bos": None}),
    ],
)
def test_special_ids_are_those_of_the_vocabulary(model_type, ids, expected, tmp_path):
    head = FAMILIES[model_type][1][0]
    found = written(tmp_path, model_type, head, ids=ids)
    names = {"start": "decoder_start_token_id"}
    got = {role: found[names.get(role, f"{role}_token_id")] for role in expected}
    assert got == expected


@pytest.mark.parametrize("model_type", sorted(FAMILIES.keys() - WITHOUT_HEADS))
@pytest.mark.parametrize(
    ("labels", "problem"),
    [(1, "multi_label_classification"), (3, "regression"), (1, "single_label_classification")],
)
def test_rows_of_several_labels_or_numbers_are_refused(model_type, labels, problem):
    with pytest.raises(ValueError, match=f"problem_type {problem!r}"):
        built(model_type, CLASSES, num_labels=labels, problem_type=problem)


def test_a_config_is_json(tmp_path):
    written(tmp_path, "bert", "Model")
    text = (tmp_path / model_directory.CONFIG).read_text(encoding="utf-8")
    assert list(json.loads(text)) == sorted(json.loads(text))
