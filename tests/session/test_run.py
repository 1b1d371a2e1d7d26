"""`loop run session` as a user runs it: a process, a real compiler, real interruptions."""

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from loop.base.places import shipped
from tests.projects import KERNEL, add_commands, kill, loop, make_project, start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trusted project."""
    folder = make_project(tmp_path / "project")
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def commands_project(tmp_path: Path, *commands: str) -> Path:
    """A trusted project with a plan `try` that runs shell commands."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", commands)
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def sessions(tmp_path: Path) -> list[Path]:
    """Folders of the sessions so far."""
    return sorted((tmp_path / "sessions").iterdir())


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def test_a_right_kernel_gets_a_report_with_verdicts(folder: Path) -> None:
    """The main job on a user's own target: built, verified, measured, exit 0, JSON as documented."""
    add_plan(folder)
    loop("trust", str(folder))
    done = loop("run", "session", "mine", "--target", str(folder), "--json")
    assert 0 == done.returncode, done.stdout[:3000]
    found = json.loads(done.stdout)
    assert {"schema_version", "id", "status", "report", "verdicts", "cost"} <= set(found)
    assert ("passed", 2) == (found["status"], len(found["verdicts"]))
    assert {"variant", "workload", "against", "verdict", "ratio", "interval"} <= set(found["verdicts"][0])
    assert "ours" in Path(found["report"]).read_text()


def add_plan(folder: Path) -> None:
    """A plan that verifies, measures and compares as the bundled pattern does, in fewer rounds and seconds."""
    for kind in ("plans", "patterns"):
        (folder / kind).mkdir(exist_ok=True)
    (folder / "plans" / "mine.yaml").write_text(
        "format: 1\nname: mine\ntitle: Verify and measure\npatterns: [single-compilation-unit, baseline-quickly]\n"
        "workloads: [small]\nbudget: {minutes: 1}\n"
    )
    text = (shipped("patterns") / "baseline-first.yaml").read_text().replace("baseline-first", "baseline-quickly")
    text = text.replace("number: 1\n", "number: 101\n").replace("{rounds: 9}", "{rounds: 2}")
    text = text.replace("budget_s: 12", "budget_s: 5").replace("budget_s: 8", "budget_s: 2")
    (folder / "patterns" / "baseline-quickly.yaml").write_text(text)


@pytest.mark.slow
def test_a_wrong_kernel_is_called_incorrect_and_gets_no_speed(folder: Path, tmp_path: Path) -> None:
    """Where it is wrong is said, no ratio is reported, exit 1; mending it needs no new consent."""
    add_plan(folder)
    loop("trust", str(folder))
    (folder / "scale.c").write_text(KERNEL.replace("x[i] * (float)", "(i == 7 ? 0 : x[i]) * (float)"))
    done = loop("run", "session", "mine", "--target", str(folder), "--json")
    assert 1 == done.returncode, done.stderr
    verdicts = json.loads(done.stdout)["verdicts"]
    assert {"incorrect"} == {verdict["verdict"] for verdict in verdicts}
    assert {None} == {verdict["ratio"] for verdict in verdicts}
    report = (sessions(tmp_path)[0] / "report.md").read_text()
    assert "incorrect" in report
    assert "N=1 M=2" in report


@pytest.mark.slow
def test_a_compile_error_is_shown_with_file_and_line_and_the_session_still_reports(
    folder: Path, tmp_path: Path
) -> None:
    """The first error of the compiler, a report, exit 1."""
    add_plan(folder)
    loop("trust", str(folder))
    (folder / "scale.c").write_text(KERNEL.replace("return 0;", "return oops;"))
    done = loop("run", "session", "mine", "--target", str(folder))
    assert 1 == done.returncode
    assert "scale.c:11:10:" in done.stderr
    assert "oops" in (sessions(tmp_path)[0] / "report.md").read_text()


