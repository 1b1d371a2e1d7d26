"""Trust: nobody's definitions run before they were seen, and a changed one is seen again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.base.errors import PRINTED_REMARKS
from loop.base.places import JOBS, state_folder
from loop.library.definitions import Project, find_project
from loop.library.trust import definition_hash, grant, is_trusted, untrusted_error, what_runs
from tests.makers import make_pattern
from tests.targets import compiled, external, importable, write_target

Change = Callable[[Path], object]
PATTERN, TEMPLATE = "patterns/own.yaml", "templates/report.md.j2"


def make_project(folder: Path) -> Project:
    """A user's project with a pattern and a template of its own."""
    write_target(folder, {"right": compiled()})
    for name, text in ((PATTERN, own_pattern("make all")), (TEMPLATE, "")):
        write_file(name, text)(folder)
    return find_project(folder, folder)


def make_granted(folder: Path) -> Project:
    """The same, with its definitions allowed as they are."""
    chosen = make_project(folder)
    grant(chosen.target, definition_hash(chosen))
    return chosen


def own_pattern(run: str) -> str:
    """A pattern `own` that runs a command."""
    step = {"id": "own", "title": "T", "action": "command.run", "with": {"run": run}, "budget_s": 1.0}
    return json.dumps(make_pattern("own").model_dump(mode="json") | {"steps": [step]})


def write_file(name: str, text: str = "# edited\n") -> Change:
    """Write a file of the project."""

    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return change


def placed(place: str, value: object) -> Change:
    """Set a value of the target's manifest, or add it, with a comment behind."""

    def change(folder: Path) -> None:
        path = folder / "target.yaml"
        data = json.loads(path.read_text())
        *above, last = place.split(".")
        inner = data
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
        path.write_text(json.dumps(data) + "\n# edited\n")

    return change


def test_what_is_allowed_is_what_was_shown(tmp_path: Path) -> None:
    """A definition that changes while the user reads is not allowed with the old one."""
    chosen = make_project(tmp_path / "one")
    shown = definition_hash(chosen)
    placed("reference.python", "other:double")(chosen.target)
    grant(chosen.target, shown)
    assert not is_trusted(chosen)


def test_a_project_is_refused_until_it_is_granted(tmp_path: Path) -> None:
    """Once allowed, it stays so for other projects' sake, too."""
    granted, other = make_granted(tmp_path / "one"), make_project(tmp_path / "two")
    assert (True, False) == (is_trusted(granted), is_trusted(other))
    make_granted(tmp_path / "two")
    assert (True, True) == (is_trusted(granted), is_trusted(other))


@pytest.mark.parametrize(
    "change",
    [
        placed("variants.right.build.flags", ["-O3"]),
        placed("variants.right.build.compiler", "clang++"),
        placed("variants.right.sources", ["other.cpp"]),
        placed("variants.more", {"kind": "command", "device": "cpu", "run": ["sh", "x.sh"]}),
        placed("reference.python", "other:double"),
        write_file(PATTERN, own_pattern("make more")),
        write_file(TEMPLATE),
        lambda folder: (folder / PATTERN).unlink(),
        lambda folder: (folder / TEMPLATE).rename(folder / "templates/other"),
    ],
)
def test_what_runs_is_asked_about_again(change: Change, tmp_path: Path) -> None:
    """Edited, removed and renamed definitions need trust again; the error says that they changed."""
    chosen = make_granted(tmp_path / "one")
    change(chosen.target)
    assert not is_trusted(chosen)
    assert "changed since it was allowed" in untrusted_error(chosen).message


@pytest.mark.parametrize(
    "change",
    [
        placed("tolerance.float32.rtol", 0.5),
        placed("workloads.some", [{"N": 7, "M": 1}]),
        placed("flops", "2 * N"),
        placed("variants.right.takes", "N % 8 == 0"),
        write_file("scale.cpp"),
        write_file("tiny_functions.py"),
        write_file("sessions/s/record.json"),
    ],
)
def test_data_and_kernels_are_not_asked_about(change: Change, tmp_path: Path) -> None:
    """Edits of kernels and comments, and another order of keys, need no new trust."""
    chosen = make_granted(tmp_path / "one")
    change(chosen.target)
    assert is_trusted(chosen)


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"a": ', "\x00"])
def test_a_damaged_memory_trusts_nothing(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported, nothing is trusted, and new grants can be stored."""
    chosen = make_granted(tmp_path / "one")
    (state_folder() / "trusted.json").write_text(text)
    PRINTED_REMARKS.clear()
    assert not is_trusted(chosen)
    assert "trusted.json: damaged" in capsys.readouterr().err
    grant(chosen.target, definition_hash(chosen))
    assert is_trusted(chosen)


def test_everything_that_would_run_is_shown(tmp_path: Path) -> None:
    """Compilers, modules, programs, functions, templates and the commands of patterns, a line each."""
    chosen = make_project(tmp_path / "one")
    variants = {"c": compiled(), "py": importable("double"), "ext": external("2", run=["./bench", "--json"])}
    write_target(tmp_path / "one", variants, plain={"python": "tiny_functions:plain"})
    *lines, template = what_runs(chosen)
    assert [
        "variant c: g++ -std=c++17 -O0 scale.cpp, then loads the result",
        "variant py: imports Python tiny_functions:double",
        "variant ext: ./bench --json",
        "reference: Python tiny_functions:double",
        "plain: Python tiny_functions:plain",
        "baseline: Python tiny_functions:double",
        "pattern own, step own: make all",
    ] == lines
    assert template.startswith("template report.md.j2: content ")


def test_the_source_of_a_job_is_trusted_and_not_what_it_made(tmp_path: Path) -> None:
    """The job's source was trusted when it was submitted; files that the job made may be foreign."""
    job = state_folder() / JOBS / "job"
    assert is_trusted(make_project(job / "src"))
    assert is_trusted(make_project(job / "src" / "today"))
    assert not is_trusted(make_project(job / "out" / "src"))
    on_ray = state_folder() / JOBS / "ray-7" / "job"
    assert is_trusted(make_project(on_ray / "src"))
    assert not is_trusted(make_project(on_ray / "out" / "src"))


def test_what_is_compiled_besides_a_variant_is_shown(tmp_path: Path) -> None:
    """Its emulation, which is loaded, and sources that have to fail."""
    bad = {"title": "t", "source": "bad.cu", "flags": ["-DN=3"], "says": "s"}
    emulation = {"compiler": "g++", "flags": ["-O2"]}
    write_target(tmp_path, {"right": compiled(emulation=emulation, must_not_compile=[bad])})
    lines = [*what_runs(find_project(tmp_path, tmp_path))]
    assert "variant right: g++ -O2 scale.cpp, then loads the result: its emulation" in lines
    assert "variant right: g++ -DN=3 bad.cu, which has to fail" in lines
