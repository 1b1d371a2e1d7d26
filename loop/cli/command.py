"""`@command`: a function with `Annotated` parameters as a command of typer, and all that follows from it.

Help, `--json`, `--on HOST` and the tools of `loop mcp` read the function's signature and docstring. `calls` names
the function that does the work. It is imported only when the command runs: help is quick, and a mistyped name is
refused before anything large is imported. What it returns is printed: as JSON with `--json`, else by its `show`.
"""

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from loop.cli.names import refuse_unknown

ON_HOST = "cli.on_host:run_on_host"
"""Does a command on another machine, where `--on` names one. It knows commands, so it is imported by name."""
HELP = {"help_option_names": ["-h", "--help"]}
FIRST = (
    *("run session", "init", "trust", "kernels verify", "kernels measure"),
    *("optimize", "bisect", "report", "status", "doctor"),
)
"""What `loop --help` shows first: the commands that most people need."""
ALL: list["Command"] = []
"""Every command, in the order in which they are defined."""
METAVARS = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}
"""What help calls the value of an option that names no metavar of its own, by its type."""
Agents = Literal["", "reads", "edits", "starts", "ends"]
"""What a call through MCP does, where a command is a tool; `starts`: it begins work that may outlast the call."""
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Function = TypeVar("Function", bound=Callable[..., int | None])
Request = TypeVar("Request")


class _Quick:
    """Converts only what was given: typer imports pydantic to convert, which takes as long as all else.

    Its help names no types of Python's, and cuts no sentence off.
    """

    help: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, each with that rule."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if not isinstance(parameter.process_value, partial):
                parameter.process_value = partial(_converted, parameter.process_value, parameter)
                if parameter.param_type_name == "argument":
                    parameter.display_type_rich = lambda ctx: ""
                    parameter.metavar = parameter.metavar or parameter.name.upper()
        return parameters

    def get_short_help_str(self, limit: int = 0) -> str:
        """The first line of its help, for the list of a group's commands."""
        return (self.help or "").partition("\n")[0]


def _converted(convert: Any, parameter: Any, context: Any, value: Any) -> Any:
    return value if value is None and not parameter.required else convert(context, value)


class QuickCommand(_Quick, TyperCommand):
    """A command that starts at once."""


class QuickGroup(_Quick, TyperGroup):
    """A group of commands that starts at once."""


