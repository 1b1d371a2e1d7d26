"""Folders of YAML to patterns, plans, targets, rates and history: read, checked, never executed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from loop.documents import Document, complain, load_yaml, nearest, parse
from loop.errors import Complaint, DefinitionError, LoopError
from loop.expressions import Expression, ExpressionError
from loop.model.base import Model
from loop.model.history import History
from loop.model.money import RateCard
from loop.model.pattern import Pattern
from loop.model.plan import Plan
from loop.model.target import Target
from loop.model.workloads import WorkloadError, expand
from loop.places import Project, shipped

T = TypeVar("T", bound=Model, covariant=True)


@dataclass(frozen=True)
class Read(Generic[T]):
    """A definition with the document it was read from, so that later complaints find their line."""

    value: T
    document: Document
    path: Path


def folders(name: str, project: Project) -> list[Path]:
    """Where definitions of a kind live: the bundled ones first, then the project's own."""
    bundled = shipped({"plans": "sessions/plans"}.get(name, name))
    own = project.own(name)
    return [bundled, own] if own else [bundled]


def patterns(project: Project) -> dict[str, Read[Pattern]]:
    """All patterns by name, in order of their numbers; a project's own replaces a bundled one of its name."""
    found = {read.value.name: read for read in _read_all("patterns", project, Pattern)}
    return dict(sorted(found.items(), key=lambda item: item[1].value.number))


def plans(project: Project) -> dict[str, Read[Plan]]:
    """All plans by name."""
    return {read.value.name: read for read in _read_all("plans", project, Plan)}


def _read_all(kind: str, project: Project, model: type[T]) -> Iterator[Read[T]]:
    for folder in folders(kind, project):
        for path in sorted(folder.glob("*.yaml")):
            read = read_file(path, model)
            name = getattr(read.value, "name", path.stem)
            if name != path.stem:
                raise DefinitionError(
                    [complain(read.document, ("name",), f"{path.stem!r}, the file's name", repr(name))]
                )
            yield read


def read_file(path: Path, model: type[T]) -> Read[T]:
    """One YAML file as a model. Raises DefinitionError with file, line and column of every mistake."""
    document = load_yaml(path)
    return Read(parse(model, document), document, path)


def target(project: Project) -> Read[Target]:
    """The project's target, its workloads and formulas checked."""
    read = read_file(project.manifest, Target)
    complaints = [*_workload_complaints(read), *_formula_complaints(read), *_tolerance_complaints(read)]
    if complaints:
        raise DefinitionError(complaints)
    return read


def _workload_complaints(read: Read[Target]) -> Iterator[Complaint]:
    for name, entries in read.value.workloads.items():
        for index, entry in enumerate(entries):
            single = read.value.model_copy(update={"workloads": {name: (entry,)}})
            try:
                expand(single, [name], "float32")
            except WorkloadError as error:
                place: tuple[str | int, ...] = ("workloads", name, index)
                place = (*place, error.key) if error.key in entry else place
                yield complain(read.document, place, error.expected, error.got, nearest_hint(error))


def nearest_hint(error: WorkloadError) -> str | None:
    """`did you mean ...` for a misspelt key."""
    if not error.expected.startswith("one of "):
        return None
    close = nearest(error.key, error.expected.removeprefix("one of ").split(", "))
    return f"did you mean {close[0]!r}?" if close else None


def _formula_complaints(read: Read[Target]) -> Iterator[Complaint]:
    known = {*read.value.signature.dimensions, *read.value.signature.attributes, "itemsize"}
    for field in ("flops", "bytes"):
        text = getattr(read.value, field)
        if text is not None:
            yield from check_expression(read.document, (field,), text, known, arithmetic=True)


def check_expression(
    document: Document, place: tuple[str | int, ...], text: str, known: set[str], *, arithmetic: bool = False
) -> Iterator[Complaint]:
    """Complaints about an expression that does not parse or reads an unknown name."""
    try:
        names = Expression.parse(text, arithmetic=arithmetic).names
    except ExpressionError as error:
        yield complain(document, place, "an expression", str(error))
        return
    for name in sorted(names):
        if name not in known and name.split(".")[0] not in known:
            close = nearest(name, sorted(known))
            hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(sorted(known))}"
            yield complain(document, place, "a known name", repr(name), hint)


def _tolerance_complaints(read: Read[Target]) -> Iterator[Complaint]:
    for name, variant in read.value.variants.items():
        for dtype in variant.dtypes:
            if dtype not in read.value.tolerance:
                place = ("variants", name)
                yield complain(read.document, place, "types with a tolerance", f"{dtype}, which has none")


def rates(project: Project) -> RateCard:
    """The project's own rate card, else the shipped one."""
    own = project.target / "rates.yaml"
    path = own if not project.bundled and own.is_file() else shipped("sessions/rates.yaml")
    read = read_file(path, RateCard)
    for field in ("gpu", "waiting"):
        if read.value.find(getattr(read.value, field)) is None:
            known = ", ".join(rate.name for rate in read.value.rates)
            raise DefinitionError(
                [complain(read.document, (field,), f"one of {known}", repr(getattr(read.value, field)))]
            )
    return read.value


def histories() -> list[History]:
    """The recorded histories that ship with loop."""
    return [read_file(path, History).value for path in sorted(shipped("sessions/history").glob("*.yaml"))]


def choose(found: dict[str, Read[T]], name: str, kind: str) -> Read[T]:
    """One definition by name. Raises LoopError with the nearest names."""
    if name in found:
        return found[name]
    close = nearest(name, list(found))
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(found)}"
    raise LoopError(f"no {kind} {name!r}", hint=hint)
