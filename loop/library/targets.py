"""A project's target: its manifest, with workloads, formulas and tolerances checked against each other."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loop.base.documents import Complaint, Document, complain, did_you_mean, hash_files
from loop.base.documents.complaints import Place
from loop.base.errors import DefinitionError, one_of
from loop.base.expressions import ExpressionError
from loop.base.places import Project
from loop.library.definitions import Read, check_expression, read_file
from loop.model.dtypes import is_floating
from loop.model.signature import ANY
from loop.model.target import TUNED, CAbiVariant, CommandVariant, Entry, Target, Tuning, Variant, literal
from loop.model.workloads import VALUES, WorkloadError, expand, unsupported

PASSED_OVER = ("__pycache__", "node_modules", "build")
COMPILED = {".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hxx"}
ENDINGS = {".yaml", ".yml", ".json", ".py", ".sh", ".ptx", *COMPILED}
"""What a definition, a kernel or a script is called."""


def target(project: Project) -> Read[Target]:
    """The project's target, its workloads and formulas checked."""
    read = read_file(project.manifest, Target)
    complaints = [*_of_the_whole(read.document, read.value)]
    for name, variant in read.value.variants.items():
        complaints += _of_a_variant(read.document, read.value, name, variant, project.target)
    for name in read.value.components:
        complaints += _of_a_component(read.document, read.value, name)
    for name in read.value.tuning:
        complaints += _of_a_tuning(read.document, read.value, name)
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


def _of_the_whole(document: Document, target: Target) -> Iterator[Complaint]:
    """Formulas, types, workloads and values, and a signature that nothing can make inputs for."""
    for field in ("flops", "bytes", "memory"):
        if (text := getattr(target, field)) is not None:
            yield from check_expression(document, (field,), text, _formula_names(target))
    for device, dtype in target.dtypes.items():
        yield from _tolerated(document, target, [dtype], ("dtypes", device))
    for name, entries in target.workloads.items():
        yield from _of_entries(document, target, entries, ("workloads", name))
    yield from _of_values(document, target, ("values",))
    for field in () if target.is_plain else ("properties", "components"):
        if getattr(target, field):
            expected = "tensors one by one and one output, whose dimensions the signature tells"
            yield complain(document, (field,), expected, "a target of another kind", key=True)
    for name, attribute in target.signature.attributes.items():
        if attribute.kind == "text":  # A C kernel cannot take one.
            place = ("signature", "attributes", name, "kind")
            yield complain(document, place, "flag, choice or number", "text", "a text can be a parameter")
    if target.generator is None:
        yield from _of_inputs_without_a_generator(document, target)


def _of_inputs_without_a_generator(document: Document, target: Target) -> Iterator[Complaint]:
    signature = target.signature
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


def _formula_names(target: Target) -> set[str]:
    """What a formula of the manifest may read."""
    return {*target.signature.dimensions, *target.signature.named, "itemsize"}


def _tolerated(document: Document, target: Target, dtypes: Iterable[object], place: Place) -> Iterator[Complaint]:
    """Every element type that is computed somewhere needs a tolerance."""
    for dtype in dtypes:
        if dtype not in target.tolerance:
            yield complain(document, place, "types with a tolerance", f"{dtype}, which has none")


def _of_entries(document: Document, target: Target, entries: Sequence[Entry], place: Place) -> Iterator[Complaint]:
    """Workloads that do not fit the signature of their target, or whose type has no tolerance."""
    for index, entry in enumerate(entries):
        try:
            expand(target.model_copy(update={"workloads": {"lone": (entry,)}}), ["lone"], "float32")
        except WorkloadError as error:
            where = (*place, index, error.key) if error.key in entry else (*place, index)
            hint = did_you_mean(error.key, error.known)
            expected = error.expected if error.key in entry else f"{error.expected} for {error.key}"
            yield complain(document, where, expected, error.got, hint, key=bool(error.known))
        named = entry.get("dtype", ())
        dtypes = named if isinstance(named, tuple) else (named,)
        yield from _tolerated(document, target, dtypes, (*place, index, "dtype"))


def _of_values(document: Document, target: Target, place: Place) -> Iterator[Complaint]:
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


