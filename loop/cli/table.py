"""A command as a row: its words, what it does, its parameters, and the story that it tells when it is called.

Help, reference and dispatch follow from the rows. A story is imported when its command is called, so that help is
quick. It takes the parameters by name and a screen, or one request that holds them; it returns the exit code.
"""

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, Signature, cleandoc
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from loop.cli.names import refuse_unknown


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


BY_OPTION = "variants_by_option"
"""Parameter of `--variant` where variants are named by their place, too: it is joined to `variants`."""
ON_HOST = "loop.cli.on_host:run"
"""What does a command on another machine, where `--on` names one."""
HELP = {"help_option_names": ["-h", "--help"]}
KINDS = {"Path": "PATH", "float": "NUMBER", "int": "NUMBER", "str": "TEXT"}
"""How help calls a value whose row does not say, by what stands in the annotation."""


def group(text: str, *, completion: bool = False) -> typer.Typer:
    """A group of commands with its one-line help; `completion`: with typer's options for shells."""
    return typer.Typer(
        cls=QuickGroup,
        help=text,
        no_args_is_help=True,
        context_settings=HELP,
        add_completion=completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def option(flag: str, kind: Any, text: str, default: Any = ..., name: str = "", **settings: Any) -> Parameter:
    """An option, such as `--older-than DAYS`; `name`: of the story's parameter, where it is not the flag's.

    Without one, `default` is None or False if the kind has that, else it has to be given; `complete`: see `names`.
    """
    flag, _, shown = flag.partition(" ")
    if kind is not bool:
        settings["metavar"] = shown or next(word for key, word in KINDS.items() if key in str(kind))
    name = name or flag.removeprefix("--").replace("-", "_")
    return _parameter(name, kind, default, partial(typer.Option, flag, help=text), settings)


def argument(name: str, kind: Any, text: str, default: Any = ..., **settings: Any) -> Parameter:
    """What is given by its place, such as `names NAME`; the rest as of options."""
    name, _, shown = name.partition(" ")
    settings["metavar"] = shown or name.upper()
    return _parameter(name, kind, default, partial(typer.Argument, help=text), settings)


def _parameter(name: str, kind: Any, default: Any, make: Any, settings: dict[str, Any]) -> Parameter:
    if default is ...:
        default = False if kind is bool else None if type(None) in get_args(kind) else Parameter.empty
    made = make(autocompletion=settings.pop("complete", None), **settings)
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, made], default=default)


JSON = option("--json", bool, "Print one JSON object on stdout.")


