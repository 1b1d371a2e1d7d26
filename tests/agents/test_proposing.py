"""`loop run session --agent`: a coding agent makes the change that is asked for, and its cost is measured."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from loop.agents.proposing import Agent, use_of
from tests.noise import timed
from tests.optimize.test_session import SLOW, Project
from tests.optimize.test_session import project as project
from tests.projects import KERNEL

AGENT = """
import json, pathlib, sys
brief = sys.stdin.read()
assert "make ours faster" in brief
assert pathlib.Path("scale.c").is_file()
what = sys.argv[1]
if what == "fast":
    pathlib.Path("scale.c").write_text({kernel!r})
if what == "fail":
    sys.exit("no quota left")
if what != "silent":
    print(json.dumps({{"type": "result", "total_cost_usd": 0.125, "usage": {{"output_tokens": 900}}}}))
"""


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """A command that reads the brief and edits the kernel as it is told."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT.format(kernel=KERNEL))
    return f"{sys.executable} {path}"


def bill(project: Project) -> dict[str, Any]:
    """What the session cost."""
    found: dict[str, Any] = json.loads((project.session / "record.json").read_text())["bill"]
    return found


@timed
@pytest.mark.slow
def test_an_agent_s_change_is_judged_kept_and_charged(project: Project, agent: str) -> None:
    """One change, then the session ends with its report; one JSON object; the checkout is as it was."""
    command = f"{agent} fast | tee {project.folder.parent}/printed  # the brief goes to the first of them"
    done = project.run("improve", "--agent", command, "--json")
    assert 0 == done.returncode, done.stderr
    assert "passed" == json.loads(done.stdout)["status"]
    charged = [(one["usd"], one["basis"]) for one in bill(project)["charges"] if one["resource"] == "ai"]
    assert [(0.125, "measured")] == charged
    gains = bill(project)["gains"]
    assert 1 == gains["accepted"]
    assert gains["accepted_us"] > 0
    assert SLOW == (project.folder / "scale.c").read_text()
    report = (project.session / "report.md").read_text()
    assert "kept change: " in report
    assert "for each microsecond" in report


@pytest.mark.slow
def test_an_agent_that_changes_nothing_leaves_the_session_waiting(project: Project, agent: str) -> None:
    """Exit 75, the command to go on; what it cost is charged all the same, and unknown where it does not say."""
    done = project.run("improve", "--agent", f"{agent} idle")
    assert 75 == done.returncode, done.stderr
    assert "the agent left no change that may be judged" in done.stderr
    assert [0.125] == [one["usd"] for one in bill(project)["charges"] if one["resource"] == "ai"]
    again = project.resume("--agent", f"{agent} silent")
    assert 75 == again.returncode, again.stderr
    assert "cost is unknown" in next(
        one["reason"] for one in bill(project)["unmeasured"] if one["resource"] == "ai"
    )


@pytest.mark.slow
def test_an_agent_that_fails_is_told_with_its_own_words(project: Project, agent: str) -> None:
    """And the session can be resumed."""
    done = project.run("improve", "--agent", f"{agent} fail")
    assert 75 == done.returncode, done.stderr
    assert "the agent failed: no quota left" in done.stderr
    assert "loop run session --resume" in done.stderr


@pytest.mark.parametrize("command", ["", "  ", "claude 'unclosed", "/opt/claude -p"])
def test_an_agent_that_prints_no_result_has_a_name_and_no_cost(command: str, tmp_path: Path) -> None:
    """Whatever its command looks like; the shell says what is wrong with it."""
    found = use_of(Agent(command), "no JSON", tmp_path / "1-agent.txt")
    assert (None, ("claude",) if "claude" in command else ("an agent",)) == (found.usd, found.agents)
