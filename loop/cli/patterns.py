"""`loop patterns ...`, `loop plan list`: prints and checks definitions; executes nothing."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from loop.actions import ACTIONS
from loop.base.documents import write_atomic
from loop.base.documents.schemas import schema_of, schema_of_all
from loop.base.errors import Complaint, DefinitionError, ExitCode, Failed, UsageError
from loop.base.places import PACKAGE
from loop.cli.command import ALL
from loop.library import definitions, targets
from loop.library.definitions import find_project
from loop.library.rates import INHERITED_FIELDS, rates
from loop.model.base import Model, Printed
from loop.model.history import History
from loop.model.money import RateCard
from loop.model.plan import Pattern, Plan
from loop.model.target import Target
from loop.report import format as say
from loop.report.screen import Screen
from loop.session.closing import ExportedSession
from loop.session.opening import check_pattern, check_plan
from loop.session.recorded import read_histories
from loop.steps.setting import read_setting
from loop.store import sessions

# JSON Schemas that ship with loop, by file name.
SCHEMAS: dict[str, type[Model]] = {"pattern": Pattern, "plan": Plan, "target": Target}
SCHEMAS |= {"rates": RateCard, "history": History, "report": ExportedSession}
PRINTED = "commands"  # Name of the schema of what each command prints with `--json`.
NAMES = (*SCHEMAS, PRINTED)
WORD = re.compile(r"[^\W_]+")
SHORTEST_WORD = 3  # Fewest letters of a word that counts, if any has so many: `is` is everywhere.
SEARCHED_SESSIONS = 50  # How many sessions a search includes: their error messages may match.


class PatternRow(Model):
    """A row of the list of patterns."""

    name: str
    number: int
    title: str
    problem: str
    use_when: tuple[str, ...]
    priority: str
    steps: int  # Their number.


class PatternList(Printed):
    """What `loop patterns list --json` prints. Results of a search are sorted, best first."""

    patterns: tuple[PatternRow, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        if not self.patterns:
            screen.say("no pattern mentions that; `loop patterns list` shows all")
            return
        rows = [
            (row.number, row.priority, row.name, row.steps, row.problem) for row in self.patterns
        ]
        screen.table(("#", "", "pattern", "steps", "answers"), rows)
        screen.say("the steps of one: loop patterns show NAME")


def list_patterns(
    words: Sequence[str], target: Path | None, screen: Screen
) -> tuple[PatternList, int]:
    """All patterns; with words, those with all of them; if none has all, those with most. Error
    messages of recent sessions count, too. The exit code is 1 if none matches."""
    here = find_project(target, Path.cwd())
    patterns = {name: read.value for name, read in definitions.patterns(here).items()}
    names = list(patterns)
    if words:
        texts: dict[str, str] = {}
        recent_rows = sessions.rows(here.sessions, last=SEARCHED_SESSIONS)
        recent_failures = [failure for row in recent_rows for failure in row.failures]
        for name, pattern in patterns.items():
            parts = [name, pattern.title, pattern.problem, *pattern.use_when]
            parts += [failure.text for failure in recent_failures if failure.pattern == name]
            for step in pattern.steps:
                parts += [step.id, step.title, step.action, step.mend or ""]
            texts[name] = " ".join([*parts, *(evidence.note for evidence in pattern.evidence)])
        names, matched_count, term_count = search(" ".join(words), texts)
        if names and matched_count < term_count:
            screen.say(f"no pattern has all of these words; with {matched_count} of {term_count}:")
    rows = []
    for pattern in (patterns[name] for name in names):
        values = {name: getattr(pattern, name) for name in PatternRow.model_fields}
        rows.append(PatternRow(**{**values, "steps": len(pattern.steps)}))
    return PatternList(patterns=tuple(rows)), ExitCode.OK if rows else ExitCode.GATE_FAILED


class ShownPattern(Printed, Pattern):
    """What `loop patterns show --json` prints."""

    schema_version: int = 5
    file: str

    def show(self, screen: Screen) -> None:
        """Print the pattern's fields and steps."""
        title = f"{self.number}. {self.title} ({self.name}, {self.priority})"
        screen.prose(f"{title}\n\n{self.problem}\n\n")
        screen.prose(f"use when: {', '.join(self.use_when)}")
        screen.prose(f"takes about {say.seconds(self.estimate.minutes * 60)}\n\n")
        rows = [(step.id, step.action, f"{step.budget_s:g} s", step.title) for step in self.steps]
        screen.table(("step", "action", "budget", "what"), rows)
        for answer in self.next:
            screen.prose(f"\nwhen {answer.when}: {answer.pattern}")
        if self.evidence:
            screen.data("")
            screen.table(("session", "evidence"), [(e.session, e.note) for e in self.evidence])
        screen.data(f"\n{self.file}\nrun it: loop run pattern {self.name}")


def show_pattern(name: str, target: Path | None) -> ShownPattern:
    """A pattern, and the file that defines it. Raises LoopError for an unknown name."""
    patterns = definitions.patterns(find_project(target, Path.cwd()))
    file = definitions.choose(patterns, name, "pattern")
    return ShownPattern(file=str(file.path), **dict(file.value))


