"""Opens a session: resolves and checks the plan, builds the head, announces what will run."""

import datetime
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import loop
from loop.actions import ACTIONS
from loop.base.documents import Document, complain, parse, to_json
from loop.base.errors import Complaint, DefinitionError, ExitCode, UsageError
from loop.base.expressions import RESERVED_WORDS
from loop.learning.prediction import predicted_cost_text, predicted_time_text, unpriced_gpu
from loop.library import definitions, targets
from loop.library.definitions import ParsedFile, check_expression, name_hint
from loop.library.trust import read_sender
from loop.machine.machine import machine
from loop.model.base import Printed
from loop.model.campaign import Campaign
from loop.model.money import RateCard
from loop.model.plan import Pattern, Plan, PlannedPattern, Predicted, ResolvedPlan, TimeBudget
from loop.model.record import Machine, Revision, SessionHead
from loop.model.target import Target
from loop.money.bill import explain_missing_price
from loop.optimize.model import BriefOutput
from loop.optimize.session_changes import may_edit_variant
from loop.report import format as say
from loop.report.screen import Screen
from loop.repository.worktree import read_revision
from loop.session.drive import SessionLimits
from loop.session.objective import FINDING_NAMES, goal_text
from loop.steps import setting as choosing
from loop.steps.setting import Setting

SESSION_VALUES = "minutes usd overrun speedup wrong regressed unverified unemulated"
SESSION_NAMES = {f"session.{name}" for name in SESSION_VALUES.split()}
ALWAYS_READABLE = {"failed", "passed", "target", "device"}
RESERVED_IDS = ALWAYS_READABLE | {"session", "plan"} | RESERVED_WORDS
"""A step must not have one of these ids, because expressions already use these names."""


def resolve_plan(
    plan: ParsedFile[Plan],
    patterns: Mapping[str, ParsedFile[Pattern]],
    plans: Collection[str] = (),
    variants: Collection[str] = (),
) -> ResolvedPlan:
    """The plan with every pattern that it can reach: by its list, its `otherwise` and their `next`.
    `plans`: allowed in `otherwise`; `variants`: in expressions. DefinitionError: all mistakes."""
    complaints = check_plan(plan, patterns, plans, variants)
    names = (*plan.value.patterns, plan.value.otherwise or "")  # If the goal is missed; or a plan.
    reachable_names = list(dict.fromkeys(name for name in names if name in patterns))
    for name in reachable_names:  # Patterns that `next` names are appended in the loop.
        for rule in patterns[name].value.next:
            if rule.pattern in patterns and rule.pattern not in reachable_names:
                reachable_names.append(rule.pattern)
        complaints += check_pattern(patterns[name], patterns, plan.value.parameters)
    if complaints:
        raise DefinitionError(complaints)
    planned_patterns = []
    for name in reachable_names:
        pattern, is_planned = patterns[name].value, name in plan.value.patterns
        time_fields = {"seconds": 60 * pattern.estimate.minutes, "evidence": "prior"}
        planned_patterns.append(PlannedPattern(pattern=pattern, planned=is_planned, **time_fields))
    return ResolvedPlan(plan=plan.value, patterns=tuple(planned_patterns))


def check_plan(
    file: ParsedFile[Plan], patterns: Collection[str], plans: Iterable[str], variants: Iterable[str]
) -> list[Complaint]:
    """Mistakes of a plan that its fields' types do not tell: unknown patterns, plans and values."""
    plan, document = file.value, file.document
    complaints = []
    for index, name in enumerate(plan.patterns):
        if name not in patterns:
            place, hint = ("patterns", index), name_hint(name, patterns)
            complaints += [complain(document, place, "a pattern's name", repr(name), hint)]
    readable_always = {"target", "device", *(f"plan.{name}" for name in plan.parameters)}
    # A variant that is named like another value has no findings of its own.
    other_names = {"session", "plan", "target", "device"}
    other_names |= {name.partition(".")[0] for name in FINDING_NAMES}
    readable_after_steps = {*readable_always, *SESSION_NAMES, *FINDING_NAMES}
    for name in set(variants) - other_names:
        readable_after_steps |= {f"{name}.ratio", f"{name}.right"}
    # Before the first step:
    machine_names = [f"machine.{name}" for name in Machine.model_fields]
    revision_names = [f"revision.{name}" for name in Revision.model_fields]
    readable_before = {*readable_always, "variants", "emulated", *machine_names, *revision_names}
    for key, text, readable in (
        ("success", plan.success, readable_after_steps),
        ("stop_if", plan.stop_if, readable_after_steps),
        ("requires", plan.requires, readable_before),
    ):
        complaints += check_expression(document, (key,), text, readable) if text is not None else []
    fallback, other_names = plan.otherwise, {*patterns, *plans} - {plan.name, *plan.patterns}
    if fallback and fallback not in other_names:
        expected, hint = "the name of another pattern or plan", name_hint(fallback, other_names)
        complaints.append(complain(document, ("otherwise",), expected, repr(fallback), hint))
    return complaints


