"""A session that hands changes over: it pauses, judges the edit in a worktree, keeps it or takes it back."""

import json
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from loop.base.places import shipped
from tests.noise import timed
from tests.projects import KERNEL, kill, loop, make_project, start
from tests.repository.test_reading import git, put_under_git

LINE = "for (int64_t i = 0; i < n; i++) y[i] = x[i] * (float)attributes[0];"
SLOW = KERNEL.replace(LINE, f"for (volatile int again = 0; again < 40; again++) {LINE}")
SIZES = ("small: [{N: 3, M: [5, 17]}]", "small: [{N: 64, M: 256}]")
PLAN = """
format: 1
name: improve
title: Make it faster
patterns: [single-compilation-unit, measured, profile-before-optimise]
workloads: [small]
budget: {minutes: 1}
"""
MEASURED = """
format: 1
name: measured
number: 101
title: What there is
problem: Without it nothing can be improved.
use_when: [testing]
estimate: {minutes: 0.1}
steps:
  - {id: verify, title: Right, action: kernel.verify, budget_s: 20}
  - {id: measure, title: Speed, action: kernel.measure, budget_s: 20, with: {rounds: 2}}
"""


@dataclass
class Project:
    """A user's project under git, and the session that improves it."""

    folder: Path
    sessions: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`loop run session`, on this project."""
        return loop("run", "session", *words, "--target", str(self.folder))

    def resume(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("--resume", "last", *words)

    @property
    def session(self) -> Path:
        return sorted(self.sessions.iterdir())[-1]

    def wait_for(self, step: str) -> None:
        """Wait until the change has reached this step of the gate."""
        deadline = time.monotonic() + 60
        while not any(line["event"] == "started" and line["step"] == step for line in self.of_change()):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def of_change(self) -> list[dict[str, str]]:
        """Lines of the journal on the change, whole ones only."""
        lines = (self.session / "journal.jsonl").read_text().split("\n")[:-1]
        return [event for line in lines if (event := json.loads(line)).get("pattern") == "profile-before-optimise"]

    def brief(self, number: int) -> dict[str, object]:
        """The brief of a change."""
        content = json.loads((self.session / "changes" / f"{number}-brief.json").read_text())
        assert isinstance(content, dict)
        return content

    @property
    def edited(self) -> Path:
        """The kernel in the worktree."""
        return Path(str(self.brief(1)["folder"])) / "scale.c"


def in_haste(folder: Path, name: str) -> None:
    """A bundled pattern as the project's own: fewer rounds, and seconds instead of minutes to compare in."""
    text = (shipped("patterns") / f"{name}.yaml").read_text().replace("{rounds: 5}", "{rounds: 2}")
    (folder / "patterns").mkdir(exist_ok=True)
    (folder / "patterns" / f"{name}.yaml").write_text(re.sub(r"budget_s: [23]0\b", "budget_s: 8", text))


def commit_plan(folder: Path) -> None:
    """Give a kernel the plan and the pattern, and commit all."""
    for kind, name, text in (("plans", "improve", PLAN), ("patterns", "measured", MEASURED)):
        (folder / kind).mkdir()
        (folder / kind / f"{name}.yaml").write_text(text)
    in_haste(folder, "profile-before-optimise")
    put_under_git(folder, "slow")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A kernel that does its work forty times, committed; a plan; trust; no session yet."""
    folder = make_project(tmp_path / "project", SLOW)
    (folder / "target.yaml").write_text((folder / "target.yaml").read_text().replace(*SIZES))
    commit_plan(folder)
    assert 0 == loop("trust", str(folder)).returncode
    return Project(folder, tmp_path / "sessions")


@timed
@pytest.mark.slow
def test_changes_are_handed_over_judged_kept_and_taken_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole loop in one session; the checkout is never touched, also with git's variables set."""
    with monkeypatch.context() as patch:  # As an alias or a hook sets them.
        patch.setenv("GIT_DIR", str(project.folder / ".git"))
        patch.setenv("GIT_WORK_TREE", str(project.folder))
        paused = project.run("improve")
    assert 75 == paused.returncode, paused.stderr
    assert "one change to ours is asked for" in paused.stderr
    leftovers = json.loads(loop("clean", "--json").stdout)["found"]
    (tree,) = [leftover for leftover in leftovers if leftover["kind"] == "worktree"]
    assert ("waits", True) == (tree["state"], project.session.name in tree["why"])
    assert "loop run session --resume" in paused.stderr
    assert {"scale.c"} == set(project.brief(1)["files"])  # type: ignore[call-overload]
    page = (project.session / "changes" / "1-brief.md").read_text()
    assert "make ours faster" in page
    assert str(project.edited.parent) in page

    repeated = project.resume()
    assert (75, True) == (repeated.returncode, "one change to ours" in repeated.stderr)

    manifest = project.edited.parent / "target.yaml"
    text = manifest.read_text()
    manifest.write_text(text.replace("rtol: 1.0e-6", "rtol: 1.0e+6"))
    refused = project.resume()
    assert (75, True) == (refused.returncode, "target.yaml may not change" in refused.stderr)
    manifest.write_text(text)

    project.edited.write_text(KERNEL.replace("i < n", "i < n - 1"))
    wrong = project.resume()
    assert 75 == wrong.returncode, wrong.stderr
    assert "change 1 reverted: ours is incorrect" in wrong.stderr
    assert SLOW == project.edited.read_text()
    assert "ours is incorrect" in str(project.brief(2)["tried"])

    project.edited.write_text(SLOW.replace("return 0;", "return oops;"))
    broken = project.resume()
    assert 75 == broken.returncode
    assert "the edit does not compile: " in broken.stderr, broken.stderr

    project.edited.write_text(KERNEL)
    better = project.resume()
    assert "change 2 kept: " in better.stderr, better.stderr
    assert "merge --no-edit loop/" in better.stderr
    assert KERNEL == project.edited.read_text()
    branch = f"loop/{project.session.name}"
    assert KERNEL.strip() == git(project.folder, "show", f"{branch}:scale.c")

    project.edited.write_text(SLOW)
    worse = project.resume()
    assert "change 3 reverted: " in worse.stderr
    assert "slower on 1 of 1 workloads" in worse.stderr, worse.stderr
    assert KERNEL == project.edited.read_text()

    tree = project.edited.parent
    done = project.resume("--decline")
    assert 0 == done.returncode, done.stderr
    assert not tree.exists()
    assert 1 == len(git(project.folder, "worktree", "list").splitlines())
    assert SLOW == (project.folder / "scale.c").read_text()
    assert ("main", "") == (
        git(project.folder, "rev-parse", "--abbrev-ref", "HEAD"),
        git(project.folder, "status", "--porcelain"),
    )
    patch = max((project.session / "changes").glob("2-*.patch"), key=lambda path: path.stat().st_mtime_ns)
    git(project.folder, "apply", "--check", str(patch))
    report = (project.session / "report.md").read_text()
    assert "## Changes" in report
    assert report.count("| reverted ") == 2
    assert f"merge --no-edit {branch}" in report
    first = project.session.name
    assert 75 == project.run("improve").returncode
    (reverted,) = [idea for idea in project.brief(1)["lost"] if idea["reason"].startswith("ours is incorrect")]  # type: ignore[attr-defined]
    assert (first, "ours") == (reverted["session"], reverted["variant"])
    assert "What lost in earlier sessions" in (project.session / "changes" / "1-brief.md").read_text()
    project.edited.write_text(KERNEL.replace("i < n", "i < n - 1"))
    assert f"this very change was taken back in {first}: " in project.resume().stderr
    git(project.folder, "apply", str(project.sessions / first / "changes" / "kept.patch"))
    assert KERNEL == (project.folder / "scale.c").read_text()


