"""A project's target: its manifest, with workloads, formulas and tolerances checked against each other."""

from collections.abc import Iterator

from loop.documents import Complaint, complain, nearest
from loop.errors import DefinitionError
from loop.library.definitions import Read, check_expression, read_file
from loop.model.target import Target
from loop.model.workloads import WorkloadError, expand
from loop.places import Project


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
                unknown = error.expected.startswith("one of ") and error.got == "an unknown name"
                hint = nearest_hint(error)
                yield complain(read.document, place, error.expected, error.got, hint, key=unknown)


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


def _tolerance_complaints(read: Read[Target]) -> Iterator[Complaint]:
    for name, variant in read.value.variants.items():
        for dtype in variant.dtypes:
            if dtype not in read.value.tolerance:
                place = ("variants", name)
                yield complain(read.document, place, "types with a tolerance", f"{dtype}, which has none")
