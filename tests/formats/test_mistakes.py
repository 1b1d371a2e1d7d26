"""Tasks of each format are recognised and described unrun; mistakes have their file and line."""

import json
from pathlib import Path

import pytest

from loop.base.errors import DefinitionError
from loop.formats import table
from loop.formats.model import ForeignTask, find_hindrances
from tests.formats import tasks


def complaint(path: Path, form: str | None = None) -> str:
    """The complaint about a task that cannot be read."""
    with pytest.raises(DefinitionError) as caught:
        table.load_task(path, form)
    return caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "return [x]",
            "return [x",
            "1_Scale.py:22:12: expected Python, got a mistake in it: '[' was never closed",
        ),
        ("class Model(", "class Other(", "1_Scale.py:1:1: expected `class Model`"),
        ("def get_inputs", "def inputs", "1_Scale.py:1:1: expected `def get_inputs()`"),
        (
            "def get_inputs()",
            "def get_inputs(size)",
            "1_Scale.py:20:1: expected `get_inputs()`, got `get_inputs(size)`",
        ),
        ("def forward", "def backward", "1_Scale.py:5:1: expected a Model with `forward`"),
    ],
)
def test_a_mistake_in_a_kernelbench_task_has_its_line(old: str, new: str, expected: str, tmp_path: Path) -> None:
    """The line is that of the mistake; for a missing part only the file is named."""
    assert expected in complaint(tasks.kernelbench(tmp_path, tasks.KERNELBENCH.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("lang: py", "lang: rust", "task.yml:6:7: lang: expected"),
        ("source: task.py", "source: gone.py", "task.yml:3:29: files.1.source: expected a file, got gone.py"),
        (
            "seed: 2}",
            "sed: 2}",
            "task.yml:11:5: tests.1: expected what generate_input takes (size, seed), got size, sed",
        ),
        ('source: "@SUBMISSION@"', "source: task.py", "task.yml:2:3: files: expected one file from @SUBMISSION@"),
        ("lang: py", "lang: [py", "task.yml:7:12: expected YAML, got "),
    ],
)
def test_a_mistake_in_a_gpumode_manifest_has_its_line(old: str, new: str, expected: str, tmp_path: Path) -> None:
    """Unknown keys, a newer version among them, and values that do not fit."""
    assert expected in complaint(tasks.gpumode(tmp_path, tasks.TASK_YML.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reference": "def run(x:\n"}, "reference: expected Python, got"),
        ({"reference": "def run(x, z):\n    return x\n"}, "reference: expected run(x), got run(x, z)"),
        ({"inputs": {"x": {"shape": ["Q"], "dtype": "float32"}}}, "inputs.x.shape: expected one of `axes`"),
        ({"inputs": {"x": {"shape": ["N"], "dtype": "float7"}}}, "inputs.x.dtype: expected a known type"),
        ({"custom_inputs_entrypoint": "make"}, "custom_inputs_entrypoint: expected a function of the reference"),
    ],
)
def test_a_mistake_in_a_definition_has_its_line(changes: dict[str, object], expected: str, tmp_path: Path) -> None:
    """The definition's file is named, with the line of the value."""
    message = complaint(tasks.sol(tmp_path, **changes))
    assert expected in message
    assert "definition.json:" in message
    assert "definition.json:1:1" not in message


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "workload.jsonl:2:2: expected JSON"),
        (
            '{"uuid": "c", "axes": {}, "inputs": {}}',
            "workload.jsonl:2:23: axes: expected a size of each var axis, got N",
        ),
        ('{"uuid": "c", "axes": {"N": -1}, "inputs": {}}', "workload.jsonl:2:29: axes.N: expected"),
        ('{"uuid": "c", "axes": {"N": 1}, "inputs": {"z": {"type": "random"}}}', "workload.jsonl:2:43: inputs"),
    ],
)
def test_a_mistake_in_a_workload_has_its_line(line: str, expected: str, tmp_path: Path) -> None:
    """The line of the workload is counted from the beginning of the file, also of the first."""
    task = tasks.sol(tmp_path)
    first = (task / "workload.jsonl").read_text().splitlines()[0]
    (task / "workload.jsonl").write_text(f"{first}\n{line}\n")
    assert expected in complaint(task)
    (task / "workload.jsonl").write_text(f"{line}\n{first}\n")
    assert expected.replace(":2:", ":1:") in complaint(task)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec": {**tasks.SOLUTION["spec"], "entry_point": "run"}}, "spec.entry_point"),  # type: ignore[dict-item]
        ({"sources": [{"path": "../main.py", "content": "x"}]}, "below the solution's own folder"),
        ({"sources": [{"path": "other.py", "content": "x"}]}, "one of its files (other.py), got main.py::run"),
    ],
)
def test_a_mistake_in_a_solution_is_refused(changes: dict[str, object], expected: str, tmp_path: Path) -> None:
    """Its entry has to be in its sources, and these below its folder."""
    path = tasks.trace(tmp_path)
    (tmp_path / "solutions/mine.json").write_text(json.dumps({**tasks.SOLUTION, **changes}))
    assert expected in complaint(path)


