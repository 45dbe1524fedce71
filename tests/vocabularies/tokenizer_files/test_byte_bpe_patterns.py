"""How byte-level BPE divides text before merges, in scripts with combining marks."""

import json

import pytest
import tokenizers

from t5x_like.vocabularies.learning import vocabulary_recipe
from t5x_like.vocabularies.learning.subword_training import train_byte_bpe
from t5x_like.vocabularies.tokenizer_files import byte_bpe

HINDI = "यह किताब हिन्दी में लिखी गई है और वह विद्यालय जाता है।"
THAI = "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e17\u0e35\u0e48\u0e19\u0e31\u0e48\u0e19"
ENGLISH = "The cat's 12345 toys, HelloWorld!  It isn't\there."


def words(text, pattern):
    file = byte_bpe.tokenizer_json({}, [], pattern=pattern)
    divider = tokenizers.Tokenizer.from_str(file).pre_tokenizer
    return [text[a:b] for _, (a, b) in divider.pre_tokenize_str(text)]


def test_marks_stay_with_their_letters():
    assert words(HINDI, "gpt4o") == [
        " " * bool(i) + w for i, w in enumerate(HINDI[:-1].split())
    ] + [HINDI[-1]]
    assert words(THAI, "gpt4o") == [THAI[:7], THAI[7:]]
    assert len(words(HINDI, "gpt2")) > 2 * len(HINDI.split())


def test_patterns_of_english():
    gpt2 = "The| cat|'s| 12345| toys|,| HelloWorld|!| | It| isn|'t|\t|here|."
    gpt4o = "The| cat's| |123|45| toys|,| Hello|World|!| | It| isn't|\there|."
    assert "|".join(words(ENGLISH, "gpt2")) == gpt2
    assert "|".join(words(ENGLISH, "gpt4o")) == gpt4o


def test_a_vocabulary_of_hindi_has_its_words():
    sentences = [HINDI] * 3
    sizes = {
        pattern: len(
            train_byte_bpe(sentences, size=600, extra_ids=0, pattern=pattern).encode(HINDI)
        )
        for pattern in byte_bpe.PATTERNS
    }
    assert sizes["gpt4o"] == len(HINDI.split()) + 1
    assert sizes["gpt2"] > 2 * sizes["gpt4o"]


def test_gpt2s_is_as_the_library_has_it():
    ours = json.loads(byte_bpe.tokenizer_json({}, []))["pre_tokenizer"]
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert ours == json.loads(theirs.to_str())["pre_tokenizer"]


def test_a_pattern_is_named_and_of_byte_bpe_alone():
    assert vocabulary_recipe.Recipe(kind="byte_bpe").pattern == "gpt4o"
    with pytest.raises(ValueError, match="no pattern 'gpt3' of byte-level BPE: one of gpt2, gpt4o"):
        vocabulary_recipe.Recipe(kind="byte_bpe", pattern="gpt3")
    with pytest.raises(ValueError, match="a pattern is for byte_bpe alone"):
        vocabulary_recipe.Recipe(kind="unigram", pattern="gpt2")
