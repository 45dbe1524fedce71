import subprocess
import sys
from pathlib import Path

import pytest

import t5x_like
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import CorpusError


@pytest.fixture
def _own_registry(monkeypatch):
    registry.names()
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


@pytest.mark.usefixtures("_own_registry")
def test_names_are_found_and_taken_once(make_corpus):
    corpus = make_corpus(["a text"])
    corpus.name = "my_corpus"
    registry.add(corpus)
    assert registry.get("my_corpus") is corpus
    assert {"my_corpus", "stdlib_docs"} <= set(registry.names())
    with pytest.raises(ValueError, match=r"'my_corpus' already \(in memory\)"):
        registry.add(corpus)


@pytest.mark.usefixtures("_own_registry")
def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(CorpusError, match=r"no corpus 'stdlib_doc'; nearest: stdlib_docs"):
        registry.get("stdlib_doc")


def test_a_checkout_that_is_not_installed_has_its_corpora():
    root = Path(t5x_like.__file__).parent.parent
    code = (
        "import sys\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if 'ditable' not in str(one)]\n"
        f"sys.path.insert(0, {str(root)!r})\n"
        "from t5x_like.data.corpora import registry\n"
        "print('stdlib_docs' in registry.names())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout == "True\n", done.stderr