def check_pattern(
    file: ParsedFile[Pattern], patterns: Collection[str], parameters: Iterable[str]
) -> list[Complaint]:
    """Mistakes of a pattern that its fields' types do not tell. `parameters`: those of the plan."""
    readable = ALWAYS_READABLE | SESSION_NAMES | {f"plan.{name}" for name in parameters}
    document, complaints, ids = file.document, list[Complaint](), set[str]()
    for index, step in enumerate(file.value.steps):
        place, action = ("steps", index), ACTIONS.get(step.action)
        if step.id in ids | RESERVED_IDS:
            complaints.append(complain(document, (*place, "id"), "an id of its own", repr(step.id)))
        ids.add(step.id)
        if action is None:
            path, hint = (*place, "action"), name_hint(step.action, ACTIONS)
            complaints += [complain(document, path, "an action's name", repr(step.action), hint)]
        else:
            try:
                parse(action.arguments, document, (*place, "with"))
            except DefinitionError as error:
                complaints += error.complaints
        if step.when is not None:
            complaints += check_expression(document, (*place, "when"), step.when, readable)
        # A step's own gate may read its output, and so may all later steps.
        fields = action.output.model_fields if action else ()
        readable |= {f"{step.id}.{field}" for field in fields} or {step.id}
        if step.gate is not None:
            complaints += check_expression(document, (*place, "gate"), step.gate, readable)
    for index, rule in enumerate(file.value.next):
        if rule.pattern not in patterns:
            path, hint = ("next", index, "pattern"), name_hint(rule.pattern, patterns)
            complaints += [complain(document, path, "a pattern's name", repr(rule.pattern), hint)]
        complaints += check_expression(document, ("next", index, "when"), rule.when, readable)
    return complaints


@dataclass(frozen=True)
class SessionRequest:
    """Options of `loop run session`, `run pattern` and `optimize`, most under their names there."""

    plan: str | None = None  # Name of a plan; `baseline` when none is named.
    pattern: str | None = None
    target: Path | None = None
    device: str = "auto"
    variants: Sequence[str] = field(default_factory=tuple)
    threads: int | None = None
    seed: int | None = None
    limits: SessionLimits = field(default_factory=SessionLimits)
    stated_ai_usd: float | None = None  # AI cost stated by the user: nothing measures it.
    campaign: Campaign = field(default_factory=Campaign)  # Who proposes changes, and its limits.
    attended: bool = False  # Whether an engineer watches, so that engineer time is charged.
    hypothesis: str = ""
    decline: bool = False  # Whether to end a session that waits for a change, without it.
    again: bool = False  # Whether to try a change again that lost in an earlier session.
    dry_run: bool = False
    json: bool = False
    events: bool = False


def resolve_request(request: SessionRequest, setting: Setting) -> ResolvedPlan:
    """The requested plan with all patterns it can reach, and only workload sets that the target
    has, else its first. A single pattern becomes a plan of its own. DefinitionError for mistakes,
    also if a project's own plan has a set that the target lacks; UsageError for unknown names."""
    target, own_folder = setting.target, setting.project.definitions_folder("plans")
    first_set = next(iter(target.workloads))
    if request.pattern:
        pattern = definitions.choose(setting.patterns, request.pattern, "pattern")
        plan = Plan(
            format=1,
            name=request.pattern,
            title=f"Run the pattern: {pattern.value.title}",
            patterns=(request.pattern,),
            workloads=(first_set,),
            budget=TimeBudget(minutes=pattern.value.estimate.minutes),
        )
        plan_file = definitions.ParsedFile(plan, Document(plan.name), pattern.path)
    else:
        plan_file = definitions.choose(setting.plans, request.plan or "baseline", "plan")
    sets = plan_file.value.workloads
    missing = [name for name in sets if name not in target.workloads]
    if missing and own_folder is not None and plan_file.path.is_relative_to(own_folder):
        place = ("workloads", sets.index(missing[0]))
        expected = f"one of the sets of target {target.name} ({', '.join(target.workloads)})"
        raise DefinitionError([complain(plan_file.document, place, expected, repr(missing[0]))])
    known_sets = tuple(name for name in sets if name in target.workloads) or (first_set,)
    plan = plan_file.value.model_copy(update={"workloads": known_sets})
    plan_file = replace(plan_file, value=plan)
    return resolve_plan(plan_file, setting.patterns, setting.plans, target.variants)


