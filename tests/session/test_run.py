"""`loop run session` as a user runs it: real interruptions in processes, everything else in this one."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.base.places import WORKTREES, state_folder
from loop.session.run import worktree_path
from loop.store.sessions import SessionFolder
from tests.makers import make_session_head
from tests.projects import KERNEL, add_commands, add_quick_plan, here, kill, loop, make_project, start

WAITS = ("echo x >> one", "touch begun; test -e go || exec sleep 60")
"""A step that ends, and one that waits until it is let go."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trusted project with a plan that verifies, measures and compares in few rounds and seconds."""
    folder = make_project(tmp_path / "project")
    add_quick_plan(folder)
    assert 0 == here("trust", str(folder))[0]
    return folder


@pytest.fixture
def commands(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes a trusted project with a plan `try` of these shell commands."""

    def make(*lines: str) -> Path:
        target = make_project(tmp_path / "project")
        add_commands(target, "try", lines)
        assert 0 == here("trust", str(target))[0]
        return target

    return make


def sessions(tmp_path: Path) -> list[Path]:
    """Folders of the sessions so far."""
    return sorted((tmp_path / "sessions").iterdir())


def lines_of(folder: Path) -> list[dict[str, object]]:
    """The journal of a session; its lines are numbered without a gap."""
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert list(range(1, len(lines) + 1)) == [line["seq"] for line in lines]
    return lines


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_right_kernel_gets_a_report_with_verdicts(folder: Path) -> None:
    """A user's own target is built, verified and measured: exit 0, and JSON as documented."""
    done = loop("run", "session", "mine", "--target", str(folder), "--json")
    assert 0 == done.returncode, done.stdout[:3000]
    reply = json.loads(done.stdout)
    assert {"schema_version", "id", "status", "report", "verdicts", "cost", "sections"} <= set(reply)
    assert ("passed", 2) == (reply["status"], len(reply["verdicts"]))
    assert {"variant", "workload", "against", "verdict", "ratio", "interval"} <= set(reply["verdicts"][0])
    assert "Correctness" in {section["title"] for section in reply["sections"]}
    assert "ours" in Path(reply["report"]).read_text()


@pytest.mark.slow
def test_a_wrong_kernel_is_called_incorrect_and_one_that_does_not_compile_has_its_error(
    folder: Path, tmp_path: Path
) -> None:
    """A wrong kernel has no ratio, and its report names the place; a compiler error has file and line."""
    (folder / "scale.c").write_text(KERNEL.replace("x[i] * (float)", "(i == 7 ? 0 : x[i]) * (float)"))
    done = loop("run", "session", "mine", "--target", str(folder), "--json")
    assert 1 == done.returncode, done.stderr
    assert {("incorrect", None)} == {(row["verdict"], row["ratio"]) for row in json.loads(done.stdout)["verdicts"]}
    assert "N=1 M=2" in (sessions(tmp_path)[0] / "report.md").read_text()
    (folder / "scale.c").write_text(KERNEL.replace("return 0;", "return oops;"))
    done = loop("run", "session", "mine", "--target", str(folder))
    assert (1, True) == (done.returncode, "scale.c:11:10:" in done.stderr)
    assert "oops" in (sessions(tmp_path)[-1] / "report.md").read_text()


@pytest.mark.slow
def test_a_session_goes_on_after_a_kill_and_an_interruption(commands: Callable[..., Path], tmp_path: Path) -> None:
    """`loop status` lists a killed session; an interrupted one says how to resume; only the open step repeats."""
    folder = commands(*WAITS)
    kill_at = start("run", "session", "try", "--target", str(folder))
    wait_for(folder / "begun")
    kill(kill_at)
    assert "try/s2" in loop("status", "--target", str(folder)).stdout
    (folder / "begun").unlink()
    resume = ("run", "session", "--resume", "last", "--target", str(folder))
    process = start(*resume)
    wait_for(folder / "begun")
    second = loop(*resume)
    assert (2, True) == (second.returncode, f"process {process.pid}" in second.stderr)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    first = sessions(tmp_path)[0]
    assert (130, True) == (process.returncode, f"loop run session --resume {first.name}" in output)
    assert "aborted" in (first / "report.md").read_text().lower()
    (folder / "go").touch()
    assert 0 == loop(*resume).returncode
    assert 2 == here("run", "session", "try", *resume[2:])[0], "a resumed session has its plan"
    assert "x\n" == (folder / "one").read_text()
    ended = [
        (line["step"], line["attempt"], line["status"]) for line in lines_of(first) if line["event"] == "finished"
    ]
    assert [("s1", 1, "passed"), ("s2", 2, "aborted"), ("s2", 3, "passed")] == ended


@pytest.mark.slow
def test_nothing_is_reused_once_a_file_of_the_target_has_changed(commands: Callable[..., Path]) -> None:
    """An edited module, tolerance or script: every step is done again."""
    folder = commands(*WAITS)
    process = start("run", "session", "try", "--target", str(folder))
    wait_for(folder / "begun")
    kill(process)
    (folder / "functions.py").write_text("def scale(x, *, factor):\n    return x * factor * 1.5\n")
    (folder / "go").touch()
    done = loop("run", "session", "--resume", "last", "--target", str(folder))
    assert (0, True) == (done.returncode, "every step is done again" in done.stderr)
    assert "x\nx\n" == (folder / "one").read_text()


def test_definitions_from_outside_are_refused_until_allowed(tmp_path: Path) -> None:
    """Without a terminal: exit 2, the command that allows it, and nothing has run."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["touch ran"])
    code, output = here("run", "session", "try", "--target", str(folder))
    assert (2, True, False) == (code, f"loop trust {folder}" in output, (folder / "ran").exists())


def test_a_dry_run_leaves_nothing(commands: Callable[..., Path], tmp_path: Path) -> None:
    """The chain with predicted time and cost; a bundled plan fits any target; no session folder, no command."""
    folder = commands("touch never")
    for plan in ("try", "quick"):
        code, output = here("run", "session", plan, "--target", str(folder), "--dry-run")
        assert (0, True) == (code, bool(re.search(r"expected: .* \(80 %: ", output)))
    assert not (tmp_path / "sessions").exists()


def test_an_own_plan_has_to_name_sets_of_its_target(commands: Callable[..., Path]) -> None:
    """A misspelt set is refused before anything runs."""
    folder = commands("true")
    plan = folder / "plans" / "try.yaml"
    plan.write_text(plan.read_text().replace("[small]", "[smal]"))
    here("trust", str(folder))
    code, output = here("run", "session", "try", "--target", str(folder))
    assert 2 == code
    assert "try.yaml:6:13: workloads.0: expected one of the sets of target scaling (small)" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "session", "baselin"], "did you mean 'baseline'?"),
        (["run", "session", "--variant", "cpuu"], "did you mean 'cpu'?"),
        (["run", "session", "--device", "tpu"], "'tpu' is not one of"),
        (["run", "session", "--threads", "99999"], "the cores of this machine"),
        (["run", "session", "--target", "nowhere"], "nowhere: no such file or folder"),
        (["run", "session", "--target", "/"], "no target.yaml there"),
        (["run", "pattern", "basline-first"], "did you mean 'baseline-first'?"),
        (["kernels", "measure", "cpu", "--workloads", "histroy"], "did you mean 'history'?"),
        (["sessions", "show", "nothing"], "loop run session"),
        (["report", "last"], "no session last"),
        (["patterns", "show", "baseline"], "did you mean 'baseline-first'?"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_to_do(words: list[str], message: str) -> None:
    """Misspelt names have the nearest right one as a hint."""
    code, output = here(*words)
    assert (2, True) == (code, message in output), output


@pytest.mark.soak
def test_the_gate_is_proved_again_where_the_harness_has_changed_and_not_after_an_edit(folder: Path) -> None:
    """After an edit of a kernel the earlier proof is reused; a changed reference needs a new one."""
    reused = []
    for name, text in (("scale.c", ""), ("scale.c", "// edited\n"), ("functions.py", "# edited\n")):
        with (folder / name).open("a") as file:
            file.write(text)
        done = loop("run", "session", "mine", "--target", str(folder))
        assert 0 == done.returncode, done.stderr
        reused.append("it does not depend on the kernels' code" in done.stderr)
    assert [False, True, False] == reused


def test_sessions_that_cannot_be_written_are_said_before_anything_runs(
    commands: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in place of the folder: exit 2, a hint, and nothing has run."""
    folder = commands("touch never")
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOOP_SESSIONS", str(tmp_path / "file" / "x"))
    code, output = here("run", "session", "try", "--target", str(folder))
    assert (2, True, False) == (code, "LOOP_SESSIONS" in output, (folder / "never").exists())


@pytest.mark.slow
def test_events_are_lines_of_json(commands: Callable[..., Path]) -> None:
    """One event a line on stdout, with the schema version of its content; the last has the session's."""
    done = loop("run", "session", "try", "--target", str(commands("true")), "--events")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    happenings = ["SessionBegan", "PatternBegan", "StepBegan", "StepEnded", "PatternEnded", "SessionEnded"]
    assert happenings == [line["happening"] for line in lines]
    assert "passed" == lines[-1]["status"]
    assert [1, 1, 1, 1, 1, 3] == [line["schema_version"] for line in lines]


def test_each_session_has_a_worktree_of_its_own_in_the_folder_of_worktrees(tmp_path: Path) -> None:
    """Whatever its head says, and also for two sessions of one name in different folders."""
    original = make_session_head()
    folder = SessionFolder(tmp_path / original.id)
    head = original.model_copy(update={"id": "../../home/me/project"})
    assert state_folder() / WORKTREES == worktree_path(head, folder).parent
    first, second = (SessionFolder(tmp_path / name / original.id) for name in ("one", "other"))
    assert worktree_path(original, first) == worktree_path(original, first)
    assert worktree_path(original, first) != worktree_path(original, second)
