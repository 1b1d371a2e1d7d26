"""A project's target: its manifest, with workloads, formulas and tolerances checked against each other."""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.documents import Complaint, Document, complain, did_you_mean, hash_files
from loop.base.documents.complaints import Place
from loop.base.errors import DefinitionError, one_of
from loop.base.expressions import ExpressionError
from loop.base.places import Project
from loop.library.definitions import Read, check_expression, read_file
from loop.model.dtypes import is_floating
from loop.model.signature import ANY
from loop.model.target import TUNED, CAbiVariant, CommandVariant, Target, Variant
from loop.model.tuning import Entry, Tuning, literal
from loop.model.workloads import VALUES, WorkloadError, expand, unsupported

PASSED_OVER = ("__pycache__", "node_modules", "build")
ENDINGS = {".yaml", ".yml", ".json", ".py", ".sh", ".ptx"}
COMPILED = {".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hxx"}
ENDINGS |= COMPILED
"""What a definition, a kernel or a script is called."""


def target(project: Project) -> Read[Target]:
    """The project's target, its workloads and formulas checked."""
    read = read_file(project.manifest, Target)
    complaints = [*_formula_complaints(read), *_tolerance_complaints(read)]
    for name, entries in read.value.workloads.items():
        complaints += _entry_complaints(read.document, read.value, entries, ("workloads", name))
    complaints += [*_values_complaints(read.document, read.value), *_component_complaints(read)]
    complaints += [*_launch_complaints(read), *_takes_complaints(read), *_build_complaints(read, project.target)]
    complaints += [*_promise_complaints(read, project.target), *_tuning_complaints(read), *_run_complaints(read)]
    complaints += _task_complaints(read)
    if complaints:
        raise DefinitionError(complaints)
    return read


def ground(project: Project) -> str:
    """Hash of the definitions and sources below the target's folder: what the steps of a session stand on.

    Files are known by their endings, so that what a step leaves there does not count; programs that a command
    variant runs are taken by name.
    """
    return hash_files(ground_files(project), project.target)


def ground_files(project: Project) -> list[Path]:
    """The files that `ground` is the hash of."""
    variants = read_file(project.manifest, Target).value.variants.values()
    words = [word for variant in variants if isinstance(variant, CommandVariant) for word in variant.run]
    programs = {path for path in (project.target / word for word in words) if path.is_file()}
    return sorted({*_sources(project), *(path for path in programs if path.is_relative_to(project.target))})


def harness(project: Project) -> str:
    """Hash of the files of `ground` that no compiler reads."""
    return hash_files((file for file in ground_files(project) if file.suffix not in COMPILED), project.target)


def _sources(project: Project) -> Iterator[Path]:
    for folder, names, files in os.walk(project.target):
        here = Path(folder)
        candidates = (name for name in names if name not in PASSED_OVER and not name.startswith("."))
        names[:] = [name for name in candidates if here / name != project.sessions]
        yield from (here / name for name in files if (here / name).suffix in ENDINGS and (here / name).is_file())


def _entry_complaints(
    document: Document, target: Target, entries: Sequence[Entry], place: Place
) -> Iterator[Complaint]:
    """Workloads that do not fit the signature of their target."""
    for index, entry in enumerate(entries):
        lone = target.model_copy(update={"workloads": {"lone": (entry,)}})
        try:
            expand(lone, ["lone"], "float32")
        except WorkloadError as error:
            where = (*place, index, error.key) if error.key in entry else (*place, index)
            hint = did_you_mean(error.key, error.known)
            yield complain(document, where, error.expected, error.got, hint, key=bool(error.known))


def _values_complaints(document: Document, target: Target, place: Place = ("values",)) -> Iterator[Complaint]:
    """Kinds of values that fill an input which is not there, or go along a dimension that it does not have."""
    inputs = target.signature.inputs
    for name, filled in target.values.items():
        if name in VALUES:
            others = f"a name of its own ({', '.join(VALUES)} are there always)"
            yield complain(document, (*place, name), others, repr(name), key=True)
        for tensor, fill in filled.items():
            where = (*place, name, tensor)
            if tensor not in inputs:
                expected = one_of(inputs, "a name from `inputs`, which is empty: its generator makes the values")
                yield complain(document, where, expected, repr(tensor), key=True)
            elif fill.nan_along is not None and fill.nan_along not in inputs[tensor].split():
                expected = f"a dimension of {tensor} ({inputs[tensor]})"
                yield complain(document, (*where, "nan_along"), expected, repr(fill.nan_along))


def _component_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """Components of variants that have none, and what does not fit a component's own signature."""
    target, document = read.value, read.document
    compiled = [name for name, variant in target.variants.items() if isinstance(variant, CAbiVariant)]
    for name, component in target.components.items():
        place, part = ("components", name), target.part(component)
        for variant in component.variants:
            if variant not in compiled:
                expected = f"a compiled variant ({', '.join(compiled) or 'there is none'})"
                yield complain(document, (*place, "of"), expected, repr(variant))
        yield from _entry_complaints(document, part, component.workloads, (*place, "workloads"))
        yield from _values_complaints(document, part, (*place, "values"))
        for index, entry in enumerate(component.workloads):
            where = (*place, "workloads", index)
            yield from _intolerant(document, part, entry, where)


