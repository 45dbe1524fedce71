"""What recipes set besides their figures, of which test_recipes.py has the table.

Optimizer, clipping, dropout, vocabulary, objective, lengths and the drawing of languages: a change
of any of them fails here. Our own are: Adam's b1, b2 and eps of GPT-2, and of GPT, whose paper says
nothing of them (its fine-tuning code does), nor of its clipping; clipping, decay and dropout of
GPT-2; b2 and eps of BART, whose clipping, decay and dropout of attention are of flags that
circulate; the rates of UL2's denoisers and the share of its suffix; all of legal_bert but BERT's
vocabulary; all of xlnet_base, which are the large size's; EuroBERT's vocabulary, of which the size
is published, and its packed rows; clipping, decay and eps of CANINE, which are ALBERT's. NeoBERT's
optimizer is that of its code, EuroBERT's the default of its trainer.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import gin
import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.core import partitioning
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.objectives import (
    albert,
    bart,
    canine,
    deberta,
    denoising,
    distilbert,
    electra,
    gap_sentences,
    lm,
    mlm,
    roberta,
    skip_gram,
    span_corruption,
    spanbert,
    ul2,
    xlnet,
)
from t5x_like.objectives.noise import corruptions, noise_masks, sentence_permutation, text_infilling
from t5x_like.runs.run import Run


def adam(
    kind: str,
    *,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    not_decayed: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    decay = {"weight_decay": weight_decay, "not_decayed": not_decayed}
    return {"kind": kind, "b1": 0.9, "b2": b2, "eps": eps, **decay}


ADAFACTOR = {
    "kind": "adafactor",
    "decay_rate": 0.8,
    "step_offset": 0,
    "clipping_threshold": 1.0,
    "multiply_by_parameter_scale": True,
    "min_dim_size_to_factor": 128,
    "momentum": None,
}
STABLE_ADAMW = {"kind": "stable_adamw", "peak": 3e-4, "b1": 0.9, "b2": 0.98, "eps": 1e-6}
STABLE_ADAMW |= {"weight_decay": 1e-5, "not_decayed": None}
BERT_ADAM = adam("adam_uncorrected")
FAIRSEQ_ADAM = adam("adam_epsilon_hat", b2=0.98, not_decayed=())
GPT_ADAM = adam("adam_epsilon_hat", eps=1e-8)


def pieces(
    kind: str, size: int, *, lowercase: bool = False, sentinels: int | None = 0
) -> VocabularyChoice:
    """One that is trained on the run's text; `sentinels` None: the usual 100."""
    made = VocabularyChoice(kind=kind, size=size, lowercase=lowercase, extra_ids=sentinels)
    # Byte-level BPE as its authors cut text, which is GPT-2's way.
    return dataclasses.replace(made, pattern="gpt2") if kind == "byte_bpe" else made


def spans(density: float, length: float) -> span_corruption.SpanCorruption:
    return span_corruption.SpanCorruption(noise_density=density, mean_noise_span_length=length)


def next_sentences(*, whole_words: bool = False) -> mlm.NextSentence:
    return mlm.NextSentence(
        masked_rate=0.15, max_predictions=None, whole_words=whole_words, static=True, dupe_factor=10
    )


