"""What is wrong in somebody's task is said with file and line, in one message."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from loop.base.errors import DefinitionError, UsageError
from loop.base.screen import Screen
from loop.formats import table
from loop.formats.command import inspect
from loop.formats.translated import as_target
from tests.formats import tasks


def complaint(path: Path, form: str | None = None) -> str:
    """What is said of a task that cannot be read."""
    with pytest.raises(DefinitionError) as caught:
        table.load(path, form)
    return caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return [x]",
            "return [x",
            "1_Scale.py:22:12: expected Python, got a mistake in it: '[' was never closed",
        ),
        ("class Model(", "class Other(", "1_Scale.py:1:1: expected `class Model`"),
        ("def get_inputs", "def inputs", "1_Scale.py:1:1: expected `def get_inputs()`"),
        ("def get_init_inputs", "def init_inputs", "1_Scale.py:1:1: expected `def get_init_inputs()`"),
        (
            "def get_inputs()",
            "def get_inputs(size)",
            "1_Scale.py:20:1: expected `get_inputs()`, got `get_inputs(size)`",
        ),
        ("(nn.Module)", "", "1_Scale.py:5:1: expected a Model derived from nn.Module"),
        ("def forward", "def backward", "1_Scale.py:5:1: expected a Model with `forward`"),
    ],
)
def test_of_a_kernelbench_task(old: str, new: str, said: str, tmp_path: Path) -> None:
    """The line is that of the mistake; what is missing altogether is said of the file."""
    assert said in complaint(tasks.kernelbench(tmp_path, tasks.KERNELBENCH.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ranking_by: geom", "ranking: geom", "task.yml:14:1: ranking: expected"),
        ("ranking_by: geom", "ranking_by: best", "task.yml:14:13: ranking_by: expected"),
        ("lang: py", "lang: rust", "task.yml:6:7: lang: expected"),
        ("source: task.py", "source: gone.py", "task.yml:3:29: files.1.source: expected a file, got gone.py"),
        (
            "seed: 2}",
            "sed: 2}",
            "task.yml:11:5: tests.1: expected what generate_input takes (size, seed), got size, sed",
        ),
        ('source: "@SUBMISSION@"', "source: task.py", "task.yml:2:3: files: expected one file from @SUBMISSION@"),
        ("lang: py\n", "lang: py\nversion: 9\n", "task.yml:7:1: version: expected"),
        ("lang: py", "lang: [py", "task.yml:7:12: expected ',' or ']'"),
    ],
)
def test_of_a_gpumode_manifest(old: str, new: str, said: str, tmp_path: Path) -> None:
    """Unknown keys, a newer version among them, and values that do not fit."""
    assert said in complaint(tasks.gpumode(tmp_path, tasks.TASK_YML.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def generate_input", "def make", "reference.py:1:1: expected `generate_input`"),
        ("check_implementation", "check", "reference.py:1:1: expected `check_implementation`"),
        ("return 2 * data", "return 2 data", "reference.py:11:14: expected Python"),
    ],
)
def test_of_a_gpumode_reference(old: str, new: str, said: str, tmp_path: Path) -> None:
    """What its judging program asks for has to be there."""
    assert said in complaint(tasks.gpumode(tmp_path, reference=tasks.REFERENCE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"opset": 3}, "opset: expected"),
        ({"reference": "def run(x:\n"}, "reference: expected Python, got"),
        ({"reference": "def other(x):\n    return x\n"}, "reference: expected a function `run`"),
        ({"reference": "def run(x, z):\n    return x\n"}, "reference: expected run(x), got run(x, z)"),
        (
            {"inputs": {"x": {"shape": ["Q"], "dtype": "float32"}}},
            "inputs.x.shape: expected axes of the definition",
        ),
        ({"inputs": {"x": {"shape": ["N"], "dtype": "float7"}}}, "inputs.x.dtype: expected a known element type"),
        ({"axes": {"N": {"type": "maybe"}}}, "axes.N"),
        ({"custom_inputs_entrypoint": "make"}, "custom_inputs_entrypoint: expected a function of the reference"),
    ],
)
def test_of_a_definition(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    """The definition's file is named, with the line of the value."""
    message = complaint(tasks.sol(tmp_path, **changes))
    assert said in message
    assert "definition.json:" in message
    assert "definition.json:1:1" not in message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "workload.jsonl:2:2: expected JSON"),
        (
            '{"uuid": "c", "axes": {}, "inputs": {}}',
            "workload.jsonl:2:23: axes: expected a size of each variable axis, got N",
        ),
        ('{"uuid": "c", "axes": {"N": -1}, "inputs": {}}', "workload.jsonl:2:29: axes.N: expected"),
        ('{"uuid": "c", "axes": {"N": 1}, "inputs": {"z": {"type": "random"}}}', "workload.jsonl:2:43: inputs"),
        ('{"uuid": "c", "axes": {"N": 1}, "inputs": {"x": {"type": "made up"}}}', "inputs.x.type: expected"),
    ],
)
def test_of_a_workload(line: str, said: str, tmp_path: Path) -> None:
    """The line of the workload is counted from the beginning of the file."""
    task = tasks.sol(tmp_path)
    first = (task / "workload.jsonl").read_text().splitlines()[0]
    (task / "workload.jsonl").write_text(f"{first}\n{line}\n")
    assert said in complaint(task)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec": {**tasks.SOLUTION["spec"], "entry_point": "run"}}, "spec.entry_point"),  # type: ignore[dict-item]
        ({"sources": [{"path": "../main.py", "content": "x"}]}, "below the solution's own folder"),
        ({"sources": [{"path": "other.py", "content": "x"}]}, "one of its sources (other.py), got main.py::run"),
    ],
)
def test_of_a_solution(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    """Its entry has to be in its sources, and these below its folder."""
    path = tasks.trace(tmp_path)
    (tmp_path / "solutions/mine.json").write_text(json.dumps({**tasks.SOLUTION, **changes}))
    assert said in complaint(path)


def test_of_shapes_that_are_not_constants(tmp_path: Path) -> None:
    """They are named, not guessed."""
    task = tasks.hard(tmp_path)
    (task / "shapes.py").write_text("SHAPES = make()\n")
    assert "shapes.py:1:1: expected a list SHAPES" in complaint(task)


@pytest.mark.parametrize(
    ("make", "file", "line", "said"),
    [
        (tasks.hard, "problem.yaml", "tolerence: {float32: 0.1}", "expected a known name, got 'tolerence'"),
        (tasks.hard, "problem.yaml", "num_perf_trial: 3", "(did you mean 'num_perf_trials'?)"),
        (tasks.arena, "config.yaml", "editable_source: [a]", "(did you mean 'editable_sources'?)"),
    ],
)
def test_of_a_key_that_is_nearly_a_known_one(
    make: Callable[[Path], Path], file: str, line: str, said: str, tmp_path: Path
) -> None:
    """It would count for nothing."""
    task = make(tmp_path)
    text = (task / file).read_text().replace("tolerance: {float32: 0.001}\n", "")
    (task / file).write_text(f"{line}\n{text}")
    message = complaint(task)
    assert said in message
    assert f"{file}:1:1: " in message


def test_of_a_source_that_is_gone(tmp_path: Path) -> None:
    """The line of the manifest that names it."""
    task = tasks.arena(tmp_path)
    (task / "source/kernel.py").unlink()
    assert "config.yaml:1:20: expected a file, got source/kernel.py" in complaint(task)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "task_type",
            "target_file_path: ../../made.py\ntask_type",
            "config.yaml:6:19: target_file_path: expected a file in",
        ),
        ("task_type", "target_file_path: /tmp/made.py\ntask_type", "in the task's folder, got /tmp/made.py"),
        (
            "[source/kernel.py]",
            "[]",
            "config.yaml:1:19: source_file_path: expected a file in the task's folder, got none",
        ),
        (
            "source_file_path: [source/kernel.py]\n",
            "",
            "source_file_path: expected a file in the task's folder, got none",
        ),
    ],
)
def test_of_an_answer_that_would_be_written_elsewhere(old: str, new: str, said: str, tmp_path: Path) -> None:
    """An answer takes the place of a file of the task, and of no other."""
    config = tasks.arena(tmp_path) / "config.yaml"
    config.write_text(config.read_text().replace(old, new, 1))
    assert said in complaint(config.parent)


