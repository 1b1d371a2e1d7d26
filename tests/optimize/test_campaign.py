"""`loop optimize`: rounds of candidates of a scripted proposer, judged unattended, until a stop rule holds."""

import json
import math
import sys
from pathlib import Path

import pytest

from loop.model.campaign import Campaign
from loop.optimize.briefing import CampaignSpent
from tests.noise import timed
from tests.optimize.test_session import SLOW, Project
from tests.optimize.test_session import project as project
from tests.projects import KERNEL, LOOP, loop

PROPOSER = """
import json, pathlib, subprocess, sys
brief, folder, answer = sys.argv[1:]
number = int(pathlib.Path(brief).name[:4])
kernel = pathlib.Path(folder) / "scale.c"
if number == 1:  # What does not compile comes back with the compiler's words.
    text = kernel.read_text()
    kernel.write_text(text + "oops" if "does not compile" not in pathlib.Path(brief).read_text() else {fast!r})
    (pathlib.Path(folder) / "target.yaml").write_text("no manifest")
elif number == 2:  # It edits the session's own worktree, too.
    kernel.write_text(kernel.read_text() + "// nothing but a comment")
    copy = next(place for place in kernel.parents if place.name.endswith(".2"))
    for manifest in copy.with_name(copy.name.removesuffix(".2")).rglob("target.yaml"):
        manifest.write_text(manifest.read_text() + "# mine")
    done = subprocess.run([*{loop!r}, "kernels", "check", "ours", "--json"], cwd=folder, capture_output=True)
    pathlib.Path({printed!r}).write_bytes(done.stdout)
elif number == 3:
    sys.exit("no quota left")
else:
    pathlib.Path(answer).write_text('{{"done": true}}')
print(json.dumps({{"type": "result", "total_cost_usd": 0.125, "usage": {{"output_tokens": 900}}}}))
"""


def optimize(project: Project, proposer: str, *words: str, plan: str = "improve") -> tuple[int, str, str]:
    """Run `loop optimize` on this project; exit code and output."""
    done = loop("optimize", str(project.folder), "--plan", plan, "--proposer", proposer, *words)
    return done.returncode, done.stdout, done.stderr


@timed
@pytest.mark.slow
def test_rounds_are_walked_until_the_proposer_has_nothing_more(project: Project, tmp_path: Path) -> None:
    """A repaired and kept edit, a comment, a failure, done: exit 0, one ledger, an unchanged checkout."""
    printed = tmp_path / "check.json"
    script = tmp_path / "propose.py"
    script.write_text(PROPOSER.format(fast=KERNEL, loop=LOOP, printed=str(printed)))
    code, out, err = optimize(project, f"{sys.executable} {script} {{brief}} {{workdir}} {{answer}}", "--json")
    assert 0 == code, err
    assert "passed" == json.loads(out)["status"]
    assert SLOW == (project.folder / "scale.c").read_text()
    proposals = [
        json.loads(path.read_text())
        for path in sorted((project.session / "changes" / "candidates").glob("[0-9][0-9][0-9][0-9].json"))
    ]
    assert ["edited", "edited", "failed", "done"] == [proposal["ended"] for proposal in proposals]
    assert (["scale.c"], ["target.yaml"]) == (proposals[0]["files"], proposals[0]["left_out"])
    assert ["scale.c"] == proposals[1]["files"]
    assert "target.yaml" not in Path(proposals[1]["patch"]).read_text()
    assert 0.25 == proposals[0]["use"]["usd"], "two runs: the first did not compile"
    (step,) = json.loads(printed.read_text())["steps"]
    assert "the incumbent" == step["output"]["speeds"][0]["against"]
    changes = project.session / "changes"
    assert KERNEL != SLOW
    assert (changes / "kept.patch").is_file()
    report = (project.session / "report.md").read_text()
    assert "1 of 2 changes kept" in report


@pytest.mark.slow
def test_a_program_that_is_not_there_is_refused(project: Project) -> None:
    """The error comes before anything runs."""
    code, _, err = optimize(project, "not-installed-anywhere {brief}")
    assert (2, True) == (code, "there is no program `not-installed-anywhere`" in err)
    assert not project.sessions.is_dir() or not list(project.sessions.iterdir())


