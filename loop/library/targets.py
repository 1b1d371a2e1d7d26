"""Reads a target's manifest. Checks that workloads, formulas and tolerances fit each other."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from loop.base.documents import Complaint, Document, complain, did_you_mean, hash_files
from loop.base.documents.complaints import Place
from loop.base.errors import DefinitionError, list_choices
from loop.base.expressions import ExpressionError
from loop.base.places import Project
from loop.library.definitions import Read, check_expression, read_file
from loop.model.dtypes import is_floating
from loop.model.signature import ANY
from loop.model.target import (
    TUNED,
    CAbiVariant,
    CommandVariant,
    Component,
    Entry,
    Target,
    Tuning,
    Variant,
    literal_text,
)
from loop.model.workloads import VALUES, WorkloadError, expand_sets, reason_unsupported

PASSED_OVER = ("__pycache__", "node_modules", "build")
COMPILED = {".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hxx"}
ENDINGS = {".yaml", ".yml", ".json", ".py", ".sh", ".ptx", *COMPILED}
"""File endings of definitions, kernels and scripts."""


def target(project: Project) -> Read[Target]:
    """Read and check the project's manifest. Raises DefinitionError with all mistakes."""
    read = read_file(project.manifest, Target)
    checks = _Checks(read.document, read.value)
    checks.whole()
    for name, variant in read.value.variants.items():
        checks.variant(("variants", name), variant, project.target)
    for name, component in read.value.components.items():
        checks.component(("components", name), component)
    for name, tuning in read.value.tuning.items():
        checks.tuning(name, tuning)
    if checks.complaints:
        raise DefinitionError(checks.complaints)
    return read


def sources_hash(project: Project) -> str:
    """Hash of all definitions and sources below the target's folder. Results hold while it is equal.

    Selects files by ending, so that output of steps does not count; adds the programs that command
    variants run.
    """
    return hash_files(ground_files(project), project.target)


def ground_files(project: Project) -> list[Path]:
    """The files whose hash is `ground`, sorted."""
    top, paths = project.target, set[Path]()
    for variant in read_file(project.manifest, Target).value.variants.values():
        words = variant.run if isinstance(variant, CommandVariant) else ()
        paths |= {path for path in (top / word for word in words) if path.is_relative_to(top)}
    for folder, names, files in os.walk(top):
        here = Path(folder)
        candidates = (name for name in names if name not in PASSED_OVER and not name.startswith("."))
        names[:] = [name for name in candidates if here / name != project.sessions]
        paths |= {here / name for name in files if (here / name).suffix in ENDINGS}
    return sorted(path for path in paths if path.is_file())


def uncompiled_hash(project: Project) -> str:
    """Hash of the non-compiled files of `ground`: reference, workloads, tolerances, scripts."""
    return hash_files((file for file in ground_files(project) if file.suffix not in COMPILED), project.target)