def _formula_names(target: Target) -> set[str]:
    """What a formula of the manifest may read."""
    return {*target.signature.dimensions, *target.signature.named, "itemsize"}


def _formula_complaints(read: Read[Target]) -> Iterator[Complaint]:
    known = _formula_names(read.value)
    for field in ("flops", "bytes", "memory"):
        text = getattr(read.value, field)
        if text is not None:
            yield from check_expression(read.document, (field,), text, known, arithmetic=True)


def _launch_complaints(read: Read[Target]) -> Iterator[Complaint]:
    known = _formula_names(read.value)
    for name, variant in read.value.variants.items():
        launch = None if isinstance(variant, CommandVariant) else variant.launch
        names = known if variant.device == "cuda" else known | {"cores", "lanes"}
        for field, text in launch or ():
            if isinstance(text, str):
                place = ("variants", name, "launch", field)
                yield from check_expression(read.document, place, text, names, arithmetic=True)


def _takes_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """A `takes` that cannot be read, or has no answer for one of the target's workloads."""
    target = read.value
    known = _formula_names(target) | {"dtype", "layout"}
    for name, variant in target.variants.items():
        place = ("variants", name, "takes")
        if variant.takes is None:
            continue
        unread = list(check_expression(read.document, place, variant.takes, known, remainders=True))
        yield from unread or _no_answer(read, variant, place)


def _no_answer(read: Read[Target], variant: Variant, place: Place) -> Iterator[Complaint]:
    """The first workload for which a `takes` is neither true nor false."""
    try:
        workloads = expand(read.value, read.value.workloads, variant.dtypes[0])
    except WorkloadError:
        return  # Another complaint says so.
    for workload in workloads:
        try:
            unsupported(variant, workload)
        except ExpressionError as error:
            got = f"{error.got} on {workload.name}"
            yield complain(read.document, place, error.expected, got, "a condition such as D % 8 == 0")
            return


def _tolerance_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """Every element type that is computed somewhere needs a tolerance."""
    target = read.value
    used: list[tuple[Place, str]] = [(("dtypes", name), dtype) for name, dtype in target.dtypes.items()]
    for name, variant in target.variants.items():
        if "dtypes" in variant.model_fields_set:
            used += [(("variants", name, "dtypes", index), dtype) for index, dtype in enumerate(variant.dtypes)]
        elif not set(variant.dtypes) & set(target.tolerance):
            expected = f"`dtypes`: what goes without saying, {' or '.join(variant.dtypes)}, has no tolerance"
            yield complain(read.document, ("variants", name), expected, "none", key=True)
    for place, dtype in used:
        if dtype not in target.tolerance:
            yield complain(read.document, place, "types with a tolerance", f"{dtype}, which has none")
    for name, entries in target.workloads.items():
        for index, entry in enumerate(entries):
            yield from _intolerant(read.document, target, entry, ("workloads", name, index))
    for name, tuning in target.tuning.items():
        for index, entry in enumerate(tuning.workloads):
            yield from _intolerant(read.document, target, entry, ("tuning", name, "workloads", index))


def _intolerant(document: Document, target: Target, entry: Entry, place: Place) -> Iterator[Complaint]:
    """Types of a workload that have no tolerance."""
    named = entry.get("dtype", ())
    for dtype in named if isinstance(named, tuple) else (named,):
        if dtype not in target.tolerance:
            yield complain(document, (*place, "dtype"), "types with a tolerance", f"{dtype}, which has none")


def _build_complaints(read: Read[Target], folder: Path) -> Iterator[Complaint]:
    """Sources that are not there, and flags that would send the library elsewhere."""
    for name, variant in read.value.variants.items():
        if not isinstance(variant, CAbiVariant):
            continue
        for index, source in enumerate(variant.sources):
            if not (folder / source).is_file():
                place: Place = ("variants", name, "sources", index)
                yield complain(read.document, place, "a file", f"{source}, which is not there")
        for index, flag in enumerate(variant.build.flags):
            if flag.startswith("-o"):
                place = ("variants", name, "build", "flags", index)
                yield complain(
                    read.document, place, "flags without an output", repr(flag), "loop names the output"
                )


def _run_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """Arguments of a program that are a placeholder for nothing."""
    signature = read.value.signature
    known = [*signature.dimensions, *signature.attributes, *signature.inputs, *signature.outputs, "dtype"]
    for name, variant in read.value.variants.items():
        for index, word in enumerate(variant.run if isinstance(variant, CommandVariant) else ()):
            placeholder = re.fullmatch(r"(?:--?[\w-]+=)?\{(\w+)\}", word)
            if placeholder and placeholder[1] not in known:
                expected = f"one of {', '.join(f'{{{name}}}' for name in known)}"
                hint = did_you_mean(placeholder[1], known)
                yield complain(read.document, ("variants", name, "run", index), expected, repr(word), hint)