@pytest.mark.slow
def test_definitions_from_outside_are_refused_until_allowed(tmp_path: Path) -> None:
    """Without a terminal: exit 2, how to allow it, and nothing has run."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["touch ran"])
    done = loop("run", "session", "try", "--target", str(folder))
    assert 2 == done.returncode
    assert f"loop trust {folder}" in done.stderr
    assert not (folder / "ran").exists()
    assert 0 == loop("trust", str(folder)).returncode
    assert 0 == loop("run", "session", "try", "--target", str(folder)).returncode
    assert (folder / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_session_reports_and_can_be_resumed(tmp_path: Path, number: int) -> None:
    """Exit 130, the next command is shown, children are gone; --resume repeats only the open step."""
    folder = commands_project(tmp_path, "echo x >> one", "touch begun; test -e go || exec sleep 60")
    process = start("run", "session", "try", "--target", str(folder))
    wait_for(folder / "begun")
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    name = sessions(tmp_path)[0].name
    assert 130 == process.returncode, errors
    assert f"loop run session --resume {name}" in errors
    assert "aborted" in (sessions(tmp_path)[0] / "report.md").read_text().lower()
    (folder / "go").touch()
    done = loop("run", "session", "--resume", name, "--target", str(folder))
    assert 0 == done.returncode, done.stdout[:3000]
    assert "x\n" == (folder / "one").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_signal_at_any_moment_leaves_a_session_that_goes_on(tmp_path: Path, seed: int) -> None:
    """Before it begins, in a write, in a fork, while it closes: the journal is whole, the exit code says so."""
    draw = random.Random(seed)
    folder = commands_project(tmp_path, *["true"] * 6)
    process = start("run", "session", "try", "--target", str(folder))
    time.sleep(draw.uniform(0.1, 2.5))
    for _ in range(draw.choice([1, 2])):
        process.send_signal(draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
        time.sleep(draw.uniform(0.0, 0.3))
    _, errors = process.communicate(timeout=20)
    begun = sessions(tmp_path) if (tmp_path / "sessions").is_dir() else []
    assert process.returncode in (0, 130) or (process.returncode < 0 and not begun), errors
    for one in begun:
        done = loop("run", "session", "--resume", one.name, "--target", str(folder))
        assert 0 == done.returncode, done.stderr
        lines = [json.loads(line) for line in (one / "journal.jsonl").read_text().splitlines()]
        assert list(range(1, len(lines) + 1)) == [line["seq"] for line in lines]


@pytest.mark.slow
def test_a_reader_that_goes_away_leaves_a_whole_session(tmp_path: Path) -> None:
    """`loop run session 2>&1 | head -1`: the session is recorded to its end."""
    folder = commands_project(tmp_path, "sleep 0.3", "true")
    process = start("run", "session", "try", "--target", str(folder))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    assert 0 == process.wait(60)
    record = json.loads((sessions(tmp_path)[0] / "record.json").read_text())
    assert "passed" == record["status"]


@pytest.mark.slow
def test_a_killed_session_loses_no_finished_step(tmp_path: Path) -> None:
    """SIGKILL: `loop status` shows what waits; --resume goes on at the open step, attempt 2."""
    folder = commands_project(tmp_path, "echo x >> one", "touch begun; test -e go || exec sleep 60")
    process = start("run", "session", "try", "--target", str(folder))
    wait_for(folder / "begun")
    kill(process)
    assert "try/s2" in loop("status", "--target", str(folder)).stdout
    (folder / "go").touch()
    assert 0 == loop("run", "session", "--resume", "last", "--target", str(folder)).returncode
    assert "x\n" == (folder / "one").read_text()
    lines = [json.loads(line) for line in (sessions(tmp_path)[0] / "journal.jsonl").read_text().splitlines()]
    ended = [(line["step"], line["attempt"]) for line in lines if line["event"] == "finished"]
    assert [("s1", 1), ("s2", 2)] == ended
    assert list(range(1, len(lines) + 1)) == [line["seq"] for line in lines]


@pytest.mark.slow
def test_nothing_is_reused_once_a_file_of_the_target_has_changed(tmp_path: Path) -> None:
    """An edited module, tolerance or script: every step is done again, also after a second interruption."""
    folder = commands_project(tmp_path, "echo x >> one", "touch begun; test -e go || exec sleep 60")
    process = start("run", "session", "try", "--target", str(folder))
    wait_for(folder / "begun")
    kill(process)
    (folder / "functions.py").write_text("def scale(x, *, factor):\n    return x * factor * 1.5\n")
    (folder / "go").touch()
    done = loop("run", "session", "--resume", "last", "--target", str(folder))
    assert (0, True) == (done.returncode, "every step is done again" in done.stderr)
    assert "x\nx\n" == (folder / "one").read_text()


@pytest.mark.slow
def test_a_resumed_session_keeps_its_plan(tmp_path: Path) -> None:
    """Naming another one beside --resume is a mistake, not ignored."""
    folder = commands_project(tmp_path, "true")
    assert 0 == loop("run", "session", "try", "--target", str(folder)).returncode
    assert 2 == loop("run", "session", "try", "--resume", "last", "--target", str(folder)).returncode


@pytest.mark.slow
def test_one_session_is_not_resumed_twice_at_once(tmp_path: Path) -> None:
    """The second one says who holds it, exits with 2, and disturbs nothing."""
    folder = commands_project(tmp_path, "touch begun; test -e go || exec sleep 60")
    process = start("run", "session", "try", "--target", str(folder))
    wait_for(folder / "begun")
    done = loop("run", "session", "--resume", "last", "--target", str(folder))
    holder = process.pid
    process.terminate()
    process.communicate(timeout=20)
    assert (2, True) == (done.returncode, f"process {holder}" in done.stderr)


@pytest.mark.slow
def test_a_session_stops_at_its_budget_and_reports(tmp_path: Path) -> None:
    """Exit 124, and the report is there."""
    folder = commands_project(tmp_path, "exec sleep 60")
    done = loop("run", "session", "try", "--target", str(folder), "--budget-minutes", "0.01")
    assert 124 == done.returncode
    assert (sessions(tmp_path)[0] / "report.md").exists()


@pytest.mark.slow
def test_a_failed_step_gives_exit_1_and_its_message(tmp_path: Path) -> None:
    """The chain stops, what was not reached is said in the report."""
    folder = commands_project(tmp_path, "echo no luck; exit 3", "touch never")
    done = loop("run", "session", "try", "--target", str(folder))
    assert 1 == done.returncode
    assert "no luck" in done.stderr
    assert not (folder / "never").exists()
    assert "try/s2" in (sessions(tmp_path)[0] / "report.md").read_text()


@pytest.mark.slow
def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    """The chain with predicted time and cost; no session folder, no command."""
    folder = commands_project(tmp_path, "touch never")
    done = loop("run", "session", "try", "--target", str(folder), "--dry-run")
    assert 0 == done.returncode
    assert re.search(r"predicted: .* \(80 %: ", done.stdout)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.slow
def test_sessions_that_cannot_be_written_are_said_before_anything_runs(tmp_path: Path) -> None:
    """A file stands where the folder should be: exit 2, a hint, nothing has run."""
    folder = commands_project(tmp_path, "touch never")
    (tmp_path / "file").touch()
    done = loop("run", "session", "try", "--target", str(folder), LOOP_SESSIONS=str(tmp_path / "file" / "x"))
    assert 2 == done.returncode
    assert "LOOP_SESSIONS" in done.stderr
    assert not (folder / "never").exists()


@pytest.mark.slow
def test_a_bundled_plan_fits_any_target(tmp_path: Path) -> None:
    """Its workload sets are those of the bundled target; another target's first set stands in."""
    folder = commands_project(tmp_path, "true")
    done = loop("run", "session", "quick", "--target", str(folder), "--dry-run")
    assert 0 == done.returncode, done.stdout[:3000]


