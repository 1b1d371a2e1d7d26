"""Trust: nobody's definitions run before they were seen, and a changed one is seen again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.base.errors import forget
from loop.base.places import JOBS, Project, project, state_folder
from loop.library.trust import definition_hash, grant, hosts_hash, is_trusted, refusal, what_runs
from tests.makers import make_pattern
from tests.targets import compiled, external, importable, write_target


def make_project(folder: Path) -> Project:
    """A user's project with a pattern and a template of its own."""
    write_target(folder, {"right": compiled()})
    for name, text in (("patterns/own.yaml", own_pattern("make all")), ("templates/report.md.j2", "")):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    return project(folder, folder)


def own_pattern(run: str) -> str:
    """A pattern `own` that runs a command."""
    step = {"id": "own", "title": "T", "action": "command.run", "with": {"run": run}, "budget_s": 1.0}
    return json.dumps(make_pattern("own").model_dump(mode="json") | {"steps": [step]})


def grant_now(project: Project) -> None:
    """Allow the definitions as they are."""
    grant(project, definition_hash(project))


def test_what_is_allowed_is_what_was_shown(tmp_path: Path) -> None:
    """A definition that changes while the user reads is not allowed with the old one."""
    chosen = make_project(tmp_path / "one")
    shown = definition_hash(chosen)
    with_other("scale.cpp", "other.cpp")(chosen.target)
    grant(chosen, shown)
    assert not is_trusted(chosen)


def edit(name: str) -> Callable[[Path], object]:
    """Append a line to a file of the project."""

    def change(folder: Path) -> None:
        path = folder / name
        path.write_text((path.read_text() if path.exists() else "") + "# edited\n")

    return change


def with_other(old: str, new: str) -> Callable[[Path], object]:
    """Change the target's manifest."""

    def change(folder: Path) -> None:
        path = folder / "target.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return change


def test_a_project_is_refused_until_it_is_granted(tmp_path: Path) -> None:
    """Once allowed, it stays so for other projects' sake, too."""
    one, two = make_project(tmp_path / "one"), make_project(tmp_path / "two")
    assert (False, False) == (is_trusted(one), is_trusted(two))
    grant_now(one)
    assert (True, False) == (is_trusted(one), is_trusted(two))
    grant_now(two)
    assert (True, True) == (is_trusted(one), is_trusted(two))


def test_machines_are_allowed_with_the_definitions(tmp_path: Path) -> None:
    """By a hash of their own: where they are not sent, the definitions are the same."""
    chosen = make_project(tmp_path / "one")
    before = definition_hash(chosen)
    grant(chosen, before)
    (chosen.target / "hosts.yaml").write_text("format: 1\nhosts: {l4: {ssh: there}}\n")
    assert before == definition_hash(chosen)
    assert not is_trusted(chosen)
    grant(chosen, before, hosts_hash(chosen))
    assert is_trusted(chosen)
    edit("hosts.yaml")(chosen.target)
    assert not is_trusted(chosen)


@pytest.mark.parametrize(
    "change",
    [
        with_other("scale.cpp", "other.cpp"),
        lambda folder: (folder / "patterns/own.yaml").write_text(own_pattern("make more")),
        edit("templates/report.md.j2"),
        lambda folder: (folder / "patterns/own.yaml").unlink(),
        lambda folder: (folder / "templates/report.md.j2").rename(folder / "templates/other"),
    ],
    ids=["target", "pattern", "template", "removed", "renamed"],
)
def test_a_changed_definition_is_asked_about_again(change: Callable[[Path], object], tmp_path: Path) -> None:
    """Edited, removed or renamed."""
    chosen = make_project(tmp_path / "one")
    grant_now(chosen)
    change(chosen.target)
    assert not is_trusted(chosen)


@pytest.mark.parametrize("name", ["scale.cpp", "scale.h", "tiny_functions.py", "sessions/s/record.json"])
def test_an_edited_kernel_is_not_asked_about(name: str, tmp_path: Path) -> None:
    """Editing kernels is what the user is here for."""
    chosen = make_project(tmp_path / "one")
    grant_now(chosen)
    (chosen.target / name).parent.mkdir(parents=True, exist_ok=True)
    edit(name)(chosen.target)
    assert is_trusted(chosen)


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"a": ', "\x00"])
def test_a_damaged_memory_trusts_nothing(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is said; and it can be written anew."""
    chosen = make_project(tmp_path / "one")
    grant_now(chosen)
    (state_folder() / "trusted.json").write_text(text)
    forget()
    assert not is_trusted(chosen)
    assert "trusted.json: damaged" in capsys.readouterr().err
    grant_now(chosen)
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


def placed(place: str, value: object) -> Callable[[Path], object]:
    """Set a value of the target's manifest, or add it."""

    def change(folder: Path) -> None:
        path = folder / "target.yaml"
        data = json.loads(path.read_text())
        *above, last = place.split(".")
        inner = data
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
        path.write_text(json.dumps(data))

    return change


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("tolerance.float32.rtol", 0.5),
        ("workloads.some", [{"N": 7, "M": 1}]),
        ("flops", "2 * N"),
        ("variants.right.title", "unrolled"),
        ("variants.right.takes", "N % 8 == 0"),
    ],
)
def test_data_is_not_asked_about(place: str, value: object, tmp_path: Path) -> None:
    """Nothing else runs than before; nor does a comment run, or another order of keys."""
    chosen = make_project(tmp_path / "one")
    grant_now(chosen)
    placed(place, value)(chosen.target)
    edit("target.yaml")(chosen.target)
    assert is_trusted(chosen)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("variants.right.build.flags", ["-O3"]),
        ("variants.right.build.compiler", "clang++"),
        ("variants.more", {"kind": "command", "device": "cpu", "run": ["sh", "x.sh"]}),
        ("reference.python", "other:double"),
    ],
)
def test_what_runs_is_asked_about_and_named(place: str, value: object, tmp_path: Path) -> None:
    """The error says that it changed; put back, it is trusted again."""
    chosen = make_project(tmp_path / "one")
    grant_now(chosen)
    before = chosen.manifest.read_bytes()
    placed(place, value)(chosen.target)
    assert not is_trusted(chosen)
    assert "changed since it was allowed" in refusal(chosen).message
    chosen.manifest.write_bytes(before)
    assert is_trusted(chosen)


def test_the_source_of_a_job_is_trusted_and_not_what_it_made(tmp_path: Path) -> None:
    """It was allowed when it was submitted; what it made comes from another machine, perhaps."""
    job = state_folder() / JOBS / "job"
    assert is_trusted(make_project(job / "src"))
    assert is_trusted(make_project(job / "src" / "today"))
    assert not is_trusted(make_project(job / "out" / "src"))


def test_what_is_compiled_besides_a_variant_is_shown(tmp_path: Path) -> None:
    """Its emulation, which is loaded, and sources that have to fail."""
    bad = {"title": "t", "source": "bad.cu", "flags": ["-DN=3"], "says": "s"}
    emulation = {"compiler": "g++", "flags": ["-O2"]}
    write_target(tmp_path, {"right": compiled(emulation=emulation, must_not_compile=[bad])})
    lines = [*what_runs(project(tmp_path, tmp_path))]
    assert "variant right: g++ -O2 scale.cpp, then loads the result: its emulation" in lines
    assert "variant right: g++ -DN=3 bad.cu, which has to fail" in lines