@timed
@pytest.mark.slow
def test_a_session_killed_while_it_judges_goes_on(project: Project) -> None:
    """The edit and finished checks are still there, and the decision is made once."""
    assert 75 == project.run("improve").returncode
    project.edited.write_text(KERNEL)
    process = start("run", "session", "--resume", "last", "--target", str(project.folder))
    project.wait_for("measure")
    kill(process)
    done = project.resume()
    assert 75 == done.returncode, done.stderr
    assert "change 1 kept: " in done.stderr
    assert 1 == git(project.folder, "log", "--format=%s", f"loop/{project.session.name}").count("ours: ")


HEADER = """
int work(int count);
"""


@pytest.mark.slow
def test_only_what_was_asked_for_may_change(project: Project) -> None:
    """Files of other variants may not change, and no file may be removed."""
    manifest = project.folder / "target.yaml"
    extra = "  other: {kind: c_abi, device: cpu, sources: [other.c], entry: scale, build: {compiler: gcc}}\n"
    manifest.write_text(manifest.read_text() + extra)
    (project.folder / "shared.h").write_text(HEADER)
    for name in ("other.c", "scale.c"):
        (project.folder / name).write_text(f'#include "shared.h"\n{SLOW}')
    git(project.folder, "add", ".")
    git(project.folder, "commit", "-q", "-m", "another")
    assert 0 == loop("trust", str(project.folder)).returncode
    assert 75 == project.run("improve", "--variant", "ours").returncode
    assert ["scale.c"] == project.brief(1)["files"]
    assert {"shared.h": ["other"]} == project.brief(1)["shared"]
    tree = project.edited.parent
    for name, text in (("shared.h", "int other(int);"), ("other.c", None)):
        original = (tree / name).read_text()
        (tree / name).unlink() if text is None else (tree / name).write_text(text)
        refused = project.resume().stderr
        assert f"{name} may not change" in refused
        assert (name == "shared.h") == ("--variant ours --variant other begins with all" in refused)
        (tree / name).write_text(original)


@pytest.mark.slow
def test_an_edit_of_ones_own_meanwhile_loses_nothing(project: Project) -> None:
    """The session reports the edit and waits; put back it continues, declined it ends."""
    assert 75 == project.run("improve").returncode
    project.edited.write_text(KERNEL)
    mine = SLOW + "// mine\n"
    (project.folder / "scale.c").write_text(mine)
    done = project.resume()
    assert 2 == done.returncode
    assert "was edited since" in done.stderr
    assert "--decline" in done.stderr
    assert (KERNEL, mine) == (project.edited.read_text(), (project.folder / "scale.c").read_text())
    declined = project.resume("--decline")
    assert 0 == declined.returncode, declined.stderr
    assert KERNEL == project.edited.read_text()


@timed
@pytest.mark.soak
def test_an_edit_made_while_another_is_judged_is_not_taken_for_it(project: Project) -> None:
    """The step fails, because the judged edit is not the current one; the message says how to restore it."""
    assert 75 == project.run("improve").returncode
    project.edited.write_text(KERNEL)
    process = start("run", "session", "--resume", "last", "--target", str(project.folder))
    project.wait_for("verify")
    project.edited.write_text(SLOW.replace("40", "41"))
    _, errors = process.communicate(timeout=100)
    assert "was edited while the change was judged" in errors
    patches = sorted((project.session / "changes").glob("1-*.patch"))
    assert 2 == len(patches)
    assert 1 == sum("again < 41" in patch.read_text() for patch in patches)
