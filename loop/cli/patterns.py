"""`loop patterns show`, `loop plan list`: look at definitions; nothing executes."""

import json
import re
from pathlib import Path
from typing import Any

from loop.actions import ACTIONS
from loop.base.documents import to_json, write_atomic
from loop.base.documents.schemas import schema_of, schema_of_all
from loop.base.errors import DefinitionError, ExitCode, Failed, UsageError
from loop.base.places import PACKAGE, project
from loop.base.screen import Screen, seconds_text
from loop.cli.command import ALL
from loop.learning.prediction import PatternStatistics, gather, lines
from loop.library import definitions, targets
from loop.library.rates import TAKEN, rates
from loop.model.base import Model, Printed
from loop.model.exported import ExportedSession
from loop.model.history import History
from loop.model.money import RateCard
from loop.model.plan import Pattern, Plan
from loop.model.target import Target
from loop.session.opening import check_pattern, check_plan
from loop.session.recorded import histories
from loop.steps.setting import read_setting


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


SCHEMAS: dict[str, type[Model]] = {
    "pattern": Pattern,
    "plan": Plan,
    "target": Target,
    "rates": RateCard,
    "history": History,
    "report": ExportedSession,
}
"""JSON Schemas that ship with loop, by file name."""
PRINTED = "commands"
"""The schema of what all commands print with `--json`."""
NAMES = (*SCHEMAS, PRINTED)


class CheckedDefinitions(Printed):
    """Whether definitions are what they have to be."""

    ok: bool
    """Whether there is no complaint."""
    complaints: tuple[str, ...]
    """Each with file, line and column."""


def check_definitions(path: Path | None, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Check one file, or everything the project defines; complaints to stdout, one a line."""
    complaints: tuple[str, ...] = ()
    try:
        if path is not None:
            checked = _check_file(path, target)
        else:
            setting = read_setting(target)
            rates(setting.project)
            histories()
            mistakes = [c for read in setting.patterns.values() for c in check_pattern(read, setting.patterns, {})]
            for plan in setting.plans.values():
                mistakes += check_plan(plan, setting.patterns, setting.plans, setting.target.variants)
            if mistakes:
                raise DefinitionError(mistakes)
            checked = len(setting.patterns) + len(setting.plans) + 2
        text = f"{checked} definitions, no complaints"
    except DefinitionError as error:
        complaints = tuple(str(complaint) for complaint in error.complaints)
        text = "\n".join(complaints)
    screen.data(to_json(CheckedDefinitions(ok=not complaints, complaints=complaints)) if as_json else text)
    return ExitCode.USAGE if complaints else ExitCode.OK


def _check_file(path: Path, target: Path | None) -> int:
    """How many files there are: each a pattern, unless it is a target or plan by name or place.

    A plan or pattern below a target's own folder is that target's. Raises DefinitionError.
    """
    if path.is_dir():
        files = sorted(path.glob("*.yaml"))
        if not files:
            raise UsageError(f"{path}: no .yaml file there")
        return sum(_check_file(file, target) for file in files)
    around = path.resolve().parent.parent
    target = target or (around if (around / "target.yaml").is_file() else None)
    if path.name == "target.yaml":
        targets.target(project(path, Path.cwd()))
        return 1
    if path.parent.name == "plans":
        plan, setting = definitions.read_file(path, Plan), read_setting(target)
        plans = {*setting.plans, plan.value.name}
        complaints = check_plan(plan, setting.patterns, plans, setting.target.variants)
    else:
        read = definitions.read_file(path, Pattern)
        known = {**definitions.patterns(project(target, Path.cwd())), read.value.name: read}
        complaints = check_pattern(read, known, {})
    if complaints:
        raise DefinitionError(complaints)
    return 1


def schema_text(name: str) -> str:
    """One JSON Schema as it is stored."""
    if name == PRINTED:
        printed: dict[str, Any] = {command.words: command.printed for command in ALL if command.result}
        schema = schema_of_all({**printed, "error": Failed})
    else:
        schema = schema_of(SCHEMAS[name])
    if name == "pattern":
        step = schema["$defs"]["Step"]["properties"]
        step["action"] = {**step["action"], "enum": list(ACTIONS)}
    if name == "rates":  # A project's own card takes the rest from the shipped one.
        schema["required"] = [field for field in schema["required"] if field not in TAKEN]
    return re.sub(r"\n {3,}", " ", json.dumps(schema, indent=1)) + "\n"  # A definition a line.


def show_schema(name: str, write: bool, screen: Screen) -> None:
    """Print one JSON Schema, or write all of them where the bundled files point."""
    if name not in NAMES:
        raise UsageError(f"no schema {name!r}", hint=f"there are {', '.join(NAMES)}")
    if not write:
        screen.data(schema_text(name))
        return
    screen.data("\n".join(map(str, write_schemas())))


def write_schemas() -> list[Path]:
    """Write all schemas where the bundled files point; also before the package is built (hatch_build.py)."""
    folder = PACKAGE / "schema"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.json" for name in NAMES]
    for path in paths:
        write_atomic(path, schema_text(path.stem))
    return paths
