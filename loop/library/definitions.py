"""Reads patterns and plans: the bundled ones and the project's own."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from loop.base.documents import Document, complain, did_you_mean, load_yaml, parse
from loop.base.errors import Complaint, DefinitionError, UsageError
from loop.base.expressions import Expression, ExpressionError
from loop.base.places import shipped
from loop.library.project import Project
from loop.model.base import Model
from loop.model.plan import Pattern, Plan

T = TypeVar("T", bound=Model, covariant=True)


@dataclass(frozen=True)
class ParsedFile(Generic[T]):
    """A parsed definition with its source document, so that later complaints can name the line."""

    value: T
    document: Document
    path: Path


def patterns(project: Project) -> dict[str, ParsedFile[Pattern]]:
    """Patterns by name, in order of their numbers. A project's pattern replaces a bundled one."""
    definitions = {read.value.name: read for read in _read_definitions(shipped("patterns"), project, Pattern)}
    return dict(sorted(definitions.items(), key=lambda item: item[1].value.number))


def plans(project: Project) -> dict[str, ParsedFile[Plan]]:
    """Plans by name. A project's plan replaces a bundled plan of the same name."""
    return {read.value.name: read for read in _read_definitions(shipped("sessions/plans"), project, Plan)}


def _read_definitions(bundled: Path, project: Project, model: type[T]) -> Iterator[ParsedFile[T]]:
    """The bundled definitions of one kind, then the project's. DefinitionError for a name unlike its file's."""
    for folder in filter(None, [bundled, project.definitions_folder(bundled.name)]):
        for path in sorted(folder.glob("*.yaml")):
            definition = read_file(path, model)
            name = getattr(definition.value, "name", path.stem)
            if name != path.stem:
                expected = f"{path.stem!r}, the file's name"
                raise DefinitionError([complain(definition.document, ("name",), expected, repr(name))])
            yield definition


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
            yield complain(document, place, "a known name", repr(name), name_hint(name, sorted(known_names)))


def name_hint(name: str, known_names: Collection[str]) -> str | None:
    """A hint with the nearest known name, or with all names; None if `known_names` is empty."""
    if not known_names:
        return None
    return did_you_mean(name, list(known_names)) or f"there are {', '.join(known_names)}"


def choose(definitions: dict[str, ParsedFile[T]], name: str, kind: str) -> ParsedFile[T]:
    """The definition with this name. Raises UsageError with the nearest names. `kind`: `pattern` or `plan`."""
    if name in definitions:
        return definitions[name]
    raise UsageError(f"no {kind} {name!r}", hint=name_hint(name, definitions))
