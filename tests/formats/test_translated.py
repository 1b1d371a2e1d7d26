"""A task of somebody else's is a target in the cache that links to their files, which stay as they are."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.base.errors import DefinitionError, UsageError
from loop.base.places import project, tasks_folder
from loop.cli import app
from loop.formats.translated import as_target
from loop.library import targets, trust
from loop.model.target import PythonVariant, Target
from tests.formats import tasks


def read(folder: Path) -> Target:
    """The target that was made, checked as any."""
    return targets.target(project(folder, folder)).value


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    """An answer to the task of KernelBench's shape."""
    path = tmp_path / "My-Answer.py"
    path.write_text(tasks.ANSWER)
    return path


def test_kernelbench(tmp_path: Path, answer: Path) -> None:
    """The answer is a variant, the task's Model the reference and the baseline."""
    folder, names = as_target(tasks.kernelbench(tmp_path), [str(answer)])
    target = read(folder)
    variant = target.variants["my_answer"]
    assert isinstance(variant, PythonVariant)
    assert (("my_answer",), "ModelNew") == (names, variant.function)
    assert answer.read_text() == (folder / variant.module).read_text()
    assert "task.py:Model" == target.reference.python
    assert 1e-4 == target.tolerance["float32"].atol


def test_without_an_answer_the_reference_is_tried(tmp_path: Path) -> None:
    """Its own Model is then the only variant."""
    folder, names = as_target(tasks.kernelbench(tmp_path))
    assert ((), ["theirs"]) == (names, list(read(folder).variants))


def test_nothing_of_theirs_is_touched(tmp_path: Path, answer: Path) -> None:
    """The folders of task and answer hold what they held, and the target is not among them."""
    task = tasks.kernelbench(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    folder, _ = as_target(task, [str(answer)])
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert tasks_folder() == folder.parent


def test_the_same_task_is_the_same_target(tmp_path: Path, answer: Path) -> None:
    """It is not written again; with other answers it is another."""
    task = tasks.kernelbench(tmp_path)
    folder, _ = as_target(task, [str(answer)])
    written = (folder / "target.yaml").stat().st_mtime_ns
    assert folder == as_target(task, [str(answer)])[0]
    assert written == (folder / "target.yaml").stat().st_mtime_ns
    assert folder != as_target(task)[0]


def test_a_changed_task_has_to_be_allowed_again(tmp_path: Path, answer: Path) -> None:
    """A changed answer has not: it is what is worked on."""
    task = tasks.kernelbench(tmp_path)

    def allowed() -> bool:
        return trust.is_trusted(project(as_target(task, [str(answer)])[0], tmp_path))

    first = project(as_target(task, [str(answer)])[0], tmp_path)
    assert not allowed()
    trust.grant(first, trust.definition_hash(first))
    answer.write_text(tasks.ANSWER + "# faster\n")
    assert allowed()
    task.write_text(tasks.KERNELBENCH + "# other\n")
    assert not allowed()


def test_what_would_run_is_shown(tmp_path: Path) -> None:
    """The generator's code, too."""
    folder, _ = as_target(tasks.kernelbench(tmp_path))
    lines = list(trust.what_runs(read(folder), []))
    assert "generator: Python task.py:get_inputs" in lines
    assert "arguments: Python task.py:get_init_inputs" in lines


def test_sessions_are_kept_where_the_command_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in somebody's checkout nor in the cache."""
    monkeypatch.delenv("LOOP_SESSIONS", raising=False)
    folder, _ = as_target(tasks.kernelbench(tmp_path))
    assert tmp_path / "sessions" == project(folder, tmp_path).sessions


def test_an_answer_without_the_expected_name(tmp_path: Path, answer: Path) -> None:
    """The file is named, and what it has to define."""
    answer.write_text(tasks.KERNELBENCH)
    with pytest.raises(DefinitionError, match=r"My-Answer.py:1:1: expected `ModelNew`"):
        as_target(tasks.kernelbench(tmp_path), [str(answer)])


def test_an_answer_that_is_not_there(tmp_path: Path) -> None:
    """It is a file, not the name of a variant."""
    with pytest.raises(UsageError, match="no such file"):
        as_target(tasks.kernelbench(tmp_path), ["cpu"])


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match="the Python package not_there, which is not installed"):
        as_target(tasks.kernelbench(tmp_path, "import not_there\n" + tasks.KERNELBENCH))


def test_a_command_takes_a_task_for_a_target(tmp_path: Path, answer: Path) -> None:
    """Its answers are variants by their paths."""
    task = tasks.kernelbench(tmp_path)
    done = CliRunner().invoke(app, ["kernels", "list", "--target", str(task)])
    assert "theirs" in done.output
    done = CliRunner().invoke(app, ["kernels", "verify", str(answer), "--target", str(task)])
    assert "variant my_answer: imports Python answers/my_answer.py:ModelNew" in done.output
    assert isinstance(done.exception, UsageError)
