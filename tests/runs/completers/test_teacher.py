"""A frozen teacher from a directory: its outputs, their layout, a student that follows it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stored_berts
from flax import nnx
from tiny_run import finish

from t5x_like.config import gin_config
from t5x_like.core.partitioning import make_layout
from t5x_like.models import distilbert
from t5x_like.runs import saved_model
from t5x_like.runs.completers.teacher import Teacher
from t5x_like.runs.init_from import InitFrom
from t5x_like.training.completion import Completion
from t5x_like.training.logs.run_log import RunLog
from t5x_like.vocabularies.characters import CharacterVocabulary

OURS, OTHERS = (CharacterVocabulary(one, extra_ids=0) for one in ("abc", "abd"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("teacher")
    stored_berts.write(made, vocabulary=OURS)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("own", [None, {"fsdp": 2, "tensor": 4}], ids=str)
def test_outputs_are_the_teachers_split_by_the_students_rows(
    own: dict[str, int] | None, directory: Path
) -> None:
    gin_config.load(["distilbert"], ["distilbert.Config.num_layers=3"])
    before = gin_config.config_text()
    layout = make_layout({"data": 4, "tensor": 2})
    teacher = Teacher(directory=str(directory), layout=own and make_layout(own))
    batch = stored_berts.batch(layout)
    taught = teacher.open(layout).complete(batch, step=0, kept={})
    assert gin_config.config_text() == before

    assert taught.keys() - batch.keys() == {"teacher_logits", "teacher_states"}
    assert taught["teacher_states"].dtype == jnp.bfloat16
    with gin_config.temporary_configuration():
        found = saved_model.read(str(directory))
    host = jax.tree.map(np.asarray, batch)
    params = jax.tree.map(lambda unread: unread.read(), found.params)
    model = nnx.merge(nnx.split(found.model)[0], params)
    want = jax.jit(distilbert.teach)(model, host)
    for name in ("teacher_logits", "teacher_states"):
        assert taught[name].sharding.is_equivalent_to(layout.rows(want[name].shape), 3)
        error = np.abs(np.asarray(taught[name], np.float32) - want[name]).max()
        assert error < 0.05 * np.abs(want[name]).max()


@pytest.mark.slow
def test_a_student_follows_and_the_teacher_stays(directory: Path) -> None:
    layout = make_layout({"data": 4, "tensor": 2})
    program = stored_berts.student(layout)
    teach = Completion(Teacher(directory=str(directory)).open(layout))
    batch = teach(stored_berts.batch(layout))
    state, losses = program.init(jax.random.key(0)), []
    for _ in range(40):
        state, metrics = program.step(state, batch, jax.random.key(1))
        losses.append(float(metrics["kl_loss"][0]))
    assert losses[-1] < 0.5 * losses[0]
    again = teach(stored_berts.batch(layout))
    np.testing.assert_array_equal(again["teacher_logits"], batch["teacher_logits"])


def test_who_cannot_teach_is_refused(directory: Path, tmp_path: Path) -> None:
    teacher = Teacher(directory=str(directory))
    teacher.check(OURS)
    with pytest.raises(ValueError, match="another vocabulary"):
        teacher.check(OTHERS)
    stored_berts.write(tmp_path / "ids")
    with pytest.raises(ValueError, match="has no vocabulary, so its ids"):
        Teacher(directory=str(tmp_path / "ids")).check(OURS)
    with pytest.raises(ValueError, match="no teacher: add"):
        Teacher(directory=None).check(OURS)
    (tmp_path / "config.gin").write_text(
        "from __gin__ import dynamic_registration\n"
        "from t5x_like.models import t5\n"
        "MODEL = @t5.T5\n"
        "t5.T5.config = @t5.Config()\n"
    )
    with pytest.raises(ValueError, match="is a T5: it must be a BERT"):
        Teacher(directory=str(tmp_path)).check(OURS)


TOGETHER = """
import os, sys
sys.path.insert(0, sys.argv[1])
import jax
jax.distributed.initialize(f"localhost:{sys.argv[3]}", 2, int(sys.argv[4]))
import stored_berts
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.completers.teacher import Teacher
from t5x_like.core.partitioning import make_layout
from t5x_like.training.logs.run_log import RunLog

layout = make_layout({"data": 2, "tensor": 2})
program = stored_berts.student(layout)
init_from = InitFrom(directory=sys.argv[2], layers=(3, 1))
log = RunLog(sys.argv[2], total_steps=1)
params = init_from.apply(
    stored_berts.sevens(program.abstract_state.params), program=program, log=log
)
teacher = Teacher(directory=sys.argv[2], layout=make_layout({"tensor": 4}))
batch = teacher.open(layout).complete(stored_berts.batch(layout), step=0, kept={})
print(*stored_berts.sums(layout, [params, batch["teacher_logits"]]))
"""


@pytest.mark.slow
def test_two_processes_hold_a_teacher_and_start_from_it(directory: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    runs = Path(__file__).parent.parent
    flags = os.environ["XLA_FLAGS"].replace("count=8", "count=2")
    env = os.environ | {"PYTHONPATH": str(runs.parent.parent), "XLA_FLAGS": flags}
    command = [sys.executable, "-c", TOGETHER, str(runs), str(directory), port]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen([*command, str(n)], env=env, text=True, **pipes) for n in range(2)]
    found = [done.out.splitlines()[-1] for done in finish(*started)]

    layout = make_layout({"data": 2, "tensor": 2}, devices=jax.devices()[:4])
    program = stored_berts.student(layout)
    params = InitFrom(directory=str(directory), layers=(3, 1)).apply(
        stored_berts.sevens(program.abstract_state.params),
        program=program,
        log=RunLog(directory, total_steps=1),
    )
    teach = Completion(Teacher(directory=str(directory)).open(layout))
    batch = teach(stored_berts.batch(layout))
    want = stored_berts.sums(layout, [params, batch["teacher_logits"]])
    for line in found:
        np.testing.assert_allclose([float(x) for x in line.split()], want, rtol=0.01)
