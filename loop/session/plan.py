"""Resolve a plan before anything runs: every pattern it could reach is read, checked and priced in time."""

from collections.abc import Collection, Iterator, Mapping

from loop.actions import ACTIONS
from loop.base.documents import Complaint, Document, complain, parse
from loop.base.errors import DefinitionError
from loop.base.expressions import WORDS
from loop.library.definitions import Read, check_expression, hint_for, unknown_patterns
from loop.model.pattern import Pattern, Step
from loop.model.plan import Plan, PlannedPattern, ResolvedPlan
from loop.session.objective import found_names, required_names

SESSION_NAMES = {
    f"session.{name}"
    for name in ("minutes", "usd", "overrun", "speedup", "wrong", "regressed", "unverified", "unemulated")
}
ALWAYS_KNOWN = {"failed", "passed", "target", "device"}
RESERVED = ALWAYS_KNOWN | {"session", "plan"} | WORDS
"""A step of such a name could never be read by an expression."""


def resolve(
    plan: Read[Plan],
    patterns: Mapping[str, Read[Pattern]],
    plans: Collection[str] = (),
    variants: Collection[str] = (),
) -> ResolvedPlan:
    """The plan with every pattern it could reach, each with its author's estimate.

    `plans`, `variants`: names that it may give. Raises DefinitionError with all complaints at once.
    """
    complaints = check_plan(plan, patterns, plans, variants)
    more = (plan.value.otherwise,) if plan.value.otherwise else ()
    reached = list(dict.fromkeys(name for name in (*plan.value.patterns, *more) if name in patterns))
    for name in reached:  # Grows while it is walked: what the outcomes of a pattern could lead to comes last.
        answers = (answer.pattern for answer in patterns[name].value.next)
        reached += [answer for answer in answers if answer in patterns and answer not in reached]
        complaints += check_pattern(patterns[name], patterns, plan.value.parameters)
    if complaints:
        raise DefinitionError(complaints)
    return ResolvedPlan(
        plan=plan.value,
        patterns=tuple(
            PlannedPattern(
                pattern=patterns[name].value,
                planned=name in plan.value.patterns,
                seconds=60 * patterns[name].value.estimate.minutes,
                evidence="prior",
            )
            for name in reached
        ),
    )


def check_plan(
    read: Read[Plan], patterns: Mapping[str, object], plans: Collection[str], variants: Collection[str]
) -> list[Complaint]:
    """Everything wrong with a plan itself that its own types cannot say."""
    return [*unknown_patterns(read, patterns), *_check_objective(read, {*patterns, *plans}, variants)]


def _check_objective(read: Read[Plan], answers: Collection[str], variants: Collection[str]) -> Iterator[Complaint]:
    """Expressions over known names, phases that begin with patterns of the plan, an answer that is there."""
    plan, document = read.value, read.document
    always = {"target", "device", *(f"plan.{name}" for name in plan.parameters)}
    names = {*always, *SESSION_NAMES, *found_names(variants)}
    for place, text, known in (
        ("success", plan.success, names),
        ("stop_if", plan.stop_if, names),
        ("requires", plan.requires, {*always, *required_names()}),
    ):
        if text is not None:
            yield from check_expression(document, (place,), text, known)
    if plan.otherwise in (plan.name, *plan.patterns):
        expected = "a plan or a pattern other than this plan and its patterns"
        yield complain(document, ("otherwise",), expected, repr(plan.otherwise))
    elif plan.otherwise and plan.otherwise not in answers:
        hint = hint_for(plan.otherwise, answers)
        yield complain(document, ("otherwise",), "the name of a pattern or a plan", repr(plan.otherwise), hint)
    yield from _check_phases(read)


def _check_phases(read: Read[Plan]) -> Iterator[Complaint]:
    """Each begins further on in the plan than the one before it; together they take no more than the plan."""
    plan, document = read.value, read.document
    rest = list(plan.patterns)
    for index, phase in enumerate(plan.phases):
        allowed = rest if index else rest[:1]
        if phase.first not in allowed:
            expected = f"a pattern of the plan, from {rest[0]} on" if index and rest else "its first pattern"
            yield complain(document, ("phases", index, "first"), expected, repr(phase.first))
            return
        rest = rest[rest.index(phase.first) + 1 :]
        if phase.name in [before.name for before in plan.phases[:index]]:
            yield complain(document, ("phases", index, "name"), "a name of its own", repr(phase.name))
        if plan.patterns.count(phase.first) > 1:
            expected = "a pattern that the plan lists once"
            yield complain(document, ("phases", index, "first"), expected, repr(phase.first))
    minutes = sum(phase.minutes for phase in plan.phases)
    if minutes > plan.budget.minutes * (1 + 1e-9):
        expected = f"at most {plan.budget.minutes:g} minutes in all, the plan's budget"
        yield complain(document, ("phases",), expected, f"{minutes:g}")


def check_pattern(
    read: Read[Pattern], patterns: Mapping[str, Read[Pattern]], parameters: Mapping[str, object]
) -> list[Complaint]:
    """Everything wrong with a pattern that its own types cannot say."""
    names = ALWAYS_KNOWN | SESSION_NAMES | {f"plan.{name}" for name in parameters}
    complaints: list[Complaint] = []
    ids: set[str] = set()
    for index, step in enumerate(read.value.steps):
        place = ("steps", index)
        if step.id in ids | RESERVED:
            complaints.append(complain(read.document, (*place, "id"), "an id of its own", repr(step.id)))
        ids.add(step.id)
        complaints += _check_step(read.document, place, step, names)
        names |= _fields(step)
    for index, answer in enumerate(read.value.next):
        place = ("next", index)
        if answer.pattern not in patterns:
            close = hint_for(answer.pattern, patterns)
            complaints.append(
                complain(read.document, (*place, "pattern"), "the name of a pattern", repr(answer.pattern), close)
            )
        complaints += check_expression(read.document, (*place, "when"), answer.when, names)
    return complaints


def _check_step(
    document: Document, place: tuple[str | int, ...], step: Step, names: set[str]
) -> Iterator[Complaint]:
    action = ACTIONS.get(step.action)
    if action is None:
        hint = hint_for(step.action, ACTIONS)
        yield complain(document, (*place, "action"), "the name of an action", repr(step.action), hint)
    else:
        try:
            parse(action.arguments, document, (*place, "with"))
        except DefinitionError as error:
            yield from error.complaints
    if step.when is not None:
        yield from check_expression(document, (*place, "when"), step.when, names)
    if step.gate is not None:
        yield from check_expression(document, (*place, "gate"), step.gate, names | _fields(step))


def _fields(step: Step) -> set[str]:
    """The dotted names that a step's output adds."""
    action = ACTIONS.get(step.action)
    return {f"{step.id}.{field}" for field in action.output.model_fields} if action else {step.id}
