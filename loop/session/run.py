"""`loop run session`: resolve, walk, close. And the same walk again after an interruption."""

import contextlib
import datetime
import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import loop
from loop.agents import spending
from loop.agents.model import AiGiven
from loop.agents.proposing import Agent, go_on
from loop.base.documents import Document, complain, to_json
from loop.base.errors import DefinitionError, ExitCode, LoopError, MachineFailure, UsageError, WorkFailed
from loop.base.interrupts import flagged
from loop.base.machine_failures import Folders, behind
from loop.base.places import state_folder
from loop.base.screen import Screen
from loop.learning.memory import keep_sources
from loop.learning.predicting import expected, foresee, named, show_plan
from loop.learning.prediction import LOOKED_BACK
from loop.library import definitions, figures, targets
from loop.machine.machine import machine
from loop.model.index import SessionRow
from loop.model.plan import Plan, PlanBudget, ResolvedPlan
from loop.model.record import Closed, Opened, SessionHead, SessionRecord, Started
from loop.repository import revision, worktree
from loop.session import closing, course
from loop.session import plan as planning
from loop.session.bounds import Asked, make_bounds
from loop.session.drive import Ending, Show, drive, into
from loop.session.facts import session_facts
from loop.session.walk import Walk
from loop.steps.context import Context, Past, Task, Workshop
from loop.steps.setting import (
    Setting,
    choose_device,
    choose_emulated,
    choose_threads,
    choose_variants,
    open_bench,
    trusted_setting,
)
from loop.store import index, sessions
from loop.store.journal import Journal, finished, last_closed
from loop.store.known_good import known_good
from loop.store.past_changes import lost_ideas, searches
from loop.store.sessions import SessionFolder
from loop.store.tries import tries

RESUMABLE = ("aborted", "paused")
"""How a session ended that can go on."""


@dataclass(frozen=True)
class SessionRequest:
    """What the user asked for."""

    plan: str | None = None
    """Name of a plan; `baseline` when none is named."""
    pattern: str | None = None
    """Run this pattern alone instead of a plan."""
    target: Path | None = None
    device: str = "auto"
    variants: Sequence[str] = field(default_factory=tuple)
    threads: int | None = None
    seed: int | None = None
    asked: Asked = field(default_factory=Asked)
    """What may end it early."""
    ai: AiGiven = field(default_factory=AiGiven)
    """What the user stated so that AI can be charged."""
    agent: Agent | None = None
    """Who makes the changes that the session asks for; None leaves that to whoever resumes it."""
    hypothesis: str = ""
    """What the user thinks is wrong, and has changed something for."""
    decline: bool = False
    """Whether a session that waits for a change is to end without one."""
    again: bool = False
    """Whether what lost in an earlier session is to be tried all the same."""
    dry_run: bool = False
    json: bool = False
    events: bool = False


def run_session(request: SessionRequest, screen: Screen) -> int:
    """Run a session from its first step; the exit code."""
    setting = trusted_setting(request.target, screen)
    resolved = resolve(request, setting)
    head = foresee(make_head(request, setting, resolved), setting)
    request.asked.check(head, figures.rates(setting.project))
    if request.dry_run:
        return show_plan(head, figures.rates(setting.project), screen, as_json=request.json)
    with flagged(), paused_by_machine(setting, f"go on with: {head.command()}"):
        folder = sessions.create(setting.project.sessions, resolved.plan.name, head.started)
        head = head.model_copy(update={"id": folder.id})
        with folder.begun(head):
            code = resumable(request, setting, head, folder, screen)
    return handed_on(request, setting, folder, screen, code)


