"""`loop status` and `loop clean`: running and waiting sessions, leftovers, and what is removed."""

import io
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.base.locks import locked
from loop.base.places import state_folder
from loop.cli import clean
from loop.cli import sessions as browse
from loop.model.record import Opened, Started
from loop.report.screen import Screen
from loop.repository import worktree
from loop.repository.worktree import git
from loop.store import sessions
from loop.store.sessions import LOCK
from tests.makers import NOON, make_finished, make_pattern, make_plan, make_record, make_session_head
from tests.projects import KERNEL, loop, make_project
from tests.store.folders import make_session

OPENED = Opened(pid=1)
STARTED = Started(
    run=1, pattern="baseline-first", step="measure", title="Time it", index=2, of=2, budget_s=10.0, attempt=1
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A target without sessions."""
    return make_project(tmp_path / "project")


def status_text(project: Path) -> str:
    """Output of `loop status`."""
    out = io.StringIO()
    browse.gather_status(project).show(Screen(out, io.StringIO()))
    return out.getvalue()


def fields(project: Path) -> dict[str, Any]:
    """Reply of `loop status --json`."""
    return browse.gather_status(project).model_dump(mode="json")


def test_a_project_without_sessions_has_a_next_command(project: Path) -> None:
    """Nothing runs, and the next command is named all the same."""
    reply = fields(project)
    assert (6, [], [], 0) == (reply["schema_version"], reply["running"], reply["waiting"], reply["sessions"])
    assert reply["milestone"]["command"].startswith("loop run session")


def test_a_session_that_runs(project: Path, tmp_path: Path) -> None:
    """Its step, since when, how many steps, its budget and its cost so far; it does not wait."""
    plan = make_plan(make_pattern())
    root = tmp_path / "sessions"
    folder = make_session(root, "busy", OPENED, make_finished(), STARTED, status="", plan=plan, target="scaling")
    folder.write_head(folder.head().model_copy(update={"attended": True}))
    with locked(folder.path / LOCK):
        (run,) = fields(project)["running"]
        text = status_text(project)
    assert ("busy", "baseline-first/measure", "Time it", 1, 2) == tuple(
        run[name] for name in ("id", "step", "title", "done", "of")
    )
    assert (60.0, 10.0) == (run["budget_s"], run["step_budget_s"])
    assert run["usd"] > 0
    assert run["since"] is not None
    assert "busy runs, at baseline-first/measure" in text
    assert "--resume busy" not in text


def test_a_damaged_session_does_not_stop_it(project: Path, tmp_path: Path) -> None:
    """It is listed among the leftovers."""
    folder = make_session(tmp_path / "sessions", "torn", OPENED, STARTED, status="")
    (folder.path / "session.json").write_text("{")
    reply = fields(project)
    assert any("torn" in entry for entry in reply["left"])


def test_a_definition_with_a_mistake_hides_no_session(project: Path, tmp_path: Path) -> None:
    """The mistake is reported in place of the milestone."""
    make_session(tmp_path / "sessions", "dead", OPENED, STARTED, status="")
    (project / "patterns").mkdir()
    (project / "patterns" / "mine.yaml").write_text("format: 1\nname: 3\n")
    reply = fields(project)
    assert ["dead"] == [session["id"] for session in reply["waiting"]]
    assert None is reply["milestone"]
    assert "mine.yaml" in reply["no_milestone"]


@pytest.mark.slow
def test_wrong_stays_wrong_through_real_sessions(project: Path) -> None:
    """Another plan on the same sources does not clear it; a mended kernel and the advised command do."""
    manifest, source = project / "target.yaml", project / "scale.c"
    manifest.write_text(manifest.read_text().replace("variants:", "  edges: [{N: 1, M: 3}]\nvariants:"))
    source.write_text(KERNEL.replace("i < n; i++", "i < n - n % 5 % 4; i++"))  # Wrong where 5 does not divide it.
    target_words = ("--target", str(project))
    trust_allowed = loop("trust", str(project))
    assert 0 == trust_allowed.returncode, trust_allowed.stderr

    def wrong_after(*words: str) -> tuple[int, list[str], str]:
        code = loop("run", "session", *words).returncode
        reply = json.loads(loop("status", *target_words, "--json").stdout)
        assert not reply["milestone"]["wrong"] or "every output was right" not in loop(
            "status", *target_words
        ).stdout.replace("\n", " ")
        return code, reply["milestone"]["wrong"], reply["milestone"]["command"]

    code, (first,), advised = wrong_after("baseline", *target_words, "--seed", "7")
    assert (1, True) == (code, "ours was wrong in" in first)
    assert "--variant ours --target" in advised.replace(" --seed 7", "")
    _, still, _ = wrong_after("quick", *target_words)
    assert still
    source.write_text(KERNEL)
    code, mended, _ = wrong_after(*shlex.split(advised)[3:])
    assert (0, []) == (code, mended)


@pytest.fixture
def own_project(tmp_path: Path) -> Path:
    """A target under git."""
    folder = make_project(tmp_path / "project")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "all")
    return folder


def made_for(own_project: Path, session: Path, name: str = "s-01234567") -> Path:
    """A worktree that says whose it is."""
    root = state_folder() / "worktrees" / name
    worktree.make_from_checkout(own_project, root).note_owner(session)
    return root


def run(*names: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Exit code, and the entries of `--json` by name."""
    out = io.StringIO()
    screen = Screen(out, io.StringIO())
    code = clean.clean(names, screen=screen, as_json=True, **options)
    return code, {row["name"]: row for row in json.loads(out.getvalue())["found"]}


def test_one_whose_session_is_gone_is_left_over(own_project: Path, tmp_path: Path) -> None:
    """It is listed, then removed, with git's note of it."""
    root = made_for(own_project, tmp_path / "sessions" / "s")
    assert (0, "left over", "") == (run()[0], *(run()[1][root.name][k] for k in ("state", "loses")))
    code, rows = run(yes=True)
    assert (0, True, False) == (code, rows[root.name]["removed"], root.exists())
    assert str(root) not in git(own_project, "worktree", "list")


def test_one_with_an_edit_stays(own_project: Path, tmp_path: Path) -> None:
    """It is only removed if it is named; the entry has its folder, the count of lines, and the command."""
    root = made_for(own_project, tmp_path / "sessions" / "s")
    (root / "scale.c").write_text("int x;\n")
    (root / "new.c").write_text("int y;\n")
    code, rows = run(yes=True)
    assert (1, False) == (code, rows[root.name]["removed"])
    assert rows[root.name]["loses"].startswith("edits: 2 files, ")
    assert (root / "new.c").is_file()
    err = io.StringIO()
    clean.clean((), Screen(io.StringIO(), err), as_json=False, yes=True)
    assert "stays: edits: 2 files, " in err.getvalue()
    assert f"in {root}\nlook at them first; to lose them: loop clean {root.name}\n" in err.getvalue()
    assert (0, True) == (run(root.name, yes=True)[0], not root.exists())


def test_one_of_a_session_that_runs(own_project: Path, tmp_path: Path) -> None:
    """It is in use, also when it is named; one that waits is refused with the command that ends its session."""
    session = make_session(tmp_path / "sessions", "s", OPENED, status="passed")
    root = made_for(own_project, session.path)
    with locked(session.path / LOCK):
        assert "in use" == run(yes=True)[1][root.name]["state"]
        with pytest.raises(LoopError, match="in use"):
            run(root.name, yes=True)
    make_session(tmp_path / "sessions", "t", OPENED, status="paused")
    waits = made_for(own_project, tmp_path / "sessions" / "t", "t-01234567")
    with pytest.raises(LoopError, match="a session waits") as caught:
        run(waits.name, yes=True)
    assert "--resume t --decline" in (caught.value.hint or "")
    assert root.exists()


def test_a_worktree_of_a_running_bisection_is_in_use(own_project: Path) -> None:
    """A worktree of a running bisection is in use; one of a dead process is left over."""
    for pid in (os.getpid(), 2**22 + 1):
        worktree.make_from_checkout(own_project, state_folder() / "worktrees" / f"bisect-{pid}-0")
    _, rows = run(yes=True)
    assert ["in use", "left over"] == [rows[f"bisect-{pid}-0"]["state"] for pid in (os.getpid(), 2**22 + 1)]
    assert [f"bisect-{os.getpid()}-0"] == os.listdir(state_folder() / "worktrees")


def test_without_a_yes_nothing_goes(own_project: Path, tmp_path: Path) -> None:
    """Entries are listed with the command that removes them; nothing is removed."""
    root = made_for(own_project, tmp_path / "sessions" / "s")
    out, err = io.StringIO(), io.StringIO()
    assert 0 == clean.clean((), Screen(out, err), as_json=False)
    assert root.name in out.getvalue()
    assert "nothing was removed; to do it: add --yes\n" == err.getvalue()
    assert root.is_dir()


def test_the_cache_stays_until_asked(own_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is listed; it is removed on request; worktrees stay."""
    monkeypatch.setenv("LOOP_CACHE", str(tmp_path / "cache"))
    root = made_for(own_project, tmp_path / "sessions" / "s")
    build = tmp_path / "cache" / "builds" / "new" / "kernel.so"
    build.parent.mkdir(parents=True)
    build.write_bytes(b"x" * 1_000_000)
    assert ["compiled kernels: 1.0 MB"] == [row["why"] for row in run(cache=True)[1].values()]
    assert run(cache=True, yes=True)[1]["builds"]["removed"]
    assert ([], True) == (os.listdir(tmp_path / "cache"), root.exists())


def make_ended_session(root: Path, target_folder: str, status: str | None) -> str:
    """A session of a target that ended so, or has not ended; its id."""
    folder = sessions.create_session(root, "baseline", NOON)
    head = make_session_head(id=folder.id, target_folder=target_folder)
    folder.write_head(head)
    (folder.path / "journal.jsonl").touch()
    if status is not None:
        folder.write_record(make_record(head, status=status))
    return folder.id


def said_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str | None, folder: str
) -> tuple[str, str, str]:
    """Id of a session, its line of `loop status`, and its `loop sessions show`."""
    monkeypatch.setenv("LOOP_SESSIONS", str(tmp_path / "sessions"))
    name = make_ended_session(tmp_path / "sessions", folder, status)
    target = make_project(tmp_path / "project")
    listed, shown = io.StringIO(), io.StringIO()
    browse.gather_status(target).show(Screen(listed, io.StringIO()))
    browse.show_session(name, target).show(Screen(shown, io.StringIO()))
    return name, listed.getvalue(), shown.getvalue()


@pytest.mark.parametrize("status", [None, "paused", "aborted"])
@pytest.mark.parametrize(("folder", "words"), [("/a b/kernel", " --target '/a b/kernel'"), ("bundled", "")])
def test_the_command_to_go_on_is_whole(
    status: str | None, folder: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command names the target's folder, quoted if necessary."""
    name, listed, shown = said_of(monkeypatch, tmp_path, status, folder)
    command = f"loop run session --resume {name}{words}"
    assert f"{command}\n" in listed
    assert f"go on with: {command}\n" in shown