@dataclass(frozen=True)
class Command:
    """One command. Where it has a `result`, it takes `--json`."""

    words: str
    """What calls it, after `loop`."""
    story: str
    """Module and function: `loop.cli.sessions:list_sessions`."""
    help: str
    """A line, then what else there is to say."""
    examples: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    request: str = ""
    """Class in the story's module that holds the parameters; none where the story takes them by name."""
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Parameters that the command itself decides."""
    rest: bool = False
    """Whether all that follows the first argument belongs to it."""
    result: str = ""
    """Module and class of what `--json` prints."""
    agents: Literal["", "reads", "edits", "starts", "ends"] = ""
    """What a call through MCP does, where it is a tool; `starts`: it begins work that may outlast the call."""

    def __post_init__(self) -> None:
        if self.result and JSON.name not in {one.name for one in self.parameters}:
            object.__setattr__(self, "parameters", (*self.parameters, JSON))

    def add_to(self, app: typer.Typer) -> None:
        """Let typer parse it."""

        def call(**given: Any) -> None:
            raise typer.Exit(self.call(given))

        call.__doc__ = self._text
        call.__signature__ = Signature(self.parameters)  # type: ignore[attr-defined]
        settings = HELP | ({"allow_interspersed_args": False} if self.rest else {})
        app.command(self.words.rpartition(" ")[2], cls=QuickCommand, context_settings=settings)(call)

    def add_as_default(self, app: typer.Typer) -> None:
        """Let a group without a further word be it."""

        def call(context: typer.Context, **given: Any) -> None:
            if context.invoked_subcommand is None:
                raise typer.Exit(self.call(given))

        call.__doc__ = self._text
        context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        call.__signature__ = Signature((context, *self.parameters))  # type: ignore[attr-defined]
        app.info.no_args_is_help = False
        app.callback(invoke_without_command=True)(call)

    def words_of(self, values: Mapping[str, Any]) -> list[str]:
        """What follows `loop` on the command line that gives these values; defaults are left out."""
        options: list[str] = []
        places: list[str] = []
        for parameter in self.parameters:
            value, flag = values.get(parameter.name), flag_of(parameter)
            if value is None or value == default_of(parameter):
                continue
            every = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
            if flag:
                options += [flag] if value is True else [f"{flag}={one}" for one in every]
            else:
                places += every
        return [*self.words.split(), *options, *(["--", *places] if places else [])]

    @property
    def printed(self) -> Any:
        """The type of what `--json` prints."""
        where, _, name = self.result.partition(":")
        return getattr(importlib.import_module(where), name)

    @property
    def _text(self) -> str:
        """Help with examples, which no terminal folds."""
        title = "Example:" if len(self.examples) == 1 else "Examples:"
        return "\n".join((cleandoc(self.help), "", "\b", title, *(f"  {one}" for one in self.examples)))

    def call(self, given: Mapping[str, Any], screen: Any = None) -> int:
        """Tell the story, to the process's own screen by default; the exit code."""
        screen = screen or screen_for(bool(given.get("json") or given.get("events")))
        if given.get("on") or given.get("keep_until"):
            where, _, name = ON_HOST.partition(":")
            return int(getattr(importlib.import_module(where), name)(self, given, screen))
        given = {name: value for name, value in given.items() if name not in ("on", "keep_until")}
        refuse_unknown(self.parameters, given)
        where, _, name = self.story.partition(":")
        module = importlib.import_module(where)
        if "target" in given and given["target"] is None and not given.get("path"):
            _say_target(screen)
        values = self._values(given)
        if self.request:
            return int(getattr(module, name)(getattr(module, self.request)(**values), screen))
        if "json" in values:
            values["as_json"] = values.pop("json")
        return int(getattr(module, name)(**values, screen=screen))

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the story takes: a target for a task, tuples for what may be repeated."""
        values = {**_with_task(_joined(given)), **self.fixed}
        lists = [one.name for one in self.parameters if one.name in values and _is_list(one.annotation.__origin__)]
        return values | {name: tuple(values[name] or ()) for name in lists}


def flag_of(parameter: Parameter) -> str:
    """The flag of a parameter; empty for what is given by its place."""
    made = parameter.annotation.__metadata__[0]
    return next((one for one in (made.default, *(made.param_decls or ())) if str(one).startswith("--")), "")


def default_of(parameter: Parameter) -> Any:
    """What a parameter is where nobody gives it."""
    return None if parameter.default is Parameter.empty else parameter.default


def _joined(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was given, the variants that options name among those named by their place."""
    if BY_OPTION not in given:
        return given
    both = [*(given["variants"] or ()), *(given[BY_OPTION] or ())]
    return {**{name: value for name, value in given.items() if name != BY_OPTION}, "variants": both}


def _with_task(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was given, a task of somebody else's replaced by the target that is made of it, with its answers."""
    from loop.base.places import MANIFEST

    path = given.get("target")
    if path is None or path.name == MANIFEST or (path / MANIFEST).is_file():
        return given
    from loop.formats import table, translated

    if not table.is_foreign(path):
        return given
    field = "variant" if "variant" in given else "variants"
    answers = given.get(field) or ()
    target, names = translated.as_target(path, [answers] if isinstance(answers, str) else answers)
    return {
        **given,
        "target": target,
        **({field: names[0] if isinstance(answers, str) else names} if answers else {}),
    }


def _say_target(screen: Any) -> None:
    """Outside a target's folder: that the bundled target is taken."""
    from loop.base.places import BUNDLED_TARGET, MANIFEST

    if not Path(MANIFEST).is_file():
        screen.say(f"target: the bundled one ({BUNDLED_TARGET})")


def _is_list(kind: Any) -> bool:
    return any(get_origin(one) is list for one in (kind, *getattr(kind, "__args__", ())))


def build(app: typer.Typer, groups: Mapping[str, str], commands: Iterable[Command]) -> None:
    """Put commands into an app, and into groups of it, each called by its words."""
    apps = {"": app, **{words: group(text) for words, text in groups.items()}}
    for words in groups:
        above, _, name = words.rpartition(" ")
        apps[above].add_typer(apps[words], name=name)
    for command in commands:
        if command.words in apps:
            command.add_as_default(apps[command.words])
        else:
            command.add_to(apps[command.words.rpartition(" ")[0]])


def screen_for(as_json: bool = False) -> Any:
    """A screen; with --json, talk is left out unless somebody watches, or keeps it."""
    from loop.base.screen import TALKS, Screen

    return Screen(quiet=as_json and not sys.stderr.isatty() and TALKS not in os.environ)
