# ruff: noqa: E501 (prose)
"""Writes docs/objectives.md: every objective with an example, as `t5x_like show` prints it.

    python docs/make_objectives.py

Run it when an objective or the look of examples changes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from t5x_like import objectives

INTRODUCTION = """\
# Objectives

What a model is to learn from plain text: which tokens it sees, and which it must predict. Each
objective below is a task on any corpus, `<corpus>.<objective>`, and one cache of a corpus serves
them all, at any length. `t5x_like objectives` lists them, `t5x_like objectives NAME` prints the fields
of one, and a run changes them by its class: `--gin.mlm.MaskedLM.masked_rate=0.2`. [new_objective.md](new_objective.md) adds one.

```sh
t5x_like show stdlib_docs.mlm                     # three examples of the text you name, in colour
t5x_like show --corpus 'data/*.txt' --objective xlnet --html xlnet.html
```

Without colour, `{braces}` stand around a token that was replaced by a random one, `=signs=` around
one that was kept and is predicted all the same, `[brackets]` around what is predicted. The examples
are of the documentation inside Python 3.11, under a vocabulary of 8,000 pieces trained on it; the
line above each example says how full its rows are on that text.

Noise is drawn again in every epoch, from the run's seed and the example's number alone, so that a
resumed run, another number of hosts and SeqIO see the same; a `static` objective repeats its noise.
Sentences are found by the rules of the text's language ([data.md](data.md#sentences)); [at the
end](#other-scripts) is what becomes of other scripts. Where a paper's text and its published code
differ, the code is followed, and the docstring of the class says so.
"""

FAMILIES = {
    "T5": (
        "For encoder-decoders (Raffel et al. 2020, section 3.3). Sentinels `<extra_id_0>`, ... are the "
        "highest ids of the vocabulary. Rows of `iid_*` draw each token by itself. Other rates and mean "
        "lengths of spans are fields: `SpanCorruption.noise_density`, `.mean_noise_span_length`; of "
        "`iid_*`, `IidNoise.density` and, as targets grow with it, `Denoising.targets_share`.",
        "span_corruption drop_spans iid_replace iid_drop bert_style mass_style deshuffling prefix_lm",
    ),
    "MASS": ("For encoder-decoders (Song et al. 2019).", "mass"),
    "UL2": (
        "For encoder-decoders (Tay et al. 2022). Each example draws one of seven denoisers and says "
        "which kind in a mode token.",
        "ul2",
    ),
    "BART": (
        "For encoder-decoders (Lewis et al. 2020, section 2.2): five kinds of noise, alone or one "
        "after another, and always the whole text as the target.",
        "bart text_infilling token_masking token_deletion sentence_permutation document_rotation",
    ),
    "BERT": (
        "For encoders (Devlin et al. 2019, section 3.1). A share of the tokens is predicted; of those, "
        "80 % are masked, 10 % replaced and 10 % kept.",
        "mlm mlm_static mlm_whole_word mlm_nsp",
    ),
    "RoBERTa": (
        "For encoders (Liu et al. 2019, section 4.2): masking again in every epoch, in four input formats.",
        "segment_pair sentence_pair full_sentences doc_sentences",
    ),
    "SpanBERT": ("For encoders (Joshi et al. 2020, section 3).", "spanbert"),
    "ALBERT": ("For encoders (Lan et al. 2020, section 3.1).", "albert mlm_sop"),
    "ELECTRA": (
        "For a generator and a discriminator (Clark et al. 2020, section 3). The ablations of its "
        "section 3.5 (ELECTRA 15 %, Replace MLM, All-Tokens MLM) read the same inputs; `discriminator_loss_weights` say where the second network is "
        "scored.",
        "electra electra_15 electra_replace_mlm electra_all_tokens_mlm",
    ),
    "DistilBERT": ("For a student beside its teacher (Sanh et al. 2019).", "distilbert"),
    "XLNet": (
        "For encoders with memory (Yang et al. 2019, sections 2.2 to 2.4). Rows continue from batch to "
        "batch. Position i may not look at position j where its `permutation_query_order` is at most "
        "the other's `permutation_key_order`: all that a model needs to make its masks.",
        "xlnet",
    ),
    "Language models": (
        "For decoders (Radford et al. 2019; Raffel et al. 2020). `prefix_lm`, and any other objective "
        "of inputs and targets, UL2 included, trains a decoder by itself where the model's rows are "
        "made by `feature_converters.PrefixDecoder()`: it joins the two, lets inputs be seen from "
        "both sides and scores targets alone.",
        "lm lm_t5",
    ),
}

SCRIPTS = """\
## Other scripts

`bart` puts sentences in another order and masks spans of words, so that it shows what both are in a
script. Sentences end where the language's rules say. A word ends before the next space; in scripts
that put none between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) every piece of the
vocabulary is a word, which is a character in these examples, as their vocabulary has nothing else.
Thai has no mark that ends a sentence, only a space that also stands elsewhere: the library finds none.
"""

TEXTS = {
    "English": (
        "en",
        "The river was calm. Did you see the boats? They came at dawn! Nobody spoke to Dr. Brown.",
    ),
    "Chinese": ("zh", "河水很平静。你看见船了吗？它们黎明时来了！没有人说话。"),  # noqa: RUF001
    "Hindi": ("hi", "नदी शांत थी। क्या तुमने नावें देखीं? वे भोर में आईं! कोई नहीं बोला।"),
    "Arabic": ("ar", "كان النهر هادئا. هل رأيت القوارب؟ لقد جاءت عند الفجر! لم يتكلم أحد."),
    "Thai": ("th", "แม่น้ำสงบนิ่ง คุณเห็นเรือไหม พวกมันมาถึงตอนรุ่งสาง ไม่มีใครพูดอะไร"),
}


def main() -> None:
    """Writes the page."""
    parts = [INTRODUCTION]
    summaries = objectives.summaries()
    for family, (about, names) in FAMILIES.items():
        parts.append(f"## {family}\n\n{textwrap.fill(about, 100)}\n")
        for name in names.split():
            command = f"t5x_like show stdlib_docs.{name} -n 1 --length 64"
            summary = summaries[name][0].upper() + summaries[name][1:]
            parts.append(f"### {name}\n\n{summary}.\n")
            parts.append(f"```\n$ {command}\n{_output(command)}\n```\n")
    parts.append(SCRIPTS)
    parts += [f"### {name}\n\n{_of_script(*text)}" for name, text in TEXTS.items()]
    Path(__file__).with_name("objectives.md").write_text("\n".join(parts), encoding="utf-8")


def _of_script(language: str, text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{language}.txt").write_text(text, encoding="utf-8")
        command = (
            f"t5x_like show --corpus {language}.txt --sentences {language} --objective bart "
            "--vocab_type characters --vocab_size 99 --validation 0 --length 100 -n 1"
        )
        shown = _output(f"{command} --cache_dir .", folder)
    return f"```\n$ {command}\n{shown}\n```\n"


def _output(command: str, folder: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--color", "never"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    # What was made on the first use, and what the page says once.
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if " rows an epoch;" in line)
    return "\n".join(line for line in lines[first:] if not line.startswith("marks:")).strip()


if __name__ == "__main__":
    main()