def _of_a_variant(
    document: Document, target: Target, name: str, variant: Variant, folder: Path
) -> Iterator[Complaint]:
    """Types, `takes` and `launch` of a variant; files that are not there; words that stand for nothing."""
    place, known = ("variants", name), _formula_names(target)
    if "dtypes" in variant.model_fields_set:
        for index, dtype in enumerate(variant.dtypes):
            yield from _tolerated(document, target, [dtype], (*place, "dtypes", index))
    elif not set(variant.dtypes) & set(target.tolerance):
        expected = f"`dtypes`: what goes without saying, {' or '.join(variant.dtypes)}, has no tolerance"
        yield complain(document, place, expected, "none", key=True)
    if variant.takes is not None:
        names = known | {"dtype", "layout"}
        unread = list(check_expression(document, (*place, "takes"), variant.takes, names))
        yield from unread or _without_an_answer(document, target, variant, (*place, "takes"))
    if target.modules is not None and isinstance(variant, CAbiVariant | CommandVariant):
        expected = "a variant in Python: with `modules` functions are classes"
        yield complain(document, (*place, "kind"), expected, variant.kind)
    if isinstance(variant, CommandVariant):
        signature = target.signature
        words = [*signature.dimensions, *signature.attributes, *signature.inputs, *signature.outputs, "dtype"]
        for index, word in enumerate(variant.run):
            placeholder = re.fullmatch(r"(?:--?[\w-]+=)?\{(\w+)\}", word)
            if placeholder and placeholder[1] not in words:
                expected = f"one of {', '.join(f'{{{word}}}' for word in words)}"
                hint = did_you_mean(placeholder[1], words)
                yield complain(document, (*place, "run", index), expected, repr(word), hint)
        return
    names = known if variant.device == "cuda" else known | {"cores", "lanes"}
    for field, text in variant.launch or ():
        if isinstance(text, str):
            yield from check_expression(document, (*place, "launch", field), text, names)
    if isinstance(variant, CAbiVariant):
        files: list[tuple[Place, str]] = [(("sources", n), file) for n, file in enumerate(variant.sources)]
        files += [
            (("must_not_compile", n, "source"), file.source) for n, file in enumerate(variant.must_not_compile)
        ]
        files += [(("instances", n, "file"), instance.file) for n, instance in enumerate(variant.instances)]
        for inner, file in files:
            if not (folder / file).is_file():
                yield complain(document, (*place, *inner), "a file", f"{file}, which is not there")
        for index, flag in enumerate(variant.build.flags):
            if flag.startswith("-o"):
                where = (*place, "build", "flags", index)
                yield complain(document, where, "flags without an output", repr(flag), "loop names the output")


def _without_an_answer(document: Document, target: Target, variant: Variant, place: Place) -> Iterator[Complaint]:
    """The first workload for which a `takes` is neither true nor false."""
    try:
        workloads = expand(target, target.workloads, variant.dtypes[0])
    except WorkloadError:
        return  # Another complaint says so.
    for workload in workloads:
        try:
            unsupported(variant, workload)
        except ExpressionError as error:
            got = f"{error.got} on {workload.name}"
            yield complain(document, place, error.expected, got, "a condition such as D % 8 == 0")
            return


def _compiled(target: Target) -> dict[str, CAbiVariant]:
    return {name: variant for name, variant in target.variants.items() if isinstance(variant, CAbiVariant)}


def _of_a_component(document: Document, target: Target, name: str) -> Iterator[Complaint]:
    """A component of variants that have none, and what does not fit its own signature."""
    component, compiled, place = target.components[name], _compiled(target), ("components", name)
    for variant in component.variants:
        if variant not in compiled:
            expected = f"a compiled variant ({', '.join(compiled) or 'there is none'})"
            yield complain(document, (*place, "of"), expected, repr(variant))
    part = target.part(component)
    yield from _of_entries(document, part, component.workloads, (*place, "workloads"))
    yield from _of_values(document, part, (*place, "values"))


def _of_a_tuning(document: Document, target: Target, name: str) -> Iterator[Complaint]:
    """What is tuned of no compiled variant, for no device of it, or on workloads that do not fit."""
    tuning, compiled, place = target.tuning[name], _compiled(target), ("tuning", name)
    variant = compiled.get(tuning.variant)
    if variant is None:
        expected = f"a compiled variant ({', '.join(compiled) or 'there is none'})"
        yield complain(document, (*place, "variant"), expected, repr(tuning.variant))
    else:
        if TUNED not in variant.build.flags:
            flag = f"{TUNED} among the flags of {tuning.variant}"
            yield complain(document, (*place, "variant"), flag, "none", "its macros reach the compiler there")
        device = "cpu" if variant.device == "cpu" else next(iter(target.devices), "sm_89")
        if tuning.best_on(device) is None:
            expected = f"values for a device that {tuning.variant} runs on, such as {device}"
            yield complain(document, (*place, "best"), expected, ", ".join(tuning.best) or "none")
    yield from _of_entries(document, target, tuning.workloads, (*place, "workloads"))
    yield from _of_points(document, tuning, place)
    earlier = list(target.tuning)[: list(target.tuning).index(name)]
    for other in [other for other in earlier if target.tuning[other].macro == tuning.macro][:1]:
        got = f"{tuning.macro}, which is that of {other}"
        yield complain(document, (*place, "macro"), "a macro of its own", got)


def _of_points(document: Document, tuning: Tuning, place: Place) -> Iterator[Complaint]:
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