def resume_session(name: str, request: SessionRequest, screen: Screen) -> int:
    """Go on with a session that was interrupted; the exit code."""
    if request.plan is not None:
        raise UsageError("a resumed session has its plan already", hint=f"loop run session --resume {name}")
    setting = trusted_setting(request.target, screen)
    folder = sessions.find(setting.project.sessions, name)
    again = f"go on with: loop run session --resume {name}"
    with flagged(), paused_by_machine(setting, again), folder.lock():
        head, record = folder.head(), folder.record()
        request.asked.check(head, figures.rates(setting.project))
        ended = last_closed(folder.lines())
        if record is not None and ended is not None and ended.status not in RESUMABLE:
            screen.say(f"{folder.id} has ended already: {record.reason}")
            return closing.tell(record, folder, screen, closing.recall(setting, folder.id), as_json=request.json)
        if head.target != setting.target.name:
            raise UsageError(
                f"{folder.id} is a session of target {head.target}, not of {setting.target.name}",
                hint=f"--target {head.target_folder}",
            )
        now = targets.ground(setting.project)
        fresh = now != head.ground
        if fresh and waits_for_change(setting, head, folder):
            if not request.decline:
                raise changed_meanwhile(setting, head, folder)
            now, fresh = head.ground, False
        if fresh:
            screen.say("the target's files have changed since: every step is done again")
        head = head.model_copy(update={"revision": revision(setting.project.target), "ground": now})
        folder.write_head(head)
        code = resumable(request, setting, head, folder, screen, fresh=fresh)
    return handed_on(request, setting, folder, screen, code)


def handed_on(request: SessionRequest, setting: Setting, folder: SessionFolder, screen: Screen, code: int) -> int:
    """Where the session waits for a change and an agent was named: the change is made, and the session goes on."""

    def resume(agent: Agent | None, decline: bool) -> int:
        again = replace(request, plan=None, pattern=None, agent=agent, decline=decline, ai=AiGiven())
        return resume_session(folder.id, again, screen)

    ended = go_on(request.agent, folder, screen, code, resume)
    record = folder.record() if ended is None and request.agent and request.json else None
    if record is not None:
        screen.data(to_json(closing.outcome(record, folder, closing.recall(setting, folder.id))))
    return code if ended is None else ended


def resumable(
    request: SessionRequest,
    setting: Setting,
    head: SessionHead,
    folder: SessionFolder,
    screen: Screen,
    *,
    fresh: bool = False,
) -> int:
    """Walk; whatever ends it before its time, say how to go on once that is mended."""
    try:
        with paused_by_machine(setting, f"go on with: {head.resume_command}"):
            return walk_session(request, setting, head, folder, screen, fresh=fresh)
    except MachineFailure:
        raise
    except LoopError as error:
        again = f"loop run session --resume {folder.id}"
        hint = f"{error.hint}, then go on with: {again}" if error.hint else again
        raise WorkFailed(error.message, hint) from error


@contextlib.contextmanager
def paused_by_machine(setting: Setting, then: str) -> Iterator[None]:
    """Raises MachineFailure, with what to do `then`, for every error that a failure of the machine led to."""
    try:
        yield
    except MachineFailure:
        raise
    except (LoopError, OSError, MemoryError, RuntimeError) as error:
        failure = behind(error, folders_of(setting))
        if failure is None:
            raise
        raise failure.then(then) from error


def folders_of(setting: Setting) -> Folders:
    """The folders that a session writes to."""
    return Folders.of(setting.project.sessions, setting.project.target)


def resolve(request: SessionRequest, setting: Setting) -> ResolvedPlan:
    """The plan asked for, with everything it could reach, checked against the target."""
    read = _pattern_plan(request.pattern, setting) if request.pattern else None
    read = read or definitions.choose(setting.plans, request.plan or "baseline", "plan")
    read = fitted(read, setting)
    return planning.resolve(read, setting.patterns)


def _pattern_plan(name: str, setting: Setting) -> definitions.Read[Plan]:
    """A plan of one pattern, on the target's first workloads."""
    pattern = definitions.choose(setting.patterns, name, "pattern")
    plan = Plan(
        format=1,
        name=name,
        title=f"Run the pattern: {pattern.value.title}",
        patterns=(name,),
        workloads=(next(iter(setting.target.workloads)),),
        budget=PlanBudget(minutes=pattern.value.estimate.minutes),
    )
    return definitions.Read(plan, Document(name), pattern.path)


