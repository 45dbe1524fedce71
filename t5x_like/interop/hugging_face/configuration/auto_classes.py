"""Finds the class of transformers to open an architecture with, and its kind of pipeline."""

from __future__ import annotations

from typing import NamedTuple


class Opener(NamedTuple):
    """The class whose `from_pretrained` opens an architecture, and the hub's `pipeline_tag`.

    `code` says whether that runs code from the hub, which transformers asks the user to trust.
    """

    name: str
    pipeline_tag: str | None
    code: bool = False


_BY_ENDING = {
    "ForPreTraining": Opener("AutoModelForPreTraining", "fill-mask"),
    "ForMaskedLM": Opener("AutoModelForMaskedLM", "fill-mask"),
    "ForCausalLM": Opener("AutoModelForCausalLM", "text-generation"),
    "LMHeadModel": Opener("AutoModelForCausalLM", "text-generation"),
    "ForConditionalGeneration": Opener("AutoModelForSeq2SeqLM", "text2text-generation"),
    "ForSequenceClassification": Opener(
        "AutoModelForSequenceClassification", "text-classification"
    ),
    "ForTokenClassification": Opener("AutoModelForTokenClassification", "token-classification"),
    "ForQuestionAnswering": Opener("AutoModelForQuestionAnswering", "question-answering"),
    "ForQuestionAnsweringSimple": Opener("AutoModelForQuestionAnswering", "question-answering"),
    "ForMultipleChoice": Opener("AutoModelForMultipleChoice", "multiple-choice"),
    "ForNextSentencePrediction": Opener("AutoModelForNextSentencePrediction", None),
    # No automatic class opens these with all of their weights.
    "DoubleHeadsModel": Opener("", None),
    "EncoderModel": Opener("", "feature-extraction"),
    "Model": Opener("AutoModel", "feature-extraction"),
}
_EXCEPTIONS = {
    "NeoBERTLMHead": Opener("AutoModelForMaskedLM", "fill-mask", code=True),
    "NeoBERTForSequenceClassification": Opener(
        "AutoModelForSequenceClassification", "text-classification", code=True
    ),
    "NeoBERT": Opener("AutoModel", "feature-extraction", code=True),
    "ElectraForPreTraining": Opener("AutoModelForPreTraining", None),  # it guesses no words
    "XLNetForQuestionAnswering": Opener("", "question-answering"),
}


def opener(architecture: str) -> Opener:
    """The class that opens an architecture: an automatic one, or else the architecture's own class.

    Args:
      architecture: one of `architectures` in config.json.
    """
    endings = [ending for ending in _BY_ENDING if architecture.endswith(ending)]
    known = _EXCEPTIONS.get(architecture) or _BY_ENDING[max(endings, key=len)]
    return known if known.name else known._replace(name=architecture)
