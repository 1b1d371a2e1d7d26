"""`loop patterns show`, `loop plan list`: look at definitions; nothing executes."""

from pathlib import Path

from loop.base.documents import to_json
from loop.base.places import project
from loop.base.screen import Screen, seconds_text
from loop.learning.statistics import PatternStatistics, gather, lines
from loop.library import definitions
from loop.model.base import Printed
from loop.model.pattern import Pattern
from loop.model.plan import Plan


class ShownPattern(Printed, Pattern):
    """A pattern in full."""

    schema_version: int = 3
    """Number of this schema."""
    file: str
    """Where it is defined."""
    statistics: PatternStatistics
    """What sessions say of it."""


class PlanList(Printed):
    """All plans."""

    plans: tuple[Plan, ...]
    """By name."""


def show_pattern(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """One pattern in full."""
    here = project(target, Path.cwd())
    read = definitions.choose(definitions.patterns(here), name, "pattern")
    pattern, shown = read.value, gather(here, {name: read})[name]
    if as_json:
        screen.data(to_json(ShownPattern(file=str(read.path), statistics=shown, **dict(pattern))))
        return
    screen.prose(
        f"{pattern.number}. {pattern.title} ({pattern.name}, {pattern.priority})\n\n{pattern.problem}\n\n"
    )
    screen.prose(f"use when: {', '.join(pattern.use_when)}")
    screen.prose(f"takes about {seconds_text(pattern.estimate.minutes * 60)}\n\n")
    rows = [(step.id, step.action, f"{step.budget_s:g} s", step.title) for step in pattern.steps]
    screen.table(("step", "action", "budget", "what"), rows)
    for answer in pattern.next:
        screen.prose(f"\nwhen {answer.when}: {answer.pattern}")
    if pattern.evidence:
        screen.data("")
        screen.table(("session", "evidence"), [(e.session, e.note) for e in pattern.evidence])
    screen.prose("\n" + "\n".join(lines(shown)))
    screen.data(f"\n{read.path}\nrun it: loop run pattern {pattern.name}")


def list_plans(target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """All plans, a row each."""
    plans = [read.value for read in definitions.plans(project(target, Path.cwd())).values()]
    if as_json:
        screen.data(to_json(PlanList(plans=tuple(plans))))
        return
    rows = [(plan.name, len(plan.patterns), f"{plan.budget.minutes:g}", plan.title) for plan in plans]
    screen.table(("plan", "patterns", "min", "objective"), rows)
