"""What a directory says is data: opening one runs no code that it names."""

from __future__ import annotations

import shutil

import pytest
import tiny_run

from t5x_like.api.loading import load
from t5x_like.config import gin_config, trust
from t5x_like.runs.completers.teacher import Teacher
from t5x_like.runs.init_from import InitFrom

HEAD = "from __gin__ import dynamic_registration\n"
HOSTILE = {
    "a program": "import subprocess\nMODEL = @subprocess.check_output()\n"
    "subprocess.check_output.args = ['touch', 'PWNED']",
    "a module": "import evil\nMODEL = 1",
    "a module of a package": "from os import path\nMODEL = @path.join()",
    "through our module": "from t5x_like.runs import run\nMODEL = @run.dataclasses.sys.exit()",
    "our importer": "from t5x_like.data import user_modules\n"
    "MODEL = @user_modules.import_module()\nuser_modules.import_module.module = 'evil.py'",
    "an earlier version": "from t5x_like.cli import run\nrun.Options.train_steps = 1",
    "our command line": "import t5x_like.cli.main\nMODEL = @t5x_like.cli.main.main()",
    "a private function": "from t5x_like.models import bert\nMODEL = @bert._private()",
    "another file": "include 'evil.gin'",
    "a block": "import subprocess\nsubprocess.run:\n  args = 'x'",
    "in a list": "import subprocess\nX = [{'a': (@s/subprocess.run(),)}]",
    "builtins": "X = @gin.config.open()",
    "a function that makes no part": "from t5x_like.layers.attention import masks\n"
    "MODEL = @masks.causal()\nmasks.causal.length = 1000000",
    "a key that is a list": "X = {[]: 1}",
    "no gin at all": "MODEL = open('PWNED', 'w')",
}


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A folder of the user's in which a module waits to be imported."""
    monkeypatch.chdir(tmp_path)
    code = "import pathlib\npathlib.Path('PWNED').write_text('')\n"
    (tmp_path / "evil.py").write_text(code)
    (tmp_path / "evil.gin").write_text(f"{HEAD}import evil\n")
    yield tmp_path
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_refused(text, evil):
    with pytest.raises(trust.UntrustedError, match="the configuration of a friend"):
        gin_config.load_text(HEAD + text, where="the configuration of a friend")


@pytest.mark.slow
def test_every_way_to_open_a_directory_refuses_a_hostile_one(tiny, cli, evil):
    run = tiny.trained("run", TRAIN_STEPS=1, EVAL_PERIOD=0)
    saved = (run / "config.gin").read_text()
    (run / "config.gin").write_text(f"{saved}\n{HOSTILE['a program']}\n")
    target = str(evil / "exported")
    for command in (
        ("inspect", str(run)),
        ("eval", str(run)),
        ("predict", str(run), "a ___"),
        ("export", "--from", str(run), "--to", target),
    ):
        result = cli(*command)
        assert result.status == 1, command
        assert "'subprocess', which is not of t5x_like" in result.err
    with pytest.raises(trust.UntrustedError):
        load(run)
    teacher = Teacher(directory=str(run))
    with pytest.raises(trust.UntrustedError):
        teacher.check(None)
    # Parameters alone are taken from such a directory: its configuration is not read.
    InitFrom(directory=str(run)).vocabulary()
    result = (
        tiny.train("next", "--gin_file=evil_start.gin", TRAIN_STEPS=1, EVAL_PERIOD=0)
        if write_start(evil, run)
        else None
    )
    assert result is not None
    assert result.status == 0, result.err


def write_start(folder, run):
    """A gin file of the user's that starts from `run`."""
    return (folder / "evil_start.gin").write_text(
        f"{HEAD}from t5x_like.runs import init_from\nINIT_FROM = @init_from.InitFrom()\n"
        f"init_from.InitFrom.directory = {str(run)!r}\n"
    )


@pytest.mark.slow
def test_the_module_of_a_task_is_imported_only_if_the_user_names_it(tiny, cli, evil):
    run = tiny.trained("run", TRAIN_STEPS=1, EVAL_PERIOD=0)
    saved = (run / "config.gin").read_text()
    assert "MIXTURE_OR_TASK_MODULE = None" in saved
    hostile = saved.replace("MIXTURE_OR_TASK_MODULE = None", "MIXTURE_OR_TASK_MODULE = 'evil.py'")
    (run / "config.gin").write_text(hostile)
    result = cli("eval", str(run), "--batches", "1")
    assert result.status == 0, result.err
    assert "add --module evil.py" in result.err
    assert not (evil / "PWNED").exists()
    assert cli("eval", str(run), "--batches", "1", "--module", "evil.py").status == 0
    (evil / "PWNED").unlink()


@pytest.mark.slow
def test_a_model_of_the_users_opens_with_its_module(tiny, cli, evil):
    run = tiny.trained("run", TRAIN_STEPS=1, EVAL_PERIOD=0)
    shutil.copy(run / "config.gin", evil / "before.gin")
    (evil / "mine.py").write_text(
        "from t5x_like.models import t5\n\n\nclass Mine(t5.T5):\n    pass\n"
    )
    saved = (run / "config.gin").read_text()
    assert "@t5.T5" in saved
    mine = saved.replace("@t5.T5", "@mine.Mine").replace("t5.T5.", "mine.Mine.")
    (run / "config.gin").write_text(mine.replace("\n\n", "\nimport mine\n\n", 1))
    result = cli("inspect", str(run), "--count")
    assert result.status == 1
    assert "add --module mine" in result.err
    shown = cli("inspect", str(run), "--count", "--module", "mine")
    assert shown.status == 0, shown.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("MODEL = None", "MODEL must be the class of a model"),
        ("MODEL = 5", "MODEL must be the class of a model"),
        ("MODEL = 'x'", "MODEL must be the class of a model"),
        ("DTYPE = %DTYPE", "settings refer to each other in a circle: DTYPE = %DTYPE"),
        ("DTYPE = %SEED\nSEED = %DTYPE", "in a circle: "),
        ("COMPLETER = 3", "COMPLETER must be None, or a completer"),
        ("ADAPT = 3", "ADAPT must be None, or a function of a model"),
        ("INIT_FROM = 3", "INIT_FROM must be None, a directory, or"),
        ("PHASES = 3", "PHASES must be a list"),
        ("FEATURE_CONVERTER = 3", "FEATURE_CONVERTER must be a feature converter"),
        ("LAYOUT = None", "LAYOUT must be a layout"),
        ("t5.Config.d_ff = '64'", "t5.Config.d_ff must be a whole number, got '64'"),
        ("t5.Config.d_ff = 1j", "t5.Config.d_ff must be a whole number, got 1j"),
        ("X = {[1]: 2}", "damaged: "),
    ],
)
def test_settings_of_another_kind_are_one_line(tiny, cli, tmp_path, setting, said):
    run = tmp_path / "run"
    run.mkdir()
    macros = [f"{name}={value!r}" for name, value in tiny.macros.items()]
    with gin_config.temporary_configuration():
        gin_config.load([str(tiny_run.HERE / "tiny.gin")], macros)
        saved = gin_config.config_text()
    (run / "config.gin").write_text(f"{saved}\n{setting}\n")
    result = cli("eval", str(run))
    assert result.status == 1
    assert said in result.err.splitlines()[-1], result.err