class RootGroup(QuickGroup):
    """`loop` itself. A command is made when it is looked up, for each start needs one of them.

    Its help fits a screen of 80 columns and 24 lines.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """The first word of each command, in the order in which they are defined."""
        return list(dict.fromkeys(command.words.partition(" ")[0] for command in ALL))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command or the group of commands that begins with a word; None where there is none."""
        if cmd_name not in self.commands:
            own = [command for command in ALL if command.words.partition(" ")[0] == cmd_name]
            group = new_group(HELPS.get(cmd_name, ""))
            for command in own:
                command.add_to(group)
            if not own:  # Every other one is made then: typer names the nearest.
                known = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
                return known.get(cmd_name)
            self.commands[cmd_name] = typer.main.get_command(group)
        return self.commands.get(cmd_name)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The commands that matter first, a line each; then the names of all others, and the options."""
        summaries = {command.words: command.summary for command in ALL}
        with formatter.section("Commands"):
            formatter.write_dl([(words, summaries[words]) for words in FIRST])
        with formatter.section("More, each with --help"):
            formatter.write_text(", ".join(sorted({*self.list_commands(ctx)} - {*FIRST})))
        with formatter.section("Options"):
            formatter.write_text(", ".join(option.opts[-1] for option in self.get_params(ctx)))


@dataclasses.dataclass(frozen=True)
class Command:
    """One command, as its function says."""

    words: str
    """What calls it, after `loop`."""
    function: Callable[..., Any]
    examples: tuple[str, ...] = ()
    calls: str = ""
    """Module of loop's and function that do the work, `cli.bench:doctor`; empty: the function itself does it."""
    result: str = ""
    """Class of what the work prints by itself with `--json`; empty: what its function returns."""
    agents: Agents = ""
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rest: bool = False
    """Whether words behind the first that is no option belong to it."""
    shared: Callable[..., None] | None = None
    """A function whose parameters it has before its own."""
    json: bool = False
    """Whether it has `--json`, without a parameter of its own for that."""

    @property
    def help(self) -> str:
        """A line, then what else there is to say."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of its help."""
        return self.help.partition("\n")[0]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it takes from the command line: what it shares with others, its own, and `--json`."""
        functions = filter(None, (self.shared, self.function))
        every = [each for function in functions for each in inspect.signature(function).parameters.values()]
        if self.json:
            every.append(Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=JSON))
        return tuple(each.replace(kind=Parameter.KEYWORD_ONLY) for each in every if each.name != "screen")

    @property
    def takes(self) -> frozenset[str]:
        """Names of its parameters."""
        return frozenset(parameter.name for parameter in self.parameters)

    @property
    def printed(self) -> Any:
        """The type of what `--json` prints."""
        module = self.calls.partition(":")[0]
        if self.result:
            return _imported(self.result if ":" in self.result else f"{module}:{self.result}")
        kind = inspect.signature(_imported(self.calls)).return_annotation
        return next(iter(get_args(kind)), kind)

    def add_to(self, group: typer.Typer) -> None:
        """Let typer parse it, as the command of its last word; called by a group's words, as that group's own."""

        def call(**values: Any) -> None:
            context = values.pop("context", None)
            if context is None or context.invoked_subcommand is None:
                raise typer.Exit(self.call(values))

        title = "Example:" if len(self.examples) == 1 else "Examples:"
        call.__doc__ = "\n".join((self.help, "", "\b", title, *(f"  {example}" for example in self.examples)))
        parameters = list(self.parameters)
        for parameter in parameters:
            option = parameter.annotation.__metadata__[0]
            if isinstance(option, typer.models.OptionInfo) and option.metavar is None:
                kind = parameter.annotation.__origin__  # `int` of `list[int] | None`.
                for _ in range(2):
                    kind = next((part for part in get_args(kind) if part is not type(None)), kind)
                option.metavar = METAVARS.get(kind)
        if self.words in HELPS:
            parameters.insert(0, Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context))
            group.info.no_args_is_help = False
            decorate = group.callback(invoke_without_command=True)
        else:
            settings = HELP | ({"allow_interspersed_args": False} if self.rest else {})
            decorate = group.command(self.words.rpartition(" ")[2], cls=QuickCommand, context_settings=settings)
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        decorate(call)

    def words_of(self, values: Mapping[str, Any]) -> list[str]:
        """What follows `loop` on the command line that gives these values; defaults are left out."""
        options: list[str] = []
        places: list[str] = []
        for parameter in self.parameters:
            value, flag = values.get(parameter.name), flag_of(parameter)
            if value is None or value == default_of(parameter):
                continue
            items = [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
            if flag:
                options += [flag] if value is True else [f"{flag}={item}" for item in items]
            else:
                places += items
        return [*self.words.split(), *options, *(["--", *places] if places else [])]

    def call(self, values: Mapping[str, Any], screen: Any = None) -> int:
        """Do it, on the process's own screen by default; the exit code.

        What does the work gets the values that it has parameters for, `json` also as `as_json`. A parameter
        `request` is a dataclass, made of the values that are its fields. It returns an exit code where it has
        printed by itself, else the answer, or the answer with an exit code.
        """
        from loop.base.places import BUNDLED_TARGET, MANIFEST

        as_json, target = bool(values.get("json")), values.get("target")
        screen = screen or screen_for(bool(as_json or values.get("events")))
        if values.get("on") or values.get("keep_until"):
            return int(_imported(ON_HOST)(self, values, screen))
        refuse_unknown(self.parameters, values)
        if "target" in values and target is None and not values.get("path") and not Path(MANIFEST).is_file():
            screen.say(f"target: the bundled one ({BUNDLED_TARGET})")
        values = {**values, "screen": screen, "as_json": as_json, **self.fixed}
        if target is not None and target.name != MANIFEST and not (target / MANIFEST).is_file():
            values |= _as_target(target, values)
        for parameter in self.parameters:
            if "list[" in str(parameter.annotation.__origin__):
                values[parameter.name] = tuple(values[parameter.name] or ())
        work = _imported(self.calls) if self.calls else self.function
        wanted = inspect.signature(work).parameters
        if "request" in wanted:
            values["request"] = make_request(wanted["request"].annotation, values)
        if all(parameter.kind is not Parameter.VAR_KEYWORD for parameter in wanted.values()):
            values = {name: values[name] for name in wanted if name in values}
        answer = work(**values)
        answer, code = answer if isinstance(answer, tuple) else (answer, 0)
        if answer is None or isinstance(answer, int):
            return answer or 0
        if as_json:
            from loop.base.documents import to_json

            screen.data(to_json(answer))
        else:
            answer.show(screen)
        return int(code)


def command(
    words: str,
    calls: str,
    *examples: str,
    result: str = "",
    agents: Agents = "",
    json: bool = True,
    rest: bool = False,
    shared: Callable[..., None] | None = None,
    **fixed: Any,
) -> Callable[[Function], Function]:
    """Make a function the command that these words call; its docstring is the help. For the rest see `Command`."""

    def define(function: Function) -> Function:
        lines = examples or (f"loop {words}",)
        ALL.append(Command(words, function, lines, calls, result, agents, fixed, rest, shared, json))
        return function

    return define


def _imported(place: str) -> Any:
    """What `module:name` names, of a module of loop's."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"loop.{module}"), name)


