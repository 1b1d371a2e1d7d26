"""Commands as tools: name, arguments, annotations, results; and tools that no command line needs."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from loop.base.documents import did_you_mean
from loop.base.documents.schema import Untitled
from loop.base.errors import UsageError
from loop.base.screen import Screen
from loop.cli import ALL
from loop.cli.command import Command, default_of, flag_of
from loop.driving import changes, jobs
from loop.model.campaign import PERSON, TUNER

FORMS = ("json", "events", "as_markdown", "form", "output", "limit", "link", "dry_run")
"""Parameters that say where and how a result is printed: no tool but for a dry run."""
UNATTENDED = ("width", "proposer_minutes", "quiet_minutes", "max_tokens", "ai_usd", "watch_preemption")
"""Parameters for a proposer that is a program, or for whoever pays: nobody has to choose them here."""
PERSONS = (
    "command",
    "probe",
    "probe_limit_s",
    "env",
    "evaluator",
    "evaluator_python",
    "on",
    "keep_until",
    "executor",
)
"""Parameters that name a program, open the environment to one, or spend money: only a person gives them."""
WAIT = "wait_s"
WAITED_S = 30.0
JOB = "loop.driving.jobs:JobState"
OWN = (
    Command("job status", jobs.job_status, result=JOB, agents="reads"),
    Command("job wait", jobs.job_wait, result=JOB, agents="reads"),
    Command("job cancel", jobs.job_cancel, result=JOB, agents="ends"),
    Command("change brief", changes.change_brief, result="loop.driving.changes:AskedChange", agents="reads"),
    Command("change edit", changes.change_edit, result="loop.driving.changes:Edited", agents="edits"),
)
"""Tools that no command line needs: jobs, and a change that is made without a shell."""


@dataclass(frozen=True)
class Tool:
    """One command, as agents call it."""

    command: Command

    @property
    def name(self) -> str:
        """Its words, joined."""
        return self.command.words.replace(" ", "_").replace("-", "_")

    @property
    def starts(self) -> bool:
        """Whether it starts work that may outlast the call."""
        return self.command.agents == "starts"

    @property
    def parameters(self) -> dict[str, Parameter]:
        """What it takes, by name."""
        hidden = {*FORMS, *UNATTENDED, *PERSONS} - ({"dry_run"} if self.starts else set())
        return {parameter.name: parameter for parameter in self.command.parameters if parameter.name not in hidden}

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The arguments as a model; nothing else is taken."""
        fields: dict[str, Any] = {name: _field(name, parameter) for name, parameter in self.parameters.items()}
        if self.starts:
            text = "Wait so long for the end; after that `job_wait` goes on waiting."
            fields[WAIT] = (float, Field(WAITED_S, ge=0, le=jobs.LONGEST_WAIT_S, description=text))
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """What it answers, in JSON Schema."""
        kind = self.command.printed
        if not self.starts:
            return {
                "type": "object",
                **TypeAdapter(kind).json_schema(mode="serialization", schema_generator=Untitled),
            }
        result: Any = (kind | None, None)
        model = create_model("Job", __base__=jobs.JobState, __doc__=jobs.JobState.__doc__, result=result)
        return model.model_json_schema(mode="serialization", schema_generator=Untitled)

    @property
    def input_schema(self) -> dict[str, Any]:
        """What it takes, in JSON Schema."""
        schema: dict[str, Any] = self.arguments.model_json_schema(schema_generator=Untitled)
        return schema

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Its arguments, checked. Raises UsageError that says which one is wrong, and what it takes."""
        try:
            return dict(self.arguments.model_validate(dict(values)))
        except ValidationError as error:
            first = error.errors()[0]
            raise self._wrong(str(first["loc"][0]) if first["loc"] else "", first, values) from error

    def _wrong(self, name: str, error: Any, values: Mapping[str, Any]) -> UsageError:
        if name in PERSONS and name in {parameter.name for parameter in self.command.parameters}:
            return UsageError(
                f"{self.name}: `{name}` names what runs, so only a person may give it",
                hint=f"a person runs: loop {self.command.words} {option_of(self.command, name)} ...",
            )
        if error["type"] == "extra_forbidden":
            known = ", ".join(self.arguments.model_fields)
            return UsageError(
                f"{self.name}: there is no argument `{name}`",
                hint=did_you_mean(name, list(self.arguments.model_fields)) or f"it takes {known or 'none'}",
            )
        field = self.arguments.model_fields.get(name)
        hint = f"{name}: {field.description}" if field else f"its input schema lists {self.name}'s arguments"
        if name == "proposer":
            hint = f"be the proposer yourself ({PERSON}), or a person runs: loop optimize --proposer '...'"
        got = f", got {values[name]!r}" if name in values else ""
        return UsageError(f"{self.name}: {name}: {error['msg'].lower()}{got}"[:400], hint=hint)

    def call(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Do what only reads, in this process; what `--json` prints."""
        out = io.StringIO()
        defaults = {parameter.name: default_of(parameter) for parameter in self.command.parameters}
        json_too = {"json": True} if "json" in defaults else {}
        self.command.call({**defaults, **values, **json_too}, Screen(out, io.StringIO(), quiet=True))
        answer = json.loads(out.getvalue())
        assert isinstance(answer, dict)
        return answer

    def words(self, values: Mapping[str, Any]) -> list[str]:
        """What follows `loop` on the command line that does the same."""
        names = {parameter.name for parameter in self.command.parameters}
        form = "events" if "events" in names and not values.get("dry_run") else "json"
        return self.command.words_of({**{name: values[name] for name in self.parameters}, form: True})


def tools() -> dict[str, Tool]:
    """Every tool by its name."""
    rows = (Tool(command) for command in (*ALL, *OWN) if command.agents)
    return {row.name: row for row in rows}


def chosen(name: str, known: Mapping[str, Tool]) -> Tool:
    """The tool of this name. Raises UsageError for a name that is none, and for what only a person does."""
    if name in known:
        return known[name]
    for command in ALL:
        if Tool(command).name == name:
            raise UsageError(
                f"`loop {command.words}` is for a person", hint=f"a person runs: loop {command.words}"
            )
    kin = [other for other in known if other.split("_")[0] == name.split("_")[0]]
    hint = did_you_mean(name, list(known)) or f"there are {', '.join(kin or known)}"
    raise UsageError(f"there is no tool {name!r}", hint=hint)


def option_of(command: Command, name: str) -> str:
    """The flag of a parameter by its name; empty for what is given by its place."""
    return next(flag_of(parameter) for parameter in command.parameters if parameter.name == name)


def _field(name: str, parameter: Parameter) -> Any:
    option = parameter.annotation.__metadata__[0]
    kind = Literal["person", "tuner"] if name == "proposer" else parameter.annotation.__origin__
    assert {PERSON, TUNER} == {"person", "tuner"}
    default = ... if parameter.default is Parameter.empty else parameter.default
    text = "Who proposes changes: you (`person`: it pauses with a brief), or a search of values (`tuner`)."
    return kind, Field(
        default, description=text if name == "proposer" else option.help, ge=option.min, le=option.max
    )