MAKERS = {
    "kernelbench": tasks.kernelbench,
    "gpumode": tasks.gpumode,
    "sol-execbench": tasks.sol,
    "flashinfer-trace": tasks.trace,
}


@pytest.mark.parametrize("name", MAKERS)
def test_each_format_is_recognised(name: str, tmp_path: Path) -> None:
    """A task of one format is not read as another's."""
    path = MAKERS[name](tmp_path)
    assert [name] == [*table.claiming_formats(path)]
    assert name == table.load_task(path).format


def test_gpumode_says_how_it_judges(tmp_path: Path) -> None:
    """Cases, tolerance, whether the cache is cleared, and the score come from its files."""
    task = table.load_task(tasks.gpumode(tmp_path))
    assert [("check",), ("check",), ("check", "time")] == [case.use for case in task.cases]
    assert (1e-5, 1e-4, None) == (task.judging.atol, task.judging.rtol, task.judging.checker)
    assert task.timing.cold_cache
    assert "geometric mean of the benchmarks' seconds" == task.timing.score
    assert ("cpu", "cuda") == task.devices


def test_a_checker_of_its_own_is_named(tmp_path: Path) -> None:
    """If the tolerance is no constant of the source, none is stated."""
    with_checker = (
        tasks.REFERENCE.split("check_implementation")[0]
        + "def check_implementation(data, output):\n    return ''\n"
    )
    judging = table.load_task(tasks.gpumode(tmp_path, reference=with_checker)).judging
    assert ("reference.check_implementation", None) == (judging.checker, judging.atol)


def task_of(**changes: object) -> ForeignTask:
    """A task, changed."""
    fields = {
        "format": "f",
        "why": "w",
        "name": "n",
        "path": Path("/t"),
        "files": (),
        "entry": "e",
        "languages": (),
    }
    fields |= {"reference": "r", "cases": (), "dtypes": (), "judging": {}}
    fields["timing"] = dict.fromkeys(("cold_cache", "fresh_inputs", "checked")) | {"method": "m", "score": "s"}
    return ForeignTask.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"devices": ("cuda",)}, "cuda"),
        ({"gpus": 8}, "several GPUs"),
        ({"imports": ("torch", "aiter")}, "dependency"),
        ({"downloads": True}, "download"),
        ({"needs_files": (Path("/nowhere/blob.safetensors"),)}, "file"),
        ({"own_contract": True}, "contract"),
    ],
)
def test_what_is_missing_stands_in_the_way(changes: dict[str, object], kind: str) -> None:
    """The missing part is the only hindrance of such a task."""
    assert [kind] == [hindrance.kind for hindrance in find_hindrances(task_of(**changes), 0)]


def test_reading_runs_nothing(tmp_path: Path) -> None:
    """Code at the top of a task's file is not run by looking at it."""
    mark = tmp_path / "ran"
    evil = f"open({str(mark)!r}, 'w').close()\n"
    table.load_task(tasks.kernelbench(tmp_path, evil + tasks.KERNELBENCH))
    table.load_task(tasks.gpumode(tmp_path, reference=evil + tasks.REFERENCE))
    assert not mark.exists()
