"""`@command`: makes a function with `Annotated` parameters a command of the command line.

Help, `--json`, `--on HOST` and MCP tools are derived from the function's signature and docstring.
`work` names the function that does the work. It is imported only when the command runs, so help
and errors about names are quick. Its result is printed: as JSON with `--json`, else by its `show`.
"""

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

HELP = {"help_option_names": ["-h", "--help"]}
# The commands that `loop --help` lists first.
FIRST: tuple[str, ...] = ("run session", "init", "trust", "kernels verify", "kernels measure")
FIRST += ("optimize", "bisect", "report", "status", "doctor")
GROUP: dict[str, Any] = {"no_args_is_help": True, "context_settings": HELP}
GROUP |= {"pretty_exceptions_enable": False, "rich_markup_mode": None}
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
"""First word of a group of commands to the group's help."""
ALL: list["Command"] = []  # Every command, in the order of definition.
METAVARS = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}  # Of values in help.
McpEffect = Literal["", "reads", "starts", "ends"]  # Empty: no tool. `starts` may outlast a call.
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Function = TypeVar("Function", bound=Callable[..., int | None])
Request = TypeVar("Request")


class PlainCommand(TyperCommand):
    """A command whose help shows no Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters. Arguments have an empty type, which help prints after their names."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: ""
        return parameters


class RootGroup(TyperGroup):
    """`loop` itself. Its help fits 80 columns and 24 lines."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write help: a line for each main command, the names of all others, and the options."""
        summaries = {command.words: command.summary for command in ALL}
        with formatter.section("Commands"):
            formatter.write_dl([(words, summaries[words]) for words in FIRST])
        with formatter.section("More, each with --help"):
            formatter.write_text(", ".join(sorted({*self.list_commands(ctx)} - {*FIRST})))
        with formatter.section("Options"):
            options = [max(option.opts, key=len) for option in self.get_params(ctx)]
            formatter.write_text(", ".join(options))


@dataclasses.dataclass(frozen=True)
class Command:
    """One command: its words, its function, and how the work is called."""

    words: str  # The words after `loop`: `kernels verify`.
    function: Callable[..., Any]  # Its parameters are options and arguments, its docstring is help.
    examples: tuple[str, ...] = ()
    work: str = ""  # `module:function` in loop that does it: `cli.runs:run_bench`; else `function`.
    result: str = ""  # Class of the JSON that the work prints itself; empty: its return type.
    mcp: McpEffect = ""
    options_first: bool = False  # Whether all words after the first non-option are arguments.
    shared: Callable[..., None] | None = None  # Its parameters come before those of `function`.
    has_json: bool = True  # Whether `--json` is added to the parameters.

    @property
    def help(self) -> str:
        """The function's docstring: a summary line, then details."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return self.help.partition("\n")[0]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters on the command line, as keywords: shared ones, own ones, and `--json`.
        A text alone, as in `Annotated[bool, "Show all."]`, is the help of an option."""
        keyword, parameters = Parameter.KEYWORD_ONLY, list[Parameter]()
        for function in filter(None, (self.shared, self.function)):
            parameters += inspect.signature(function).parameters.values()
        if self.has_json:
            parameters.append(Parameter("json", keyword, default=False, annotation=JSON))
        keywords = []
        for parameter in parameters:
            kind, option = get_args(parameter.annotation)
            if isinstance(option, str):  # A flag has one name: typer would add `--no-...`.
                flag = [f"--{parameter.name.replace('_', '-')}"] if kind is bool else []
                option = typer.Option(*flag, help=option)
            annotation = Annotated[kind, option]  # type: ignore[valid-type]
            keywords.append(parameter.replace(kind=keyword, annotation=annotation))
        return tuple(keywords)

    @property
    def parameter_names(self) -> frozenset[str]:
        """The names of its parameters."""
        return frozenset(parameter.name for parameter in self.parameters)

    @property
    def json_type(self) -> Any:
        """The type of the JSON that `--json` prints."""
        if self.result:
            module = self.work.partition(":")[0]
            return import_object(self.result if ":" in self.result else f"{module}:{self.result}")
        returned = inspect.signature(import_object(self.work)).return_annotation
        return get_args(returned)[0] if get_origin(returned) is tuple else returned

    def add_to(self, group: typer.Typer) -> None:
        """Add the command to a typer group under its last word, or as the group's own callback."""

        def call(**values: Any) -> None:
            """Run the command; as a group's callback, unless a command of the group follows."""
            context = values.pop("context", None)
            if context is None or context.invoked_subcommand is None:
                raise typer.Exit(self.call(values))

        title = "Example:" if len(self.examples) == 1 else "Examples:"
        # \b keeps typer from wrapping.
        call.__doc__ = "\n  ".join((f"{self.help}\n\n\b\n{title}", *self.examples))
        parameters = list(self.parameters)
        for parameter in parameters:
            option = parameter.annotation.__metadata__[0]
            if isinstance(option, typer.models.ArgumentInfo):
                option.metavar = option.metavar or parameter.name.upper()
            elif option.metavar is None:
                kind = parameter.annotation.__origin__
                for _ in range(2):  # Unwrap `list[int] | None` to `int`.
                    kind = next((part for part in get_args(kind) if part is not type(None)), kind)
                option.metavar = METAVARS.get(kind)
        if self.words in HELPS:  # A group, too: its word alone runs this command.
            context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
            parameters.insert(0, context)
            group.info.no_args_is_help, group.info.help = False, call.__doc__
            decorate = group.callback(invoke_without_command=True)
        else:
            settings = {**HELP, "allow_interspersed_args": not self.options_first}
            name = self.words.rpartition(" ")[2]
            decorate = group.command(
                name, cls=PlainCommand, short_help=self.summary, context_settings=settings
            )
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        decorate(call)

    def command_line(self, values: Mapping[str, Any]) -> list[str]:
        """The words after `loop` that give parameters these values; defaults are left out."""
        options, arguments = list[str](), list[str]()
        for parameter in self.parameters:
            value, option = values.get(parameter.name), parameter.annotation.__metadata__[0]
            if value is None or value == default_of(parameter):
                continue
            texts = [*map(str, value)] if isinstance(value, list | tuple) else [str(value)]
            if isinstance(option, typer.models.ArgumentInfo):
                arguments += texts
                continue
            own_flag = f"--{parameter.name.replace('_', '-')}"
            # typer keeps the first flag in `default`.
            words = (option.default, *(option.param_decls or ()), own_flag)
            flag = next(word for word in words if str(word).startswith("--"))
            options += [flag] if value is True else [f"{flag}={text}" for text in texts]
        return [*self.words.split(), *options, *(["--", *arguments] if arguments else [])]

    def call(self, values: Mapping[str, Any], screen: Any = None) -> int:
        """Run the command with these values and return the exit code; with `--on`, there. `screen`:
        None is the process's own. `work` gets the values that it has parameters for, `json` as
        `as_json`, and for `request` a dataclass of them. It returns an exit code (None: 0) if it
        printed by itself, else a result to print, or that and a code."""
        from loop.base.places import MANIFEST
        from loop.library.definitions import BUNDLED_TARGET

        as_json, target = bool(values.get("json")), values.get("target")
        screen = screen or screen_for(as_json=bool(as_json or values.get("events")))
        if values.get("on") or values.get("keep_host"):
            return int(import_object("cli.hosts:run_on_host")(self, values, screen))
        is_unnamed = "target" in values and target is None and not values.get("path")
        if is_unnamed and not Path(MANIFEST).is_file():
            here = [f"--target {path.parent}" for path in sorted(Path().glob(f"*/{MANIFEST}"))]
            others_text = f"; those here: {', '.join(here)}" if here else ""
            screen.say(f"target: the bundled one ({BUNDLED_TARGET}){others_text}")
        subcommand = self.words.rpartition(" ")[2]
        values = {**values, "screen": screen, "as_json": as_json, "subcommand": subcommand}
        if target is not None and target.name != MANIFEST and not (target / MANIFEST).is_file():
            from loop.formats import table

            # A task becomes a target, and its answers variants.
            if target.exists() and table.claiming_formats(target):
                answer = values.get("variant")
                answers = [answer] if answer else values.get("variants") or ()
                values["target"], names = table.write_as_target(target, answers)
                if names:
                    values |= {"variant": names[0]} if answer else {"variants": names}
        for parameter in self.parameters:
            if "list[" in str(parameter.annotation.__origin__):
                values[parameter.name] = tuple(values[parameter.name] or ())
        work = import_object(self.work) if self.work else self.function
        work_parameters = inspect.signature(work).parameters
        if "request" in work_parameters:
            values["request"] = make_request(work_parameters["request"].annotation, values)
        kinds = {parameter.kind for parameter in work_parameters.values()}
        if Parameter.VAR_KEYWORD not in kinds:
            values = {name: values[name] for name in work_parameters if name in values}
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