GAINS = """
import pathlib, sys
brief, folder = sys.argv[1:]
number = int(pathlib.Path(brief).name[:4])
kernel = pathlib.Path(folder) / "scale.c"
kernel.write_text(kernel.read_text().replace("again < 40", f"again < { {1: 25, 2: 2, 3: 60}[number] }"))
"""


@timed
@pytest.mark.slow
def test_candidates_are_compared_in_jobs_before_one_is_judged(project: Project, tmp_path: Path) -> None:
    """A candidate without a gain is reverted by its comparison alone. The best one passes the gate. The gate takes
    over its comparison instead of timing it anew."""
    script = tmp_path / "propose.py"
    script.write_text(GAINS)
    words = ("--width", "3", "--max-candidates", "3", "--executor", "local", "--json")
    code, out, err = optimize(project, f"{sys.executable} {script} {{brief}} {{workdir}}", *words)
    assert 0 == code, err
    changes = json.loads(out)["changes"]
    assert {1: "conflict", 2: "edited", 3: "edited"} == {
        proposal["number"]: proposal["ended"] for proposal in changes["proposals"]
    }
    steps = [line for line in project.of_change() if line["event"] == "finished"]
    slower, best = [line["output"] for line in steps if line["step"] == "brief"][:2]
    assert [(3, True), (2, False)] == [(brief["candidate"], brief["not_faster"]) for brief in (slower, best)]
    assert {f"compare candidate {number} with the incumbent" for number in (1, 2, 3)} == {
        job["title"] for job in slower["jobs"]
    }
    assert ["skipped", "passed"] == [line["status"] for line in steps if line["step"] == "verify"][:2]
    assert ["reverted", "kept"] == [change["outcome"] for change in changes["judged"]]
    hints = ["the gate's other checks did not run" in change["reason"] for change in changes["judged"]]
    assert [True, False] == hints, "a candidate that is slow may be wrong as well"
    compared = [line["output"] for line in steps if line["step"] == "compare" and line["output"]][:2]
    assert ["slower", "faster"] == [output["found"]["verdicts"][0]["verdict"] for output in compared]
    for later, number in zip(compared, (3, 2), strict=True):
        assert later["jobs"] == [job for job in slower["jobs"] if f" {number} " in job["title"]]
        assert (number == 2) == bool(later["found"]["null_controls"]), "the slower one keeps no claim"
    assert 2 == len([*(project.session / "samples").glob("*-change-compare.json")])


@pytest.mark.parametrize(
    ("campaign", "spent", "why"),
    [
        (Campaign(candidates=4), CampaignSpent(candidates=4), "its 4 candidates are used up"),
        (Campaign(minutes=1.5), CampaignSpent(seconds=90, candidates=1), "its 1.5 minutes are over"),
        (Campaign(usd=0.5), CampaignSpent(usd=0.51), "its 0.5 dollars are spent"),
        (Campaign(tokens=1000), CampaignSpent(tokens=1000), "its 1000 tokens are used"),
        (Campaign(target=1.5), CampaignSpent(best_speedup=1.52), "its target of 1.5x is reached"),
        (Campaign(stall=3), CampaignSpent(since_last_kept=3), "nothing was kept in 3 candidates"),
        (Campaign(), CampaignSpent(is_proposer_done=True), "the proposer has nothing more to propose"),
    ],
)
def test_each_bound_ends_it_and_nothing_before(campaign: Campaign, spent: CampaignSpent, why: str) -> None:
    """The reason has the reached value; a campaign that has just begun continues."""
    assert why == spent.explain_end(campaign)
    assert CampaignSpent().explain_end(campaign) is None


def test_what_is_not_clear_is_measured_further_within_the_budgets() -> None:
    """Wall time and dollars of the machine, whichever ends first; else without end."""
    spent = CampaignSpent(seconds=60, usd=1.0)
    assert math.inf == spent.remaining_s(Campaign(), 2.0)
    assert 60 == spent.remaining_s(Campaign(minutes=2))
    assert 1800 == spent.remaining_s(Campaign(usd=2.0), 2.0)
    assert 0 == spent.remaining_s(Campaign(minutes=0.5))
