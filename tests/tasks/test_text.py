import pytest

from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.tasks.text import text


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    registry.names()
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


def test_one_call_registers_files(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    made = text("mine", tmp_path / "*.txt", separator="line", validation=0)
    assert registry.get("mine") is made
    assert list(made.documents("train")) == [{"targets": "one"}, {"targets": "two"}]


def test_files_need_not_be_there_yet(tmp_path):
    text("later", tmp_path / "*.txt")
    with pytest.raises(CorpusError, match="no file matches"):
        next(registry.get("later").documents("train"))