def command(words: str, *examples: str, **fields: Any) -> Callable[[Function], Function]:
    """Decorator that makes a function, which declares options and help, a command. An example is
    what follows `words`, or a whole line that names `loop`. `fields`: of `Command`."""

    def define(function: Function) -> Function:
        """Add the function's command to `ALL`; the function stays as it is."""
        lines = []
        for example in examples or ("",):
            lines.append(example if "loop " in example else f"loop {words} {example}".rstrip())
        ALL.append(Command(words, function, tuple(lines), **fields))
        return function

    return define


def import_object(place: str) -> Any:
    """Import `module:name` from loop, as `cli.runs:run_bench`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"loop.{module}"), name)


def make_request(kind: Callable[..., Request], values: Mapping[str, Any]) -> Request:
    """A dataclass of type `kind`, of the values that are its fields."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def default_of(parameter: Parameter) -> Any:
    """The default of a parameter; None if it has no default."""
    return None if parameter.default is Parameter.empty else parameter.default


def screen_for(*, as_json: bool = False) -> Any:
    """The process's screen. With --json, messages are for a terminal or a parent `loop` only."""
    from loop.report.screen import MESSAGES_VARIABLE, Screen

    has_reader = sys.stderr.isatty() or MESSAGES_VARIABLE in os.environ
    return Screen(is_quiet=as_json and not has_reader)


def _print_version(is_asked: bool) -> None:
    """Print the version and exit, for `--version`."""
    if is_asked:
        from loop import __version__

        typer.echo(f"loop {__version__}")
        raise typer.Exit


VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")


def _describe_loop(version: Annotated[bool, VERSION] = False) -> None:
    """Run GPU-kernel optimisation sessions, and learn from them. Start with: loop run session"""


def build_app() -> typer.Typer:
    """`loop` with all commands in `ALL`. Commands with the same first word are in one group."""
    root = typer.Typer(cls=RootGroup, help=None, **GROUP)
    root.callback()(_describe_loop)
    groups: dict[str, typer.Typer] = {}
    for command in ALL:
        name = command.words.partition(" ")[0]
        if name in HELPS and name not in groups:
            groups[name] = typer.Typer(help=HELPS[name], **GROUP)
            root.add_typer(groups[name], name=name)
        command.add_to(groups.get(name, root))
    return root