def fitted(read: definitions.Read[Plan], setting: Setting) -> definitions.Read[Plan]:
    """The plan with workload sets that the target has.

    A plan of the project's own has to name sets of its target: DefinitionError when it does not. One that ships
    with loop runs on those of its sets that are there, else on the target's first.
    """
    target, own = setting.target, setting.project.own("plans")
    known = [name for name in read.value.workloads if name in target.workloads]
    if own is not None and read.path.is_relative_to(own) and len(known) < len(read.value.workloads):
        missing = next(name for name in read.value.workloads if name not in target.workloads)
        place = ("workloads", read.value.workloads.index(missing))
        expected = f"one of the sets of target {target.name} ({', '.join(target.workloads)})"
        raise DefinitionError([complain(read.document, place, expected, repr(missing))])
    sets = tuple(known) or (next(iter(target.workloads)),)
    return replace(read, value=read.value.model_copy(update={"workloads": sets}))


def make_head(request: SessionRequest, setting: Setting, resolved: ResolvedPlan) -> SessionHead:
    """What is known before the first step."""
    device = choose_device(request.device, setting.target, request.variants)
    return SessionHead(
        id="",
        started=datetime.datetime.now(datetime.UTC),
        plan=resolved,
        target=setting.target.name,
        target_folder="bundled" if setting.project.bundled else str(setting.project.target),
        baseline=setting.target.baseline.python,
        variants=choose_variants(request.variants, setting.target, device),
        emulated=choose_emulated(request.variants, setting.target, device),
        device=device,
        threads=choose_threads(request.threads),
        seed=random.SystemRandom().randrange(1 << 24) if request.seed is None else request.seed,
        hypothesis=request.hypothesis.strip(),
        ground=targets.ground(setting.project),
        revision=revision(setting.project.target),
        machine=machine(),
        loop_version=loop.__version__,
    )


def walk_session(
    request: SessionRequest,
    setting: Setting,
    head: SessionHead,
    folder: SessionFolder,
    screen: Screen,
    *,
    fresh: bool,
) -> int:
    """Walk what has not been walked yet (everything when `fresh`), then close; the exit code."""
    journal = Journal(folder.path / "journal.jsonl")
    begun = [line.event for line in journal.lines if isinstance(line.event, Started)]
    card = figures.rates(setting.project)
    rows = index.rows(setting.project.sessions, last=LOOKED_BACK)
    spending.add(folder, request.ai)
    bounds = make_bounds(request.asked, head, card, journal.lines, rows, spending.used(folder)[0])
    journal.append(Opened(resumed=bool(journal.lines), fresh=fresh, pid=os.getpid()))
    screen.say(announce(head))
    folder.keep_reserve()
    bounds.reserve = folder.reserve
    with open_bench(setting, head.device, head.threads) as bench:
        task = Task(
            plan=head.plan.plan,
            variants=head.variants,
            emulated=head.emulated,
            machine=head.machine,
            seed=head.seed,
            folder=setting.project.target,
            session=head.id,
            ground=head.ground,
            hypothesis=head.hypothesis,
            patterns=tuple(planned.pattern for planned in head.plan.patterns),
            again=request.again,
            workshop=workshop_of(head, folder, declined=request.decline),
            card=card,
        )
        context = Context(bench, task, past_of(setting, head, rows), bounds.watch)
        walk = Walk(
            resolved=head.plan,
            context=context,
            facts=session_facts(card, head.device, head.plan.plan.budget.minutes),
            earlier=finished(journal.lines),
            begun=begun,
            folders=folders_of(setting),
        )
        recall = closing.recall(setting, head.id)
        show = Show(screen, request.events, recall.lines)
        ending = drive(walk, show, into(folder, journal), bounds)
    bounds.give_room()
    unkept = keep_sources(setting.project, head, folder, walk.finished)
    if unkept:
        screen.say(unkept)
    record = close(setting, head, folder, journal, bounds.closed(ending))
    if request.events:
        screen.data(json.dumps({"happening": "SessionEnded", **closing.outcome(record, folder, recall)}))
    closing.tell(record, folder, screen, recall, as_json=request.json and request.agent is None)
    if ending.status is not None and not closing.waiting_for(folder.finished()):
        screen.say(f"{ending.to_go_on}: {head.resume_command}")
    if record.status not in RESUMABLE:
        clear_workshop(setting.project.target, context.task.workshop)
    return exit_code(record, ending)