def make_request(kind: Callable[..., Request], values: Mapping[str, Any], **more: Any) -> Request:
    """A request: of these values the fields that this dataclass has, and more."""
    names = {field.name for field in dataclasses.fields(kind)} - {*more}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names}, **more)


def flag_of(parameter: Parameter) -> str:
    """The flag of a parameter; empty for what is given by its place."""
    option = parameter.annotation.__metadata__[0]
    if isinstance(option, typer.models.ArgumentInfo):
        return ""
    words = (option.default, *(option.param_decls or ()))
    return next((word for word in words if str(word).startswith("--")), f"--{parameter.name.replace('_', '-')}")


def default_of(parameter: Parameter) -> Any:
    """What a parameter is where nobody gives it."""
    return None if parameter.default is Parameter.empty else parameter.default


def _as_target(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The target that is made of a task of somebody else's, with its answers; nothing where it is no task."""
    from loop.formats import table

    if not table.is_foreign(path):
        return {}
    field = "variant" if "variant" in values else "variants"
    answers = values.get(field) or ()
    target, names = table.as_target(path, [answers] if isinstance(answers, str) else answers)
    return {"target": target, **({field: names[0] if isinstance(answers, str) else names} if answers else {})}


def screen_for(as_json: bool = False) -> Any:
    """A screen; with --json, talk is left out unless somebody watches, or keeps it."""
    from loop.base.screen import TALKS, Screen

    return Screen(quiet=as_json and not sys.stderr.isatty() and TALKS not in os.environ)


def _version(wanted: bool) -> None:
    if wanted:
        from loop import __version__

        typer.echo(f"loop {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run GPU-kernel optimisation sessions, and learn from them. Start with: loop run session"""


HELPS = {
    "run": "Run a session, a single pattern or one step.",
    "kernels": "Build, verify and measure kernels without a session.",
    "patterns": "Browse and check the pattern catalogue.",
    "plan": "Look at session plans, and at what the next session should do.",
    "sessions": "Look at recorded sessions.",
    "targets": "Look at tasks in other formats.",
    "cost": "What sessions cost, and decisions with money.",
    "agents": "Files that tell a coding agent how to use loop.",
    "hosts": "Machines that are reached by ssh.",
    "jobs": "What waits, runs and has ended, here and on other machines.",
    "job": "Run one job, wherever its folder lies.",
    "catalog": "The catalogue of patterns, sessions and kernels as pages.",
}
"""Words to the help of the group that they call."""


def new_group(text: str, **settings: Any) -> typer.Typer:
    """Commands that are called by words behind one word, or one command; `text`: the help of the group."""
    group = typer.Typer(
        help=text,
        no_args_is_help=True,
        context_settings=HELP,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        **{"cls": QuickGroup, "add_completion": False, **settings},
    )
    if text:
        group.callback()(lambda: None)
    return group


app = new_group("", cls=RootGroup, add_completion=True)
app.callback()(_root)