def test_a_folder_that_is_two_formats_at_once(tmp_path: Path) -> None:
    """Both are named, and how to choose; the choice is heeded."""
    task = tasks.gpumode(tmp_path)
    for path in tasks.sol(tmp_path).iterdir():
        path.rename(task / path.name)
    with pytest.raises(UsageError, match=r"GPU MODE .* and SOL-ExecBench .*: two formats at once") as caught:
        table.load(task)
    assert "name one: --format gpumode" == caught.value.hint
    assert "sol-execbench" == table.load(task, "sol-execbench").format


def test_a_path_that_is_no_task(tmp_path: Path) -> None:
    """Each format says what it looks for."""
    (tmp_path / "notes.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match="no task of a known format") as caught:
        table.load(tmp_path / "notes.py")
    assert "KernelBench: a Python file with Model" in (caught.value.hint or "")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    """It is said before anything is looked for."""
    with pytest.raises(UsageError, match="no such file or folder"):
        table.load(tmp_path / "gone.py")


def test_a_format_that_is_unknown(tmp_path: Path) -> None:
    """The nearest is named."""
    with pytest.raises(UsageError, match="unknown format 'kernelbenc'") as caught:
        table.load(tasks.kernelbench(tmp_path), "kernelbenc")
    assert "did you mean 'kernelbench'?" == caught.value.hint


def test_a_list_goes_on_after_a_task_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of a wrong definition; the others are described."""
    tasks.kernelbench(tmp_path)
    (tmp_path / "2_Broken.py").write_text(tasks.KERNELBENCH.replace("return [x]", "return [x"))
    assert 2 == inspect(tmp_path, None, Screen(), as_json=True)
    right, wrong = json.loads(capsys.readouterr().out)["tasks"]
    assert ["get_inputs"] == right["runs"]
    assert "2_Broken.py:22:12" in wrong["error"]


def test_a_task_in_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page says what was found, what runs and under which licence."""
    assert 0 == inspect(tasks.kernelbench(tmp_path), None, Screen(), as_json=False)
    said = capsys.readouterr().out
    assert "KernelBench: it defines Model, get_inputs, get_init_inputs" in said
    assert "get_inputs: x [8, 16] float32" in said
    assert "runs here  1 of 1 cases" in said
    assert "unknown (no licence file found)" in said


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("import a_package_of_nobody\n", True),
        ("try:\n    import a_package_of_nobody\nexcept ImportError:\n    pass\n", False),
    ],
)
def test_an_answer_that_needs_what_is_not_here_is_not_wrong(line: str, refused: bool, tmp_path: Path) -> None:
    """It is not judged; one that can do without the package is."""
    answer = tmp_path / "answer.py"
    answer.write_text(line + tasks.ANSWER)
    task = tasks.kernelbench(tmp_path)
    said = pytest.raises(UsageError, match="not judged here: it imports a_package_of_nobody")
    with said if refused else nullcontext():
        as_target(task, [str(answer)])