def past_of(setting: Setting, head: SessionHead, rows: Sequence[SessionRow]) -> Past:
    """What earlier sessions say that a step could want to know."""
    root = setting.project.sessions
    return Past(
        known_good=known_good(root, head),
        tries=tries(root, head),
        lost=lost_ideas(root, head) if changes_something(head) else (),
        searches=searches(root, head) if changes_something(head) else (),
        sessions=tuple(row for row in rows if row.target == head.target and row.id != head.id),
    )


def changes_something(head: SessionHead) -> bool:
    """Whether the session could come to a change of the target."""
    return any(step.action.startswith("change.") for one in head.plan.patterns for step in one.pattern.steps)


def waits_for_change(setting: Setting, head: SessionHead, folder: SessionFolder) -> bool:
    """Whether the session has a worktree in which somebody may have an edit."""
    return worktree.find(setting.project.target, workshop_of(head, folder, declined=False).tree) is not None


def changed_meanwhile(setting: Setting, head: SessionHead, folder: SessionFolder) -> LoopError:
    """The target's own files are others than those that the session's changes stand on."""
    tree = workshop_of(head, folder, declined=False).tree
    return UsageError(
        f"{setting.project.target} was edited since {head.id} began: its changes, in {tree}, stand on what was",
        hint=f"put that back and resume, or end it: {head.resume_command} --decline",
    )


def workshop_of(head: SessionHead, folder: SessionFolder, *, declined: bool) -> Workshop:
    """Where this session has its target edited: a worktree for each state of the target's files."""
    tree = state_folder() / "worktrees" / f"{head.id}-{head.ground[:8]}"
    return Workshop(tree, folder.path / "changes", head.resume_command, declined)


def clear_workshop(target: Path, shop: Workshop | None) -> None:
    """Take the worktree of a session that has ended away, unless somebody has an edit in it."""
    tree = worktree.find(target, shop.tree) if shop else None
    if tree is not None and not tree.changed():
        worktree.remove(tree)


def close(
    setting: Setting, head: SessionHead, folder: SessionFolder, journal: Journal, ending: Ending
) -> SessionRecord:
    """Write down how it ended, work out what it means, render the report."""
    seconds, own_seconds = sessions.wall_seconds(journal.lines)
    record = closing.conclude(setting, head, folder, ending, seconds, own_seconds)
    folder.write_record(record)
    rendered = closing.render(setting, record, folder)
    folder.write_report(rendered.text, {one.path: one.file for one in rendered.figures})
    journal.append(Closed(status=record.status, reason=record.reason))
    journal.close()
    return record


def exit_code(record: SessionRecord, ending: Ending) -> int:
    """The walk's own exit code if it did not run to its end, else what the gates say."""
    if ending.exit_code:
        return ending.exit_code
    return ExitCode.OK if record.status == "passed" else ExitCode.GATE_FAILED


def announce(head: SessionHead) -> str:
    """The first line of a session."""
    plan = head.plan
    where = f"{course.device(head)}, {head.threads} thread{'s' if head.threads > 1 else ''}"
    return (
        f"session {head.id}: {plan.plan.title}\n"
        f"  target {head.target}{named(head.variants)} on {where}; about {expected(head)}"
        + (f"\n  under the emulator: {', '.join(head.emulated)}" if head.emulated else "")
    )