def ul2_denoisers() -> ul2.UL2:
    suffix = denoising.Denoising(
        noise=noise_masks.SuffixNoise(density=0.5),
        inputs=corruptions.CleanTokens(),
        targets=corruptions.NoiseTokens(),
        targets_share=1.0,
        concatenate=True,
    )
    regular = [("[R]", 0.2, spans(0.15, 3.0)), ("[R]", 0.2, spans(0.15, 8.0))]
    short = [("[X]", 0.1, spans(0.5, 3.0)), ("[X]", 0.1, spans(0.5, 8.0))]
    long = [("[X]", 0.1, spans(0.15, 64.0)), ("[X]", 0.1, spans(0.5, 64.0))]
    rows = [*regular, *short, *long, ("[S]", 0.2, suffix)]
    return ul2.UL2(
        denoisers=tuple(ul2.Denoiser(mode=m, rate=r, objective=o) for m, r, o in rows),
        mode_tokens=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Of a kind of run; `vocabulary` None: that of the parameters it starts from; str: a named one.

    Attention drops as much as the rest where `of_attention` does not say otherwise.

    `lengths` are those of a run without phases, which have theirs among the figures.
    """

    optimizer: Mapping[str, Any]
    vocabulary: VocabularyChoice | str | None
    objective: object
    clip: float | None = 1.0
    dropout: float = 0.1
    of_attention: float | None = None
    lengths: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"inputs": 512})
    corpus_exponent: float = 1.0

    def but(self, **changes: Any) -> Settings:
        return dataclasses.replace(self, **changes)


ALBERT = Settings(
    optimizer=adam("lamb"),
    vocabulary=pieces("unigram", 30_000),
    objective=albert.ALBERT(
        ngram=3, favor_shorter=True, masked_rate=0.15, max_predictions=None, dupe_factor=1
    ),
)
CANINE = ALBERT.but(
    vocabulary="code_points",
    objective=canine.CanineC(masked_rate=0.15, max_predictions=None, dupe_factor=1),
    lengths={"inputs": 2048},
    corpus_exponent=0.7,
)
BERT = Settings(
    optimizer=BERT_ADAM,
    vocabulary=pieces("wordpiece", 30_522, lowercase=True),
    objective=next_sentences(),
)
ELECTRA = BERT.but(objective=electra.ELECTRA(masked_rate=0.15, every_token=True))
DEBERTA = Settings(
    optimizer=BERT_ADAM,
    vocabulary=pieces("byte_bpe", 50_265),
    objective=deberta.NGrams(masked_rate=0.15, max_ngram=3, mask=0.8, random=0.1),
)
DEBERTA_V3 = DEBERTA.but(
    optimizer=adam("adam_uncorrected", b2=0.98),
    vocabulary=pieces("unigram", 128_100),
    objective=deberta.ReplacedTokens(masked_rate=0.15, max_ngram=1, mask=1.0, random=0.0),
)
GPT2 = Settings(
    optimizer=GPT_ADAM,
    vocabulary=pieces("byte_bpe", 50_257),
    objective=lm.LanguageModeling(),
    lengths={"targets": 1024},
)
MODERNBERT = Settings(
    optimizer=STABLE_ADAMW,
    vocabulary=pieces("byte_bpe", 50_368),
    objective=mlm.MaskedLM(masked_rate=0.3),
    clip=None,
    of_attention=0.0,
    lengths={"inputs": 1024},
)
ETTIN = MODERNBERT.but(optimizer=STABLE_ADAMW | {"peak": 5e-4})
ETTIN_150M = MODERNBERT.but(optimizer=STABLE_ADAMW | {"peak": 8e-4})
ETTIN_SMALL = MODERNBERT.but(optimizer=STABLE_ADAMW | {"peak": 3e-3, "weight_decay": 3e-4})
ETTIN_1B = MODERNBERT.but(optimizer=STABLE_ADAMW | {"peak": 5e-4, "weight_decay": 5e-5})
NEOBERT = Settings(
    optimizer=adam("adamw", b2=0.95, eps=1e-8),
    vocabulary=pieces("wordpiece", 30_522, lowercase=True),
    objective=mlm.AllMasked(masked_rate=0.2),
    dropout=0.0,
    lengths={"inputs": 1024},
)
EUROBERT = Settings(
    optimizer=adam("adamw", b2=0.95, eps=1e-5, weight_decay=0.1),
    vocabulary=dataclasses.replace(pieces("byte_bpe", 128_256), pattern="gpt4o"),
    objective=mlm.AllMasked(masked_rate=0.5),
    dropout=0.0,
    lengths={"inputs": 2048},
)
ROBERTA = Settings(
    optimizer=FAIRSEQ_ADAM,
    vocabulary=pieces("byte_bpe", 50_265),
    objective=roberta.PackedSentences(masked_rate=0.15, whole_words=False, cross_documents=True),
    clip=None,
)
T5_1_1 = Settings(
    optimizer=ADAFACTOR,
    vocabulary=pieces("unigram", 32_000, sentinels=None),
    objective=spans(0.15, 3.0),
    clip=None,
    dropout=0.0,
    lengths={"inputs": 512, "targets": 114},
)
MT5 = T5_1_1.but(
    vocabulary=dataclasses.replace(
        pieces("unigram", 250_000, sentinels=None), character_coverage=0.99999, byte_fallback=True
    ),
    lengths={"inputs": 1024, "targets": 229},
    corpus_exponent=0.3,
)

# By name; the first that matches.
SETTINGS = {
    "albert_xxlarge_v1": ALBERT.but(dropout=0.0),
    "albert_*_v1": ALBERT,
    "albert_*": ALBERT.but(dropout=0.0),
    "bart_*": ROBERTA.but(
        objective=bart.BART(
            noises=(
                sentence_permutation.SentencePermutation(share=1.0),
                text_infilling.TextInfilling(rate=0.3, mean_span_length=3.0, mask_random=0.0),
            )
        ),
        clip=0.1,
        lengths={"inputs": 512, "targets": 512},
    ),
    "bert_wwm_large": BERT.but(objective=next_sentences(whole_words=True)),
    "bert_*": BERT,
    "byt5_*": MT5.but(
        vocabulary="bytes", objective=spans(0.15, 20.0), lengths={"inputs": 1024, "targets": 189}
    ),
    "canine_c": CANINE,
    "canine_s": CANINE.but(
        objective=canine.CanineS(
            masked_rate=0.15,
            max_predictions=77,
            dupe_factor=1,
            vocabulary="imported/bert_multilingual_cased",
        )
    ),
    "deberta_v2_*": DEBERTA.but(vocabulary=pieces("unigram", 128_100)),
    "deberta_v3_*": DEBERTA_V3,
    "deberta_*": DEBERTA,
    "mdeberta_*": DEBERTA_V3.but(vocabulary=pieces("unigram", 251_000)),
    "distilbert": Settings(
        optimizer=adam("adamw", b2=0.98, weight_decay=0.0),
        vocabulary=None,
        objective=distilbert.RareTokens(masked_rate=0.15),
        clip=5.0,
    ),
    "electra_small": ELECTRA.but(lengths={"inputs": 128}),
    "electra_base": ELECTRA,
    "electra_large": ELECTRA.but(objective=electra.ELECTRA(masked_rate=0.25, every_token=True)),
    **{
        f"ettin_{size}{kind}": one.but(**changes)
        for kind, changes in (
            ("", {}),
            ("_decoder", {"objective": lm.LanguageModeling(), "lengths": {"targets": 1024}}),
        )
        for size, one in (
            *((size, ETTIN_SMALL) for size in ("17m", "32m", "68m")),
            ("150m", ETTIN_150M),
            ("400m", ETTIN),
            ("1b", ETTIN_1B),
        )
    },
    "eurobert_*": EUROBERT,
    "gpt": GPT2.but(vocabulary=pieces("byte_bpe", 40_478), lengths={"targets": 512}),
    "gpt2*": GPT2,
    "legal_bert": BERT.but(vocabulary=None),
    "longt5_*": T5_1_1.but(
        objective=gap_sentences.GapSentences(share=0.2, targets_share=910 / 4096),
        lengths={"inputs": 4096, "targets": 910},
    ),
    "longformer_*": ROBERTA.but(
        optimizer=adam("adamw"), vocabulary=None, clip=5.0, lengths={"inputs": 4096}
    ),
    "modernbert_base": MODERNBERT,
    "modernbert_large": MODERNBERT.but(optimizer=STABLE_ADAMW | {"peak": 5e-4}),
    "mt5_*": MT5,
    "neobert": NEOBERT,
    "roberta_*": ROBERTA,
    "scibert": BERT.but(vocabulary=pieces("wordpiece", 31_090, lowercase=True)),
    "spanbert_*": Settings(
        optimizer=adam("adam_epsilon_hat", eps=1e-8, weight_decay=0.1, not_decayed=()),
        vocabulary=pieces("wordpiece", 28_996),
        objective=spanbert.SpanBERT(
            p=0.2, max_span_length=10, masked_rate=0.15, max_pair_targets=15
        ),
    ),
    "t5_1_1_*": T5_1_1,
    "t5_*": T5_1_1.but(dropout=0.1),
    "skip_gram": Settings(
        optimizer=adam("adamw", eps=1e-8, weight_decay=0.0),
        vocabulary=pieces("words", 692_000),
        objective=skip_gram.WordPairs(window=5, negatives=5, sample=1e-5),
        clip=None,
        lengths={"inputs": 1024},
    ),
    "ulmfit": Settings(
        optimizer=adam("adamw", b2=0.99, eps=1e-8, weight_decay=1e-7) | {"b1": 0.8},
        vocabulary=dataclasses.replace(
            pieces("words", 60_002, lowercase=True), strip_accents=False
        ),
        objective=lm.ContinuedLanguageModeling(mean_length=70),
        clip=0.3,
        lengths={"targets": 95},
    ),
    "ul2_20b": T5_1_1.but(
        vocabulary=pieces("unigram", 32_000, sentinels=128),
        objective=ul2_denoisers(),
        lengths={"inputs": 512, "targets": 512},
    ),
    "xlnet_*": Settings(
        optimizer=BERT_ADAM,
        vocabulary=pieces("unigram", 32_000),
        objective=xlnet.XLNet(
            partial_prediction=6, max_ngram=5, perm_size=None, reuse_length=None, bidirectional=True
        ),
    ),
}
FULL_SIZES = [name for name in gin_files.published_recipes() if not name.endswith("-mini")]


def optimizer_settings() -> dict[str, Any]:
    """What the configuration gives its optimizer, and what that has by default."""
    macro = gin.get_bindings("OPTIMIZER/gin.macro", resolve_references=False)["value"]
    make = macro.configurable.wrapped
    signature = inspect.signature(make).parameters.values()
    defaults = {one.name: one.default for one in signature if one.name != "learning_rate"}
    given = {k: v for k, v in gin_config.arguments_of(make).items() if k != "learning_rate"}
    return {"kind": make.__name__, **defaults, **given}


@pytest.mark.parametrize("name", FULL_SIZES)
def test_a_recipe_has_the_settings_of_its_kind(name: str, resolved: Callable[[str], Run]):
    expected = next(one for pattern, one in SETTINGS.items() if fnmatchcase(name, pattern))
    run = resolved(name)
    config = gin_config.arguments_of(run.model)["config"]
    vocabulary = run.data.vocabulary
    found = Settings(
        optimizer=optimizer_settings(),
        vocabulary=vocabulary.name or (vocabulary if run.init_from is None else None),
        objective=run.data.chosen_objective,
        clip=run.options.gradient_clip,
        dropout=getattr(config, "dropout_rate", expected.dropout),
        of_attention=expected.of_attention,
        lengths=run.data.lengths,
        corpus_exponent=run.data.corpus_exponent,
    )
    assert found == expected
    # T5's has one rate.
    rate = expected.dropout if expected.of_attention is None else expected.of_attention
    assert getattr(config, "attention_dropout_rate", rate) == rate


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL_SIZES)
def test_models_of_more_than_a_billion_parameters_are_cut(
    name: str, resolved: Callable[[str], Run]
):
    resolved(name)
    large = gin_files.published_recipes()[name].parameters > 1e9
    assert (gin_config.arguments_of(partitioning.make_layout)["mesh"] == {"fsdp": -1}) == large
