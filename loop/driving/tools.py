"""Commands as tools: name, arguments, answers; and tools that no command line needs."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.base.screen import Screen
from loop.cli import ALL
from loop.cli.command import Command, default_of
from loop.driving import changes, jobs

HIDDEN = frozenset(
    (
        # How a result is printed.
        *("json", "events", "form", "output", "limit", "link"),
        # For a proposer that is a program, or for whoever pays.
        *("width", "proposer_minutes", "quiet_minutes", "max_tokens", "ai_usd"),
        # What names a program, opens the environment to one, or spends money.
        *("command", "probe", "probe_limit_s", "env", "evaluator", "on", "keep_until", "executor"),
    )
)
"""Parameters that no tool takes: only a person gives them."""
WAIT = "wait_s"
WAITED_S = 30.0
OWN = (
    Command("job status", jobs.job_status, agents="reads"),
    Command("job wait", jobs.job_wait, agents="reads"),
    Command("job cancel", jobs.job_cancel, agents="ends"),
    Command("change brief", changes.change_brief, agents="reads"),
    Command("change edit", changes.change_edit, agents="edits"),
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
        return {parameter.name: parameter for parameter in self.command.parameters if parameter.name not in HIDDEN}

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """The arguments as a model; nothing else is taken."""
        fields: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            option, kind = parameter.annotation.__metadata__[0], parameter.annotation.__origin__
            text, default = option.help, ... if parameter.default is Parameter.empty else parameter.default
            if name == "proposer":
                kind = Literal["person", "tuner"]
                text = "You (`person`: it pauses with a brief), or a search (`tuner`)."
            fields[name] = kind, Field(default, description=text, ge=option.min, le=option.max)
        if self.starts:
            text = "Wait so long for the end; after that `job_wait` goes on waiting."
            fields[WAIT] = (float, Field(WAITED_S, ge=0, le=jobs.LONGEST_WAIT_S, description=text))
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Its arguments, checked. Raises UsageError that says which one is wrong, and what it takes."""
        try:
            return dict(self.arguments.model_validate(dict(values)))
        except ValidationError as error:
            first = error.errors()[0]
            name, known = str(first["loc"][0]), self.arguments.model_fields
            if name in known:
                hint = f"{name}: {known[name].description}"
            elif name in {parameter.name for parameter in self.command.parameters}:
                hint = f"only a person gives that; a person runs: loop {self.command.words}"
            else:
                hint = did_you_mean(name, list(known)) or f"it takes {', '.join(known) or 'none'}"
            raise UsageError(f"{self.name}: {name}: {first['msg'].lower()}"[:400], hint) from error

    def call(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Do what only reads, in this process; what `--json` prints."""
        out = io.StringIO()
        defaults = {parameter.name: default_of(parameter) for parameter in self.command.parameters}
        as_json = {"json": True} if "json" in defaults else {}
        self.command.call({**defaults, **values, **as_json}, Screen(out, io.StringIO(), quiet=True))
        return json.loads(out.getvalue())  # type: ignore[no-any-return]

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
    """The tool of this name. Raises UsageError for a name that is none."""
    if name not in known:
        others = f"there are {', '.join(known)}; the rest is for a person: loop --help"
        raise UsageError(f"there is no tool {name!r}", hint=did_you_mean(name, list(known)) or others)
    return known[name]