def make_head(request: SessionRequest, setting: Setting, resolved: ResolvedPlan) -> SessionHead:
    """The head of a session, still without an id and a prediction: all that is known before the
    first step. Without a requested seed, a random one below 2^24."""
    device = choosing.choose_device(request.device, setting.target, request.variants)
    sender = read_sender()
    target_folder = "bundled" if setting.project.bundled else str(setting.project.target)
    if sender and sender.target:
        target_folder = sender.target  # On the machine of the user.
    return SessionHead(
        id="",
        started=datetime.datetime.now(datetime.UTC),
        plan=resolved,
        target=setting.target.name,
        target_folder=target_folder,
        host=sender.name if sender else "",
        baseline=setting.target.baseline.python,
        variants=choosing.choose_variants(request.variants, setting.target, device),
        roles={name: v.role for name, v in setting.target.variants.items() if v.role != "main"},
        emulated=choosing.choose_emulated(request.variants, setting.target, device),
        device=device,
        threads=choosing.choose_threads(request.threads),
        seed=random.SystemRandom().randrange(1 << 24) if request.seed is None else request.seed,
        attended=request.attended,
        campaign=request.campaign,
        hypothesis=request.hypothesis.strip(),
        **targets.session_hashes(setting.project),
        revision=read_revision(setting.project.target),
        machine=machine(),
        loop_version=loop.__version__,
    )


def refuse_changes(head: SessionHead, target: Target, folder: Path, option: Path | None) -> None:
    """Raise UsageError for code changes of a target that nobody named (`option`: --target), and for
    a campaign that never calls its proposer, or that has no file which it may edit."""
    steps = (step for planned in head.plan.patterns for step in planned.pattern.steps)
    asks_for_change = any(step.action in BriefOutput.actions for step in steps)
    if asks_for_change and read_sender() is None:  # With `--on`, the sender has checked this.
        definitions.require_named_target(option, Path.cwd(), "change")
    if not head.campaign.is_unattended:
        return
    if not asks_for_change:
        hint = "leave out --plan, or give a pattern of it `change.brief`: loop patterns show tuning"
        name, proposer = head.plan.plan.name, head.campaign.proposer
        raise UsageError(f"plan {name} asks for no change: {proposer!r} is never called", hint)
    if not any(may_edit_variant(target, folder, name) for name in head.variants):
        hint = "put the variant into a file of the target's folder that does not judge it"
        names = ", ".join(head.variants) or f"nothing on {head.device}"
        raise UsageError(f"target {target.name} has {names}: no file of its own to edit", hint)


def announcement_lines(head: SessionHead) -> list[str]:
    """Target, device, expected time and goal of a session, a line each."""
    plan = head.plan.plan
    variants = f" ({', '.join(head.variants)})" if head.variants else ""
    threads = say.count(head.threads, "thread")
    texts = {
        "goal": goal_text(plan.success) if plan.success else "",
        "if the goal is missed": plan.otherwise,
        "under the emulator": ", ".join(head.emulated),
    }
    return [
        f"target {head.target}{variants} on {head.device_text}, timed with {threads}",
        f"expected: {predicted_time_text(head)}; budget: {say.seconds(60 * plan.budget.minutes)}",
        *(f"{label}: {text}" for label, text in texts.items() if text),
    ]


class PlanForecast(Printed):
    """Output of `--dry-run --json`: predicted time and cost of a session."""

    schema_version: Literal[3] = 3

    plan: str
    success: str | None
    target: str
    device: str
    variants: tuple[str, ...]
    patterns: tuple[PlannedPattern, ...]
    """Patterns of the plan and those it may branch to, each with its time."""
    predicted: Predicted | None
    unpriced_gpu: str | None
    """GPU without a price on the rate card; no predicted cost includes it."""


def show_plan(head: SessionHead, card: RateCard, screen: Screen, *, as_json: bool) -> int:
    """Print the patterns of `--dry-run` with predicted time and cost; nothing runs."""
    plan, unpriced = head.plan.plan, unpriced_gpu(card, head)
    if as_json:
        plan_facts = {"plan": plan.name, "success": plan.success, "patterns": head.plan.patterns}
        run_facts = {"target": head.target, "device": head.device, "variants": head.variants}
        prices = {"predicted": head.predicted, "unpriced_gpu": unpriced}
        screen.data(to_json(PlanForecast.model_validate({**plan_facts, **run_facts, **prices})))
        return ExitCode.OK
    rows = []
    for place, planned in enumerate(head.plan.patterns, start=1):
        steps = ", ".join(step.id for step in planned.pattern.steps)
        interval = "-"
        if planned.low_s is not None and planned.high_s is not None:
            interval = f"{say.seconds(planned.low_s)} to {say.seconds(planned.high_s)}"
        # A pattern that is not `planned` runs only if an outcome of another leads to it.
        number, aside = (str(place), "") if planned.planned else ("-", " (only as an answer)")
        times = say.seconds(planned.seconds), interval, planned.evidence
        rows.append((number, planned.pattern.name, *times, steps + aside))
    texts = {"requires": plan.requires, "stops if": plan.stop_if}
    texts["expected cost"] = predicted_cost_text(card, head)
    aims = [f"{label}: {text}" for label, text in texts.items() if text]
    for line in (f"plan {plan.name}: {plan.title}", *announcement_lines(head), *aims):
        screen.prose(line)
    screen.data("")
    screen.table(("#", "pattern", "predicted", "80 %", "from", "steps"), rows)
    if unpriced:
        screen.say(explain_missing_price(card, head.gpu))
    return ExitCode.OK