@pytest.mark.slow
def test_an_own_plan_has_to_name_sets_of_its_target(tmp_path: Path) -> None:
    """A misspelt set is a mistake, found before anything runs."""
    folder = commands_project(tmp_path, "true")
    plan = folder / "plans" / "try.yaml"
    plan.write_text(plan.read_text().replace("[small]", "[smal]"))
    loop("trust", str(folder))
    done = loop("run", "session", "try", "--target", str(folder))
    assert 2 == done.returncode
    assert "try.yaml:6:13: workloads.0: expected one of the sets of target scaling (small)" in done.stderr


@pytest.mark.slow
def test_events_are_lines_of_json(tmp_path: Path) -> None:
    """One a line on stdout, each with the schema version of what it holds: the last has the session's."""
    folder = commands_project(tmp_path, "true")
    done = loop("run", "session", "try", "--target", str(folder), "--events")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    happenings = ["SessionBegan", "PatternBegan", "StepBegan", "StepEnded", "PatternEnded", "SessionEnded"]
    assert happenings == [line["happening"] for line in lines]
    assert "passed" == lines[-1]["status"]
    assert [1, 1, 1, 1, 1, 3] == [line["schema_version"] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "session", "baselin"], "did you mean 'baseline'?"),
        (["run", "session", "--variant", "cpuu"], "did you mean 'cpu'?"),
        (["run", "session", "--device", "tpu"], "unknown device 'tpu'"),
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
def test_wrong_usage_exits_with_2_and_says_what_to_do(words: list[str], said: str) -> None:
    """Misspelt names come with the nearest right one."""
    done = loop(*words)
    assert 2 == done.returncode
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """--device cuda without a driver: exit 2 and the way out."""
    done = loop(
        "run", "session", "--device", "cuda", PATH="/usr/bin:/bin" if not os.path.exists("/dev/nvidia0") else ""
    )
    assert 2 == done.returncode
    assert "--device cpu" in done.stderr


@pytest.mark.slow
def test_the_gate_is_proved_again_where_the_harness_has_changed_and_not_after_an_edit(folder: Path) -> None:
    """An edited kernel goes through a gate that was proved a moment ago; another reference is another gate."""
    add_plan(folder)
    loop("trust", str(folder))
    taken = []
    for name, text in (("scale.c", ""), ("scale.c", "// edited\n"), ("functions.py", "# edited\n")):
        with (folder / name).open("a") as file:
            file.write(text)
        done = loop("run", "session", "mine", "--target", str(folder))
        assert 0 == done.returncode, done.stderr
        taken.append("nothing that it rests on has changed" in done.stderr)
    assert [False, True, False] == taken