class PlanList(Printed):
    """The plans of a project."""

    plans: tuple[Plan, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        rows = []
        for plan in self.plans:
            rows.append((plan.name, len(plan.patterns), f"{plan.budget.minutes:g}", plan.title))
        screen.table(("plan", "patterns", "min", "objective"), rows)


def list_plans(target: Path | None) -> PlanList:
    """The plans of a project."""
    plans = definitions.plans(find_project(target, Path.cwd()))
    return PlanList(plans=tuple(read.value for read in plans.values()))


class CheckedDefinitions(Printed):
    """What `loop patterns check --json` prints."""

    ok: bool
    complaints: tuple[str, ...]
    """The mistakes, each with file, line and column."""
    _checked: int = PrivateAttr(0)

    def show(self, screen: Screen) -> None:
        """Print a mistake per line, or how many patterns, plans, target and rate card are right."""
        screen.data("\n".join(self.complaints) or f"{self._checked} definitions, no complaints")


def check_definitions(path: Path | None, target: Path | None) -> tuple[CheckedDefinitions, int]:
    """Check one file or folder, or (None) all that a project defines: mistakes, and exit code."""
    mistakes, count = list[Complaint](), 0
    try:
        if path is not None:
            count = _check_file(path, target)
        else:
            setting = read_setting(target)
            rates(setting.project)
            read_histories()
            for pattern in setting.patterns.values():
                mistakes += check_pattern(pattern, setting.patterns, {})
            variants = setting.target.variants
            for plan in setting.plans.values():
                mistakes += check_plan(plan, setting.patterns, setting.plans, variants)
            count = len(setting.patterns) + len(setting.plans) + 2  # The target and the rate card.
    except DefinitionError as error:
        mistakes += error.complaints
    answer = CheckedDefinitions(ok=not mistakes, complaints=tuple(map(str, mistakes)))
    answer._checked = count
    return answer, ExitCode.USAGE if mistakes else ExitCode.OK


def _check_file(path: Path, target: Path | None) -> int:
    """Check a file, or all YAML files of a folder. Returns the number of files.
    `target.yaml` is a target, a file in a folder `plans` is a plan, any other is a pattern. A plan
    or pattern below a target's folder belongs to that target. Raises DefinitionError."""
    if path.is_dir():
        files = sorted(path.glob("*.yaml"))
        if not files:
            raise UsageError(f"{path}: no .yaml file there")
        return sum(_check_file(file, target) for file in files)
    if path.name == "target.yaml":
        targets.read_target(find_project(path, Path.cwd()))
        return 1
    grandparent = path.resolve().parent.parent  # Of my-kernel/patterns/mine.yaml, my-kernel.
    if target is None and (grandparent / "target.yaml").is_file():
        target = grandparent
    if path.parent.name == "plans":
        plan, setting = definitions.read_file(path, Plan), read_setting(target)
        plan_names = {*setting.plans, plan.value.name}
        complaints = check_plan(plan, setting.patterns, plan_names, setting.target.variants)
    else:
        pattern = definitions.read_file(path, Pattern)
        known = definitions.patterns(find_project(target, Path.cwd()))
        complaints = check_pattern(pattern, {**known, pattern.value.name: pattern}, {})
    if complaints:
        raise DefinitionError(complaints)
    return 1


def schema_text(name: str) -> str:
    """One JSON Schema as text. `name`: one of `NAMES`; `commands` is what each prints as JSON."""
    if name == PRINTED:
        types: dict[str, Any] = {"error": Failed}
        for command in ALL:
            if "json" in command.parameter_names:
                types[command.words] = command.json_type
        schema = schema_of_all(types)
    else:
        schema = schema_of(SCHEMAS[name])
    if name == "pattern":
        step = schema["$defs"]["Step"]["properties"]
        step["action"] = {**step["action"], "enum": list(ACTIONS)}
    if name == "rates":  # A project may leave these fields to the shipped card.
        required = schema["required"]
        schema["required"] = [field for field in required if field not in INHERITED_FIELDS]
    return re.sub(r"\n {3,}", " ", json.dumps(schema, indent=1)) + "\n"  # One line per definition.


def show_schema(name: str, screen: Screen, *, write: bool) -> None:
    """Print one JSON Schema; with `write`, write all of them into the package."""
    if name not in NAMES:
        raise UsageError(f"no schema {name!r}", hint=f"there are {', '.join(NAMES)}")
    screen.data("\n".join(map(str, write_schemas())) if write else schema_text(name))


def write_schemas() -> list[Path]:
    """Write all schemas into `loop/schema`; hatch_build.py calls this, too. Returns their paths."""
    folder = PACKAGE / "schema"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.json" for name in NAMES]
    for path in paths:
        write_atomic(path, schema_text(path.stem))
    return paths


def search(query: str, texts: Mapping[str, str]) -> tuple[list[str], int, int]:
    """Names of the entries with most words of a query, how many each has, and how many words count.
    `texts`: name to an entry's text. A word also matches the beginning of a longer one."""
    terms = list(dict.fromkeys(WORD.findall(query.lower())))
    terms = [term for term in terms if len(term) >= SHORTEST_WORD] or terms
    count_by_name: dict[str, int] = {}
    for name, text in texts.items():
        words = WORD.findall(text.lower())
        count_by_name[name] = sum(any(word.startswith(term) for word in words) for term in terms)
    most = max(count_by_name.values(), default=0)
    names = [name for name, count in count_by_name.items() if most and count == most]
    return names, most, len(terms)
