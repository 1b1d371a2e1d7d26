"""The command that a fault disturbs: a session, a grant, a search over commits, a change that is handed over."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import sums
from tests.bisect.histories import make_history
from tests.faults.world import (
    BUILD,
    Running,
    World,
    allow,
    judge,
    left,
    lost,
    make_world,
    traceback_in,
    unreadable,
    write_plan,
)
from tests.optimize.test_session import SIZES, SLOW
from tests.projects import TARGET
from tests.repository.test_reading import git, put_under_git

BAD_SINCE = 4
PROBE = f'test "$(cat state)" -lt {BAD_SINCE}'
MEASURED = (
    "  - {id: verify, title: Right, action: kernel.verify, budget_s: 20}",
    "  - {id: measure, title: Speed, action: kernel.measure, budget_s: 20, with: {rounds: 2}}",
    "  - {id: brief, title: One change, action: change.brief, with: {gain: 0.01}, budget_s: 10}",
)
PAUSED = 75


@dataclass(frozen=True)
class Scene:
    """A command in a world, and what must hold of it after a fault."""

    make: Callable[[Path], World]
    start: Callable[..., Running]
    """Of the world and variables for the command."""
    judge: Callable[[World, Running], str]


def _session(world: World, **environment: str) -> Running:
    return world.session(**environment)


def _untrusted(folder: Path) -> World:
    world = make_world(folder)
    sums.write_sealed(folder / "state" / "trusted.json", {"/somewhere/else": "0" * 64})
    return world


def _granted(world: World, running: Running) -> str:
    """A grant that was confirmed is stored, other projects' grants too, and a new one can be given."""
    broken = left(world, running) or traceback_in(running)
    if broken:
        return broken
    grants = json.loads((world.folder / "state" / "trusted.json").read_text())
    if "/somewhere/else" not in grants:
        return "lost: the grant of another project"
    if running.process.returncode == 0 and str(world.target.resolve()) not in grants:
        return "lost: a grant that was told"
    code, errors = world.done("trust", str(world.target))
    return "" if code == 0 else f"`loop trust` ended with {code}: {errors[-300:]}"


def _history(folder: Path) -> World:
    world = World(folder)
    (folder / "state").mkdir()
    make_history(world.target, [str(number) for number in range(8)])
    (world.target / "notes").write_text("uncommitted")
    return world


def _search(world: World, **environment: str) -> Running:
    words = ("bisect", "--good", "HEAD~7", "--target", str(world.target), "--json", "--probe", "exit")
    return world.start(*words, "--", "sh", "-c", PROBE, **environment)


def _judge_search(world: World, running: Running) -> str:
    """The same command resumes and names the culprit; the checkout is unchanged, and no worktree is left."""
    checkout = (git(world.target, "rev-parse", "HEAD"), (world.target / "notes").read_text())
    broken = left(world, running) or traceback_in(running)
    if broken:
        return broken
    second = _search(world)
    code = second.end()
    if code or traceback_in(second):
        return f"the same search ended with {code}: {second.errors.read_text()[-300:]}"
    culprits = [culprit["commit"] for culprit in json.loads(second.stdout.read_text())["culprits"]]
    expected = git(world.target, "rev-parse", f"HEAD~{7 - BAD_SINCE}")
    if culprits != [expected]:
        return f"another culprit: {culprits}, not {expected}"
    trees = git(world.target, "worktree", "list").splitlines()
    present = (git(world.target, "rev-parse", "HEAD"), (world.target / "notes").read_text())
    return "" if (present, len(trees)) == (checkout, 1) else f"the checkout is another one: {trees}"


def _edited(folder: Path) -> World:
    """A committed project with an uncommitted edit, and a plan that measures and then asks for a change."""
    world = make_world(folder)
    (world.target / "target.yaml").write_text(TARGET.replace(*SIZES))
    (world.target / "scale.c").write_text(SLOW)
    write_plan(world.target, "try", [BUILD, *MEASURED])
    put_under_git(world.target, "first")
    with (world.target / "scale.c").open("a") as file:
        file.write("// an uncommitted edit\n")
    allow(world)
    return world


def _handed_over(world: World, running: Running) -> str:
    """The session resumes until it asks for the change, in a worktree that holds the edit, with samples stored."""
    for look in (left, unreadable, lost):
        broken = look(world, running)
        if broken:
            return broken
    broken = traceback_in(running)
    if broken:
        return broken
    words = [("--resume", session.id) for session in world.folders()] or [("try",)]
    second = world.session(*words[0])
    code = second.end()
    if code != PAUSED:
        return f"`run session {' '.join(words[0])}` ended with {code}: {second.errors.read_text()[-300:]}"
    (folder,) = world.folders()
    brief = json.loads((folder.path / "changes" / "1-brief.json").read_text())
    if "an uncommitted edit" not in (Path(brief["folder"]) / "scale.c").read_text():
        return "the worktree lacks the uncommitted edit"
    samples = sorted((folder.path / "samples").glob("*.json"))
    return "" if samples and all(json.loads(path.read_text()) for path in samples) else "no samples"


SCENES = {
    "session": Scene(make_world, _session, judge),
    "grant": Scene(
        _untrusted, lambda world, **variables: world.start("trust", str(world.target), **variables), _granted
    ),
    "search": Scene(_history, _search, _judge_search),
    "change": Scene(_edited, _session, _handed_over),
}
