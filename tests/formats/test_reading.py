"""Tasks of each format are recognised, read and described without running anything of theirs."""

from pathlib import Path

import pytest

from loop.formats import table
from loop.formats.model import ForeignTask, find_hindrances
from tests.formats import tasks

MAKERS = {
    "kernelbench": tasks.kernelbench,
    "gpumode": tasks.gpumode,
    "sol-execbench": tasks.sol,
    "flashinfer-trace": tasks.trace,
}


@pytest.mark.parametrize("name", MAKERS)
def test_each_format_is_recognised(name: str, tmp_path: Path) -> None:
    """A task of one format is no task of another."""
    path = MAKERS[name](tmp_path)
    assert [name] == [one.name for one, _ in table.claiming_formats(path)]
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
    """Where the tolerance is no constant of the text, none is claimed."""
    own = (
        tasks.REFERENCE.split("check_implementation")[0]
        + "def check_implementation(data, output):\n    return ''\n"
    )
    judging = table.load_task(tasks.gpumode(tmp_path, reference=own)).judging
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
    """Nothing of such a task runs, for that reason."""
    assert [kind] == [one.kind for one in find_hindrances(task_of(**changes), 0)]


def test_reading_runs_nothing(tmp_path: Path) -> None:
    """Code at the top of a task's file is not run by looking at it."""
    mark = tmp_path / "ran"
    evil = f"open({str(mark)!r}, 'w').close()\n"
    table.load_task(tasks.kernelbench(tmp_path, evil + tasks.KERNELBENCH))
    table.load_task(tasks.gpumode(tmp_path, reference=evil + tasks.REFERENCE))
    assert not mark.exists()