def _tuning_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """What is tuned of no compiled variant, or on workloads that do not fit."""
    target = read.value
    compiled = {name: variant for name, variant in target.variants.items() if isinstance(variant, CAbiVariant)}
    for name, tuning in target.tuning.items():
        place = ("tuning", name)
        if tuning.variant not in compiled:
            expected = f"a compiled variant ({', '.join(compiled) or 'there is none'})"
            yield complain(read.document, (*place, "variant"), expected, repr(tuning.variant))
        elif TUNED not in compiled[tuning.variant].build.flags:
            flag = f"{TUNED} among the flags of {tuning.variant}"
            yield complain(read.document, (*place, "variant"), flag, "none", "its macros reach the compiler there")
        yield from _entry_complaints(read.document, target, tuning.workloads, (*place, "workloads"))
        yield from _point_complaints(read.document, tuning, place)
        yield from _device_complaints(read, name)
        earlier = itertools.takewhile(lambda other, name=name: other != name, target.tuning)  # type: ignore[misc]
        others = [other for other in earlier if target.tuning[other].macro == tuning.macro]
        if others:
            got = f"{tuning.macro}, which is that of {others[0]}"
            yield complain(read.document, (*place, "macro"), "a macro of its own", got)


def _point_complaints(document: Document, tuning: Tuning, place: Place) -> Iterator[Complaint]:
    """Values that stand in a list twice, and best ones that no list has."""
    for field, values in tuning.values.items():
        for index, value in enumerate(values):
            if value in values[:index]:
                where = (*place, "values", field, index)
                yield complain(document, where, "values that differ", f"{literal(value)} twice")
    for device, chosen in tuning.best.items():
        for field, value in chosen.items():
            listed = [literal(other) for other in tuning.values[field]]
            if literal(value) not in listed:
                where = (*place, "best", device, field)
                yield complain(document, where, f"one of {', '.join(listed)}", literal(value))


def _device_complaints(read: Read[Target], name: str) -> Iterator[Complaint]:
    """Best values for no device that the variant runs on: nothing would reach the compiler."""
    tuning = read.value.tuning[name]
    variant = read.value.variants.get(tuning.variant)
    if variant is None or variant.device == "any":
        return
    first = "cpu" if variant.device == "cpu" else next(iter(read.value.devices), "sm_89")
    if tuning.best_on(first) is None:
        expected = f"values for a device that {tuning.variant} runs on, such as {first}"
        got = ", ".join(tuning.best) or "none"
        yield complain(read.document, ("tuning", name, "best"), expected, got)


def _promise_complaints(read: Read[Target], folder: Path) -> Iterator[Complaint]:
    """Files that promises about the code name, and that are not there."""
    for name, variant in read.value.variants.items():
        if not isinstance(variant, CAbiVariant):
            continue
        named = [
            (("must_not_compile", n, "source"), snippet.source)
            for n, snippet in enumerate(variant.must_not_compile)
        ]
        named += [(("instances", n, "file"), instance.file) for n, instance in enumerate(variant.instances)]
        for place, file in named:
            if not (folder / file).is_file():
                where = ("variants", name, *place)
                yield complain(read.document, where, "a file", f"{file}, which is not there")


def _task_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """Inputs that nobody makes, values that nobody takes, variants that cannot be called with what there is."""
    if read.value.generator is None:
        yield from _unmade(read)
    for field in () if read.value.is_plain else ("properties", "components"):
        if getattr(read.value, field):
            expected = "tensors one by one and one output, whose dimensions the signature tells"
            yield complain(read.document, (field,), expected, "a target of another kind", key=True)
    for name, attribute in read.value.signature.attributes.items():
        if attribute.kind == "text":  # A C kernel cannot take one.
            place = ("signature", "attributes", name, "kind")
            yield complain(read.document, place, "flag, choice or number", "text", "a text can be a parameter")
    if read.value.modules is not None:
        for name, variant in read.value.variants.items():
            if isinstance(variant, CAbiVariant | CommandVariant):
                expected = "a variant in Python: with `modules` functions are classes"
                yield complain(read.document, ("variants", name, "kind"), expected, variant.kind)


def _unmade(read: Read[Target]) -> Iterator[Complaint]:
    """What only a generator can make, or is given to."""
    signature, document = read.value.signature, read.document
    if not signature.inputs:
        yield complain(document, ("signature", "inputs"), "inputs with their dimensions, or a `generator`", "none")
    for name, text in signature.inputs.items():
        if ANY in text.split():
            expected = f"dimensions of {name}, or a `generator` that makes it"
            yield complain(document, ("signature", "inputs", name), expected, repr(text))
    for name, dtype in signature.types.items():
        if name in signature.inputs and not is_floating(dtype):
            expected = f"a `generator`: nothing else fills an input of {dtype}"
            yield complain(document, ("signature", "types", name), expected, "none")
    for field in ("sizes", "parameters"):
        if getattr(signature, field):
            yield complain(document, ("signature", field), f"a `generator` that takes {field}", "none", key=True)
