"""What a session is before its first step: its plan, its head, and what it says first."""

import datetime
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import loop
from loop.agents.results import AiGiven
from loop.base.documents import Document, complain
from loop.base.errors import DefinitionError, UsageError
from loop.learning.predicting import expected, named
from loop.library import definitions, targets
from loop.library.hosted import hosted
from loop.machine.machine import machine
from loop.model.campaign import Campaign
from loop.model.change import BriefOutput
from loop.model.pattern import TimeBudget
from loop.model.plan import Plan, ResolvedPlan
from loop.model.record import SessionHead
from loop.model.target import Target
from loop.optimize.editable import changeable
from loop.repository import revision
from loop.session import course
from loop.session import plan as planning
from loop.session.bounds import SessionLimits
from loop.session.objective import goals
from loop.steps.setting import Setting, choose_device, choose_emulated, choose_threads, choose_variants
from loop.timing import theirs
from loop.timing.theirs import EvaluatorTerms


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
    asked: SessionLimits = field(default_factory=SessionLimits)
    """What may end it early."""
    ai: AiGiven = field(default_factory=AiGiven)
    """What the user stated so that AI can be charged."""
    campaign: Campaign = field(default_factory=Campaign)
    """Who proposes changes, and when that ends."""
    attended: bool = False
    """Whether an engineer attends to it, whose time is then charged as stated."""
    hypothesis: str = ""
    """What the user thinks is wrong, and has changed something for."""
    decline: bool = False
    """Whether a session that waits for a change is to end without one."""
    again: bool = False
    """Whether what lost in an earlier session is to be tried all the same."""
    theirs: EvaluatorTerms | None = None
    """Whose evaluator judges the answers as well, at the end; None where nobody asked for one."""
    dry_run: bool = False
    json: bool = False
    events: bool = False


def resolve(request: SessionRequest, setting: Setting) -> ResolvedPlan:
    """The plan asked for, with everything it could reach, checked against the target."""
    if request.pattern:  # A plan of one pattern, on the target's first workloads.
        pattern = definitions.choose(setting.patterns, request.pattern, "pattern")
        plan = Plan(
            format=1,
            name=request.pattern,
            title=f"Run the pattern: {pattern.value.title}",
            patterns=(request.pattern,),
            workloads=(next(iter(setting.target.workloads)),),
            budget=TimeBudget(minutes=pattern.value.estimate.minutes),
        )
        read = definitions.Read(plan, Document(plan.name), pattern.path)
    else:
        read = definitions.choose(setting.plans, request.plan or "baseline", "plan")
    read, patterns = fitted(read, setting), dict(setting.patterns)
    if request.theirs is not None:
        last = theirs.pattern(request.theirs)
        patterns[last.name] = definitions.Read(last, Document(last.name), read.path)
        more = {"patterns": (*read.value.patterns, last.name)}
        read = replace(read, value=read.value.model_copy(update=more))
    return planning.resolve(read, patterns, setting.plans, setting.target.variants)


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
    sender = hosted()
    own = "bundled" if setting.project.bundled else str(setting.project.target)
    return SessionHead(
        id="",
        started=datetime.datetime.now(datetime.UTC),
        plan=resolved,
        target=setting.target.name,
        target_folder=(sender.target if sender else "") or own,  # Where whoever asked has it.
        host=sender.name if sender else "",
        baseline=setting.target.baseline.python,
        variants=choose_variants(request.variants, setting.target, device),
        roles={name: v.role for name, v in setting.target.variants.items() if v.role != "main"},
        emulated=choose_emulated(request.variants, setting.target, device),
        device=device,
        threads=choose_threads(request.threads),
        seed=random.SystemRandom().randrange(1 << 24) if request.seed is None else request.seed,
        attended=request.attended,
        campaign=request.campaign,
        hypothesis=request.hypothesis.strip(),
        ground=targets.ground(setting.project),
        harness=targets.harness(setting.project),
        revision=revision(setting.project.target),
        machine=machine(),
        loop_version=loop.__version__,
    )


def asks_for_changes(head: SessionHead) -> bool:
    """Whether a step of the session asks for a change of the target."""
    steps = (step for planned in head.plan.patterns for step in planned.pattern.steps)
    return any(step.action in BriefOutput.actions for step in steps)


def refuse_unasked(head: SessionHead) -> None:
    """Raises UsageError where a campaign's plan never asks for a change: its proposer would not be called."""
    if head.campaign.unattended and not asks_for_changes(head):
        raise UsageError(
            f"plan {head.plan.plan.name} asks for no change: {head.campaign.proposer!r} would never be called",
            hint="leave out --plan, or give its pattern a step `change.brief`: loop patterns show tuning",
        )


def refuse_unchangeable(head: SessionHead, target: Target, folder: Path) -> None:
    """Raises UsageError where a campaign has no variant with a file that may be edited."""
    if head.campaign.unattended and not any(changeable(target, folder, name) for name in head.variants):
        names = ", ".join(head.variants) or f"nothing on {head.device}"
        raise UsageError(
            f"a campaign edits the files of a variant, and target {target.name} has {names}: "
            "none has a file of its own",
            hint="put the variant into a file of the target's folder that holds nothing by which it is judged",
        )


def announce(head: SessionHead) -> str:
    """The first lines of a session: what runs where, and in plain words what it is for."""
    plan = head.plan.plan
    where = f"{course.device(head)}, {head.threads} thread{'s' if head.threads > 1 else ''}"
    lines = [
        f"session {head.id}: {plan.title}",
        f"  target {head.target}{named(head.variants)} on {where}; about {expected(head)}",
    ]
    if plan.success:
        lines.append(f"  goal: {goals(plan.success)}")
    if plan.phases:
        lines.append(f"  phases: {', '.join(f'{phase.name} {phase.minutes:g} min' for phase in plan.phases)}")
    if plan.otherwise:
        lines.append(f"  if the goal is missed: {plan.otherwise}")
    if head.emulated:
        lines.append(f"  under the emulator: {', '.join(head.emulated)}")
    return "\n".join(lines)
