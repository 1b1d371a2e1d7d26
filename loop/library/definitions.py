"""Reads patterns and plans: the bundled ones and the project's own."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from loop.base.documents import Complaint, Document, complain, load_yaml, nearest, parse
from loop.base.documents.complaints import Place
from loop.base.errors import DefinitionError, UsageError, list_choices
from loop.base.expressions import Expression, ExpressionError
from loop.base.places import Project, shipped
from loop.library.earlier import upgrade
from loop.model.base import Model
from loop.model.plan import Pattern, Plan

T = TypeVar("T", bound=Model, covariant=True)


@dataclass(frozen=True)
class Read(Generic[T]):
    """A parsed definition with its source document, so that later complaints can name the line."""

    value: T
    document: Document
    path: Path

    def complain(
        self, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
    ) -> Complaint:
        """Make a complaint about the value at `place`, or about its key if `key` is True."""
        return complain(self.document, place, expected, got, hint, key=key)


def folders(name: str, project: Project) -> list[Path]:
    """Folders of definitions of one kind (`patterns`, `plans`): bundled first, then the project's."""
    bundled = shipped({"plans": "sessions/plans"}.get(name, name))
    own = project.definitions_folder(name)
    return [bundled, own] if own else [bundled]


def patterns(project: Project) -> dict[str, Read[Pattern]]:
    """Patterns by name, in order of their numbers. A project's pattern replaces a bundled one."""
    patterns = {read.value.name: read for read in _read_all("patterns", project, Pattern)}
    return dict(sorted(patterns.items(), key=lambda item: item[1].value.number))


def plans(project: Project) -> dict[str, Read[Plan]]:
    """Plans by name. A project's plan replaces a bundled plan of the same name."""
    return {read.value.name: read for read in _read_all("plans", project, Plan)}


def _read_all(kind: str, project: Project, model: type[T]) -> Iterator[Read[T]]:
    for folder in folders(kind, project):
        for path in sorted(folder.glob("*.yaml")):
            read = read_file(path, model)
            name = getattr(read.value, "name", path.stem)
            if name != path.stem:
                raise DefinitionError([read.complain(("name",), f"{path.stem!r}, the file's name", repr(name))])
            yield read


def read_file(path: Path, model: type[T]) -> Read[T]:
    """Read a YAML file as a model. Raises DefinitionError with line and column of every mistake."""
    document = load_yaml(path)
    document = replace(document, data=upgrade(model, document.data))
    return Read(parse(model, document), document, path)


def check_expression(
    document: Document, place: tuple[str | int, ...], text: str, known: set[str]
) -> Iterator[Complaint]:
    """Complaints about an expression that does not parse or reads an unknown name."""
    try:
        names = Expression.parse(text).names
    except ExpressionError as error:
        yield complain(document, place, "an expression", repr(text), error.message)
        return
    for name in sorted(names):
        if name not in known and name.split(".")[0] not in known:
            close = nearest(name, sorted(known))
            hint = f"did you mean {close[0]!r}?" if close else list_choices(sorted(known), "no name is known here")
            yield complain(document, place, "a known name", repr(name), hint)


def unknown_patterns(plan: Read[Plan], known: Mapping[str, object]) -> list[Complaint]:
    """Complaints about patterns that a plan lists and that are not in `known`."""
    return [
        plan.complain(("patterns", index), "the name of a pattern", repr(name), hint_for(name, known))
        for index, name in enumerate(plan.value.patterns)
        if name not in known
    ]


def hint_for(name: str, known: Collection[str]) -> str | None:
    """A hint with the nearest known name, or with all names; None if `known` is empty."""
    close = nearest(name, list(known))
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}" if known else None


def choose(known: dict[str, Read[T]], name: str, kind: str) -> Read[T]:
    """One definition by name. Raises UsageError with the nearest names. `kind`: for the message."""
    if name in known:
        return known[name]
    raise UsageError(f"no {kind} {name!r}", hint=hint_for(name, known))
