"""`loop patterns list|show|search` and `loop plan ...`: look at definitions. Nothing here executes anything."""

from collections.abc import Mapping
from pathlib import Path

from loop.commands import statistics
from loop.documents import to_json
from loop.errors import ExitCode
from loop.library import definitions
from loop.library.definitions import Read
from loop.model.pattern import Pattern
from loop.places import project
from loop.screen import Screen, seconds_text


def _patterns(target: Path | None) -> dict[str, Read[Pattern]]:
    return definitions.patterns(project(target, Path.cwd()))


def list_patterns(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """All patterns, a row each."""
    return _show_rows(_patterns(target), screen, as_json)


def search_patterns(word: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Patterns that have all the words of `word` somewhere in their text."""
    words = word.lower().split()
    found = {n: r for n, r in _patterns(target).items() if all(w in _text(r.value) for w in words)}
    if not found and not as_json:
        screen.say(f"no pattern mentions {word!r}; `loop patterns list` shows all")
        return ExitCode.GATE_FAILED
    return _show_rows(found, screen, as_json)


def _text(pattern: Pattern) -> str:
    steps = [f"{step.title} {step.action}" for step in pattern.steps]
    notes = [note.note for note in pattern.evidence]
    return " ".join([pattern.name, pattern.title, pattern.problem, *pattern.use_when, *steps, *notes]).lower()


def _show_rows(found: Mapping[str, Read[Pattern]], screen: Screen, as_json: bool) -> int:
    if as_json:
        rows = [_summary(read.value) for read in found.values()]
        screen.data(to_json({"schema_version": 1, "patterns": rows}))
        return ExitCode.OK
    screen.table(
        ("#", "", "pattern", "steps", "answers"),
        [(p.number, p.priority, p.name, len(p.steps), p.problem) for p in (r.value for r in found.values())],
    )
    return ExitCode.OK


def _summary(pattern: Pattern) -> dict[str, object]:
    keep = {"name", "number", "title", "priority", "problem", "use_when"}
    return {**pattern.model_dump(mode="json", include=keep), "steps": len(pattern.steps)}


def show_pattern(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One pattern in full."""
    read = definitions.choose(_patterns(target), name, "pattern")
    pattern = read.value
    shown = statistics.gather(project(target, Path.cwd()), {name: read})[name]
    if as_json:
        fields = {"schema_version": 1, "file": str(read.path), **pattern.model_dump(mode="json")}
        screen.data(to_json({**fields, "statistics": statistics.as_fields(shown)}))
        return ExitCode.OK
    screen.data(f"{pattern.number}. {pattern.title} ({pattern.name}, {pattern.priority})\n\n{pattern.problem}\n")
    screen.data(f"use when: {', '.join(pattern.use_when)}")
    screen.data(f"takes about {seconds_text(pattern.estimate.minutes * 60)}")
    if pattern.without is not None:
        minutes = f"{pattern.without.minutes:g} min" if pattern.without.minutes else "see the history"
        screen.data(f"without it: {minutes} ({pattern.without.evidence})")
    screen.data("")
    rows = [(step.id, step.action, f"{step.budget_s:g} s", step.title) for step in pattern.steps]
    screen.table(("step", "action", "budget", "what"), rows)
    for answer in pattern.next:
        screen.data(f"\nwhen {answer.when}: {answer.pattern}")
    if pattern.evidence:
        screen.data("")
        screen.table(("session", "evidence"), [(e.session, e.note) for e in pattern.evidence])
    screen.data("\n" + "\n".join(statistics.lines(shown)))
    screen.data(f"\n{read.path}\nrun it: loop run pattern {pattern.name}")
    return ExitCode.OK


def list_plans(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """All plans, a row each."""
    found = definitions.plans(project(target, Path.cwd()))
    if as_json:
        screen.data(to_json({"schema_version": 1, "plans": [read.value for read in found.values()]}))
        return ExitCode.OK
    rows = [(p.name, len(p.patterns), f"{p.budget.minutes:g}", p.title) for p in (r.value for r in found.values())]
    screen.table(("plan", "patterns", "min", "objective"), rows)
    return ExitCode.OK


def show_plan(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One plan."""
    read = definitions.choose(definitions.plans(project(target, Path.cwd())), name, "plan")
    plan = read.value
    if as_json:
        screen.data(to_json({"schema_version": 1, "file": str(read.path), **plan.model_dump(mode="json")}))
        return ExitCode.OK
    screen.data(f"{plan.name}: {plan.title}\n")
    screen.table(("#", "pattern"), list(enumerate(plan.patterns, start=1)))
    screen.data(f"\nworkloads {', '.join(plan.workloads)}; checks {', '.join(plan.checks) or 'none'}")
    screen.data(f"{read.path}\nrun it: loop run session {plan.name}")
    return ExitCode.OK
