import hashlib
import sys

import pytest

from t5x_like.data.corpora import registry
from t5x_like.tasks import stdlib_docs


@pytest.fixture(scope="module")
def splits():
    corpus = registry.get("stdlib_docs")
    return {
        split: [document["targets"] for document in corpus.documents(split)]
        for split in corpus.splits
    }


@pytest.mark.slow
def test_there_are_two_megabytes_with_some_held_out(splits):
    sizes = {name: sum(map(len, texts)) for name, texts in splits.items()}
    assert 1_000_000 < sum(sizes.values()) < 4_000_000
    assert 0.02 < sizes["validation"] / sum(sizes.values()) < 0.12
    assert not set(splits["train"]) & set(splits["validation"])


def test_it_is_english_prose(splits):
    words = " ".join(splits["train"]).lower().split()
    assert words.count("the") > len(words) / 50
    assert max(map(len, splits["train"])) < 200_000


@pytest.mark.slow
def test_reading_imports_nothing_and_repeats_itself(splits):
    before = set(sys.modules)
    again = [document["targets"] for document in registry.get("stdlib_docs").documents("train")]
    assert again == splits["train"]
    assert set(sys.modules) - before <= {"pydoc_data", "pydoc_data.topics"}


def test_documents_are_of_modules_and_classes(splits):
    (logging_filter,) = (
        text for texts in splits.values() for text in texts if text.startswith("logging.Filter\n")
    )
    assert "logging.Filter.filter\nDetermine if the specified record is to be logged." in (
        logging_filter
    )


@pytest.mark.slow
def test_a_python_without_topics_still_has_a_corpus(monkeypatch):
    corpus = registry.get("stdlib_docs")
    whole = corpus.fingerprint()
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert sum(len(document["targets"]) for document in corpus.documents("train")) > 500_000
    assert corpus.fingerprint() != whole


def test_docstrings_are_grouped_and_unreadable_files_left_out(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(
        '"""A module."""\n'
        "class A:\n"
        '    """Class A.\n\n    It has\n    a method.\n\n        code(\n          1)\n    """\n'
        '    async def f(self):\n        """Method f."""\n'
        '    class B:\n        "Nested."\n'
        "    def silent(self): pass\n"
        'def g():\n    """Function g."""\n'
    )
    assert list(stdlib_docs._docstrings(path, "m")) == [
        "m\nA module.\n\nm.g\nFunction g.",
        "m.A\nClass A.\n\nIt has a method.\n\n    code(\n      1)\n\nm.A.f\nMethod f.",
        "m.A.B\nNested.",
    ]
    path.write_text("this is no Python")
    assert list(stdlib_docs._docstrings(path, "m")) == []


def test_fingerprint_says_which_python(monkeypatch):
    corpus = registry.get("stdlib_docs")
    before = corpus.fingerprint()
    assert before == corpus.fingerprint()
    assert len(before) == hashlib.sha256().digest_size * 2
    monkeypatch.setattr(sys, "version", "3.99.0")
    assert corpus.fingerprint() != before