class _Checks:
    """Collects complaints about one manifest; each method checks one part."""

    def __init__(self, document: Document, target: Target) -> None:
        self.document, self.target = document, target
        self.complaints: list[Complaint] = []
        self.formula_names = {
            *target.signature.dimensions,
            *target.signature.attributes_and_parameters,
            "itemsize",
        }
        """Names that formulas of the manifest may read."""
        self.compiled = {name: v for name, v in target.variants.items() if isinstance(v, CAbiVariant)}

    def say(self, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False) -> None:
        """Add a complaint about the value at `place`, or about its key if `key` is True."""
        self.complaints.append(complain(self.document, place, expected, got, hint, key=key))

    def expression(self, place: Place, text: str, known: set[str]) -> bool:
        """Check an expression that may read names in `known`. Returns True if it has no mistake."""
        complaints = list(check_expression(self.document, place, text, known))
        self.complaints += complaints
        return not complaints

    def whole(self) -> None:
        """Check formulas, types, workloads, values, and that something can make the inputs."""
        target = self.target
        for field in ("flops", "bytes", "memory"):
            if (text := getattr(target, field)) is not None:
                self.expression((field,), text, self.formula_names)
        for device, dtype in target.dtypes.items():
            self.tolerated([dtype], ("dtypes", device))
        for name, entries in target.workloads.items():
            self.entries(target, entries, ("workloads", name))
        self.values(target, ("values",))
        for field in () if target.is_plain else ("properties", "components"):
            if getattr(target, field):
                expected = "tensors one by one and one output, whose dimensions the signature tells"
                self.say((field,), expected, "a target of another kind", key=True)
        for name, attribute in target.signature.attributes.items():
            if attribute.kind == "text":  # A C kernel cannot take one.
                place = ("signature", "attributes", name, "kind")
                self.say(place, "flag, choice or number", "text", "a text can be a parameter")
        if target.generator is None:
            self.without_a_generator()

    def without_a_generator(self) -> None:
        """Without a generator: complain about inputs nothing fills, and about generator-only fields."""
        signature = self.target.signature
        if not signature.inputs:
            self.say(("signature", "inputs"), "inputs with their dimensions, or a `generator`", "none")
        for name, text in signature.inputs.items():
            if ANY in text.split():
                expected = f"dimensions of {name}, or a `generator` that makes it"
                self.say(("signature", "inputs", name), expected, repr(text))
        for name, dtype in signature.types.items():
            if name in signature.inputs and not is_floating(dtype):
                expected = f"a `generator`: nothing else fills an input of {dtype}"
                self.say(("signature", "types", name), expected, "none")
        for field in ("sizes", "parameters"):
            if getattr(signature, field):
                self.say(("signature", field), f"a `generator` that takes {field}", "none", key=True)

    def is_compiled(self, place: Place, name: str) -> bool:
        """Check that `name` is a compiled variant; complain at `place` and return False if not."""
        if name not in self.compiled:
            expected = f"a compiled variant ({', '.join(self.compiled) or 'there is none'})"
            self.say(place, expected, repr(name))
        return name in self.compiled

    def tolerated(self, dtypes: Iterable[object], place: Place) -> None:
        """Complain about each element type that has no tolerance."""
        for dtype in dtypes:
            if dtype not in self.target.tolerance:
                self.say(place, "types with a tolerance", f"{dtype}, which has none")

    def entries(self, part: Target, entries: Sequence[Entry], place: Place) -> None:
        """Complain about workloads that do not fit the signature, or whose type has no tolerance."""
        for index, entry in enumerate(entries):
            try:
                expand_sets(part.model_copy(update={"workloads": {"lone": (entry,)}}), ["lone"], "float32")
            except WorkloadError as error:
                where = (*place, index, error.key) if error.key in entry else (*place, index)
                hint = did_you_mean(error.key, error.known)
                expected = error.expected if error.key in entry else f"{error.expected} for {error.key}"
                self.say(where, expected, error.got, hint, key=bool(error.known))
            named = entry.get("dtype", ())
            self.tolerated(named if isinstance(named, tuple) else (named,), (*place, index, "dtype"))

    def values(self, part: Target, place: Place) -> None:
        """Complain about kinds of values that name an unknown input or dimension."""
        inputs = part.signature.inputs
        for name, filled in part.values.items():
            if name in VALUES:
                others = f"a name of its own ({', '.join(VALUES)} are there always)"
                self.say((*place, name), others, repr(name), key=True)
            for tensor, fill in filled.items():
                where = (*place, name, tensor)
                if tensor not in inputs:
                    nothing = "a name from `inputs`, which is empty: its generator makes the values"
                    self.say(where, list_choices(inputs, nothing), repr(tensor), key=True)
                elif fill.nan_along is not None and fill.nan_along not in inputs[tensor].split():
                    expected = f"a dimension of {tensor} ({inputs[tensor]})"
                    self.say((*where, "nan_along"), expected, repr(fill.nan_along))

    def variant(self, place: Place, variant: Variant, folder: Path) -> None:
        """Check a variant: types, `takes`, `launch`, missing files, unknown `{placeholders}`."""
        target, known = self.target, self.formula_names
        if "dtypes" in variant.model_fields_set:
            for index, dtype in enumerate(variant.dtypes):
                self.tolerated([dtype], (*place, "dtypes", index))
        elif not set(variant.dtypes) & set(target.tolerance):
            expected = f"`dtypes`: what goes without saying, {' or '.join(variant.dtypes)}, has no tolerance"
            self.say(place, expected, "none", key=True)
        where = (*place, "takes")
        if variant.takes is not None and self.expression(where, variant.takes, known | {"dtype", "layout"}):
            self.answered(variant, where)
        if target.modules is not None and isinstance(variant, CAbiVariant | CommandVariant):
            expected = "a variant in Python: with `modules` functions are classes"
            self.say((*place, "kind"), expected, variant.kind)
        if isinstance(variant, CommandVariant):
            signature = target.signature
            words = [*signature.dimensions, *signature.attributes, *signature.inputs, *signature.outputs, "dtype"]
            for index, word in enumerate(variant.run):
                placeholder = re.fullmatch(r"(?:--?[\w-]+=)?\{(\w+)\}", word)
                if placeholder and placeholder[1] not in words:
                    expected = f"one of {', '.join(f'{{{word}}}' for word in words)}"
                    self.say((*place, "run", index), expected, repr(word), did_you_mean(placeholder[1], words))
            return
        names = known if variant.device == "cuda" else known | {"cores", "lanes"}
        for field, text in variant.launch or ():
            if isinstance(text, str):
                self.expression((*place, "launch", field), text, names)
        if isinstance(variant, CAbiVariant):
            files: dict[Place, str] = {("sources", n): file for n, file in enumerate(variant.sources)}
            for n, snippet in enumerate(variant.must_not_compile):
                files["must_not_compile", n, "source"] = snippet.source
            for n, instance in enumerate(variant.instances):
                files["instances", n, "file"] = instance.file
            for inner, file in files.items():
                if not (folder / file).is_file():
                    self.say((*place, *inner), "a file", f"{file}, which is not there")
            for index, flag in enumerate(variant.build.flags):
                if flag.startswith("-o"):
                    where = (*place, "build", "flags", index)
                    self.say(where, "flags without an output", repr(flag), "loop names the output")

    def answered(self, variant: Variant, place: Place) -> None:
        """Complain about the first workload on which `takes` is neither true nor false."""
        try:
            workloads = expand_sets(self.target, self.target.workloads, variant.dtypes[0])
        except WorkloadError:
            return  # `entries` complains about it.
        for workload in workloads:
            try:
                reason_unsupported(variant, workload)
            except ExpressionError as error:
                got = f"{error.got} on {workload.name}"
                self.say(place, error.expected, got, "a condition such as D % 8 == 0")
                return

    def component(self, place: Place, component: Component) -> None:
        """Check that a component's variants are compiled, and that its workloads fit its signature."""
        for variant in component.variants:
            self.is_compiled((*place, "of"), variant)
        part = self.target.component_target(component)
        self.entries(part, component.workloads, (*place, "workloads"))
        self.values(part, (*place, "values"))

    def tuning(self, name: str, tuning: Tuning) -> None:
        """Check a tuning: compiled variant, `{tuned}` flag, device, workloads, best values, macro."""
        place, target = ("tuning", name), self.target
        if self.is_compiled((*place, "variant"), tuning.variant):
            variant = self.compiled[tuning.variant]
            if TUNED not in variant.build.flags:
                flag = f"{TUNED} among the flags of {tuning.variant}"
                self.say((*place, "variant"), flag, "none", "its macros reach the compiler there")
            device = "cpu" if variant.device == "cpu" else next(iter(target.devices), "sm_89")
            if tuning.best_on(device) is None:
                expected = f"values for a device that {tuning.variant} runs on, such as {device}"
                self.say((*place, "best"), expected, ", ".join(tuning.best) or "none")
        self.entries(target, tuning.workloads, (*place, "workloads"))
        for device, chosen in tuning.best.items():
            for field, value in chosen.items():
                listed = [literal_text(other) for other in tuning.values[field]]
                if literal_text(value) not in listed:
                    self.say((*place, "best", device, field), f"one of {', '.join(listed)}", literal_text(value))
        first = next(other for other in target.tuning if target.tuning[other].macro == tuning.macro)
        if first != name:
            got = f"{tuning.macro}, which is that of {first}"
            self.say((*place, "macro"), "a macro of its own", got)
