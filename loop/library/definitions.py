"""Finds the target that a command works on; reads patterns and plans, bundled or the project's."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from loop.base.documents import Document, complain, did_you_mean, load_yaml, parse
from loop.base.errors import Complaint, DefinitionError, UsageError
from loop.base.expressions import Expression, ExpressionError
from loop.base.places import MANIFEST, PACKAGE, require_unicode, shipped, tasks_folder
from loop.model.base import Model
from loop.model.plan import Pattern, Plan

BUNDLED_TARGET = "kernels/attention"


@dataclass(frozen=True)
class Project:
    """A target and the folders that belong to it."""

    target: Path
    sessions: Path
    bundled: bool  # True for the target that ships with loop.

    @property
    def manifest(self) -> Path:
        """Path of the target's manifest, `target.yaml`."""
        return self.target / MANIFEST

    def definitions_folder(self, kind: str) -> Path | None:
        """Its own `patterns`, `plans` or `templates` (`kind`); None without, or if bundled."""
        folder = self.target / kind
        return folder if not self.bundled and folder.is_dir() else None


def find_project(target: Path | None, cwd: Path) -> Project:
    """The project of `target` (folder or manifest), else of `cwd` (current folder), else bundled.
    Sessions are in LOOP_SESSIONS, else in the target; of one that ships or that `loop` made, in the
    checkout or `cwd`. Raises UsageError without a manifest, or if sessions can have no folder."""
    sessions_parent = PACKAGE.parent if _is_in_checkout(cwd) else cwd.absolute()
    folder, bundled = shipped(BUNDLED_TARGET), True
    if target is not None or (cwd / MANIFEST).is_file():
        target = target or cwd
        folder = require_unicode((target.parent if target.name == MANIFEST else target).absolute())
        if not (folder / MANIFEST).is_file():
            problem = f"no {MANIFEST} there" if folder.exists() else "no such file or folder"
            raise UsageError(f"{folder}: {problem}", hint="loop init makes one: loop init --help")
        bundled = folder.resolve() == shipped(BUNDLED_TARGET).resolve()
        if not bundled and folder.parent != tasks_folder():
            sessions_parent = folder
        folder = folder.resolve()
    sessions = Path(os.environ.get("LOOP_SESSIONS") or sessions_parent / "sessions").absolute()
    if os.path.lexists(sessions) and not os.path.isdir(sessions):  # A file, or a broken link.
        hint = "move it away, or name a folder for sessions with LOOP_SESSIONS"
        raise UsageError(f"{sessions}: no folder, so that no session can be there", hint)
    return Project(folder, sessions.resolve(), bundled)


def require_named_target(target: Path | None, cwd: Path, verb: str) -> None:
    """Raise UsageError if no target is named or here, for commands that edit or search one: outside
    the checkout, the bundled one is no default. `verb`: what the command does, for the message."""
    is_bundled = target is None and find_project(None, cwd).bundled
    if is_bundled and not _is_in_checkout(cwd):
        own = f"loop's own is --target {shipped(BUNDLED_TARGET)}"
        hint = f"--target FOLDER, or cd to it; loop init makes one; {own}"
        raise UsageError(f"{cwd}: no {MANIFEST} here, so there is no target to {verb}", hint)


def _is_in_checkout(folder: Path) -> bool:
    checkout = PACKAGE.parent
    return (checkout / "pyproject.toml").is_file() and folder.resolve().is_relative_to(checkout)


def target_options(folder: Path) -> list[str]:
    """Words that name a target in a command: `--target FOLDER`; empty for the bundled one."""
    is_bundled = folder.resolve() == shipped(BUNDLED_TARGET).resolve()
    return [] if is_bundled else ["--target", str(folder)]


T = TypeVar("T", bound=Model, covariant=True)


@dataclass(frozen=True)
class ParsedFile(Generic[T]):
    """A parsed definition with its source document, so that later complaints can name the line."""

    value: T
    document: Document
    path: Path


def patterns(project: Project) -> dict[str, ParsedFile[Pattern]]:
    """Patterns by name, in order of their numbers. A project's pattern replaces a bundled one."""
    definitions = _read_definitions(shipped("patterns"), project, Pattern)
    return dict(sorted(definitions.items(), key=lambda item: item[1].value.number))


def plans(project: Project) -> dict[str, ParsedFile[Plan]]:
    """Plans by name. A project's plan replaces a bundled plan of the same name."""
    return _read_definitions(shipped("sessions/plans"), project, Plan)


def _read_definitions(bundled: Path, project: Project, model: type[T]) -> dict[str, ParsedFile[T]]:
    """The definitions of one kind by name. DefinitionError for a name unlike its file's."""
    definitions = {}
    for folder in filter(None, [bundled, project.definitions_folder(bundled.name)]):
        for path in sorted(folder.glob("*.yaml")):
            definition = read_file(path, model)
            name = getattr(definition.value, "name", path.stem)
            if name != path.stem:
                expected, document = f"{path.stem!r}, the file's name", definition.document
                raise DefinitionError([complain(document, ("name",), expected, repr(name))])
            definitions[path.stem] = definition
    return definitions


def read_file(path: Path, model: type[T]) -> ParsedFile[T]:
    """Read a YAML file as a model. Raises DefinitionError with line and column of every mistake."""
    document = load_yaml(path)
    return ParsedFile(parse(model, document), document, path)


def check_expression(
    document: Document, place: tuple[str | int, ...], text: str, known_names: set[str]
) -> Iterator[Complaint]:
    """Complaints about an expression that does not parse or reads an unknown name."""
    try:
        names = Expression.parse(text).names
    except ExpressionError as error:
        yield complain(document, place, "an expression", repr(text), error.message)
        return
    for name in sorted(names):
        if name not in known_names and name.split(".")[0] not in known_names:
            hint = name_hint(name, sorted(known_names))
            yield complain(document, place, "a known name", repr(name), hint)


def name_hint(name: str, known_names: Collection[str]) -> str | None:
    """A hint with the nearest known name, or with all names; None if `known_names` is empty."""
    if not known_names:
        return None
    return did_you_mean(name, list(known_names)) or f"there are {', '.join(known_names)}"


def choose(definitions: dict[str, ParsedFile[T]], name: str, kind: str) -> ParsedFile[T]:
    """The `pattern` or `plan` (`kind`) with this name. Raises UsageError with the nearest names."""
    if name in definitions:
        return definitions[name]
    raise UsageError(f"no {kind} {name!r}", hint=name_hint(name, definitions))
