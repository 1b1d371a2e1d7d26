"""Reads a target's manifest; checks that workloads, formulas and tolerances fit each other."""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from loop.base.documents import Document, Place, complain, did_you_mean, hash_files
from loop.base.errors import Complaint, DefinitionError
from loop.base.expressions import ExpressionError
from loop.library.definitions import ParsedFile, Project, check_expression, read_file
from loop.model import target as manifest
from loop.model.dtypes import is_floating
from loop.model.measurement import BASELINE
from loop.model.target import ANY, TUNED, CAbiVariant, CommandVariant, Entry, Target, literal_text
from loop.model.workloads import VALUE_KINDS, WorkloadError, expand_sets, explain_unsupported

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
SKIPPED_FOLDERS = ("__pycache__", "node_modules", "build")
COMPILED_ENDINGS = {".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hxx"}
SOURCE_ENDINGS = {".yaml", ".yml", ".json", ".py", ".sh", ".ptx", *COMPILED_ENDINGS}


def read_target(project: Project) -> ParsedFile[Target]:
    """Read and check the project's manifest. Raises DefinitionError with all mistakes."""
    definition = read_file(project.manifest, Target)
    checks = _ManifestChecker(definition.document, definition.value)
    checks.check_manifest()
    for name, variant in definition.value.variants.items():
        checks.check_variant(("variants", name), variant, project.target)
    for name, component in definition.value.components.items():
        checks.check_component(("components", name), component)
    for name, tuning in definition.value.tuning.items():
        checks.check_tuning(name, tuning)
    if checks.complaints:
        raise DefinitionError(checks.complaints)
    return definition


def sources_hash(project: Project) -> str:
    """Hash of all definitions and sources of a target. Results hold while it is equal."""
    return hash_files(source_files(project), project.target)


def source_files(project: Project) -> list[Path]:
    """Definitions, kernels, scripts, programs that variants run, sorted: hashed as the `ground`."""
    target_folder, paths = project.target, set[Path]()
    for variant in read_file(project.manifest, Target).value.variants.values():
        words = variant.run if isinstance(variant, CommandVariant) else ()
        paths |= {target_folder / word for word in words}
    for folder, names, files in os.walk(target_folder):
        candidates = [n for n in names if n not in SKIPPED_FOLDERS and not n.startswith(".")]
        # os.walk goes only into the folders that stay in this list.
        names[:] = [name for name in candidates if Path(folder, name) != project.sessions]
        paths |= {Path(folder, name) for name in files if Path(name).suffix in SOURCE_ENDINGS}
    return sorted(path for path in paths if path.is_relative_to(target_folder) and path.is_file())


def session_hashes(project: Project) -> dict[str, Any]:
    """The fields of a session's head that identify the target's files: `ground` (hash of all),
    `harness` (hash of those that no compiler reads) and `files` (name to the hash's beginning)."""
    root, files = project.target, source_files(project)
    uncompiled = [file for file in files if file.suffix not in COMPILED_ENDINGS]
    hashes = {file.relative_to(root).as_posix(): hash_files([file], root)[:12] for file in files}
    ground, harness = hash_files(files, root), hash_files(uncompiled, root)
    return {"ground": ground, "harness": harness, "files": hashes}


class _ManifestChecker:
    """Collects complaints about one manifest; each method checks one part."""

    def __init__(self, document: Document, target: Target) -> None:
        self.document, self.target = document, target
        self.complaints: list[Complaint] = []
        attributes = target.signature.attributes_and_parameters
        self.formula_names = {*target.signature.dimensions, *attributes, "itemsize"}
        """Names that formulas of the manifest may read."""
        variants = target.variants.items()
        self.compiled = {name: v for name, v in variants if isinstance(v, CAbiVariant)}

    def complain(
        self, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
    ) -> None:
        """Add a complaint about the value at `place`, or about its key if `key` is True."""
        self.complaints.append(complain(self.document, place, expected, got, hint, key=key))

    def check_manifest(self) -> None:
        """Complain about formulas, types, workloads, values, and inputs that nothing makes."""
        target = self.target
        self.check_signature(("signature",), target.signature)
        for field in ("flops", "bytes", "memory"):
            if (text := getattr(target, field)) is not None:
                mistakes = check_expression(self.document, (field,), text, self.formula_names)
                self.complaints += mistakes
        for device, dtype in target.dtypes.items():
            self.check_tolerances([dtype], ("dtypes", device))
        for name, entries in target.workloads.items():
            self.check_workloads(target, entries, ("workloads", name))
        self.check_values(target, ("values",))
        for field in () if target.is_plain else ("properties", "components"):
            if getattr(target, field):
                expected = "tensors one by one and one output, whose dimensions the signature tells"
                got = f"a target of another kind: {target.why_not_plain}"
                self.complain((field,), expected, got, key=True)
        for name, attribute in target.signature.attributes.items():
            if attribute.kind == "text":  # A C kernel cannot take one.
                place = ("signature", "attributes", name, "kind")
                self.complain(place, "flag, choice or number", "text", "a text can be a parameter")
        if target.generator is None:
            self.check_inputs()

    def check_signature(self, place: Place, signature: manifest.Signature) -> None:
        """Complain about names in `types`, `words`, `updates` that no tensor or dimension has."""
        tensors = (*signature.inputs, *signature.outputs)
        for name in signature.types:
            self.check_name((*place, "types", name), name, tensors, key=True)
        for name in signature.words:
            self.check_name((*place, "words", name), name, signature.dimensions, key=True)
        for output, name in signature.updates.items():
            self.check_name((*place, "updates", output), output, signature.outputs, key=True)
            self.check_name((*place, "updates", output), name, signature.inputs)

    def check_name(
        self, place: Place, name: str, choices: Collection[str], *, key: bool = False
    ) -> None:
        """Complain about a name not among `choices`. `key`: the name is a key of the manifest."""
        if name not in choices:
            expected = f"one of {', '.join(choices)}" if choices else "no name, as none exists"
            self.complain(place, expected, repr(name), key=key)

    def check_inputs(self) -> None:
        """Complain about inputs that nothing fills, and fields that only a generator reads."""
        signature = self.target.signature
        if not signature.inputs:
            expected = "inputs with their dimensions, or a `generator`"
            self.complain(("signature", "inputs"), expected, "none")
        for name, text in signature.inputs.items():
            if ANY in text.split():
                expected = f"dimensions of {name}, or a `generator` that makes it"
                self.complain(("signature", "inputs", name), expected, repr(text))
        for name, dtype in signature.types.items():
            if name in signature.inputs and not is_floating(dtype):
                expected = f"a `generator`: nothing else fills an input of {dtype}"
                self.complain(("signature", "types", name), expected, "none")
        for field in ("sizes", "parameters"):
            if getattr(signature, field):
                expected = f"a `generator` that takes {field}"
                self.complain(("signature", field), expected, "none", key=True)

    def check_compiled(self, place: Place, name: str) -> bool:
        """Whether `name` is a compiled variant. If not, complain at `place`."""
        if name not in self.compiled:
            expected = f"a compiled variant ({', '.join(self.compiled) or 'there is none'})"
            self.complain(place, expected, repr(name))
        return name in self.compiled

    def check_tolerances(self, dtypes: Iterable[object], place: Place) -> None:
        """Complain about each element type that has no tolerance."""
        for dtype in dtypes:
            if dtype not in self.target.tolerance:
                self.complain(place, "types with a tolerance", f"{dtype}, which has none")

    def check_workloads(self, target: Target, entries: Sequence[Entry], place: Place) -> None:
        """Complain about workloads that do not fit the signature, and types without a tolerance."""
        for index, entry in enumerate(entries):
            sets = {"lone": (entry,)}  # A set of this entry alone: its mistake hides no other's.
            try:
                expand_sets(target.model_copy(update={"workloads": sets}), sets, "float32")
            except WorkloadError as error:
                entry_place = (*place, index, error.key) if error.key in entry else (*place, index)
                hint = did_you_mean(error.key, error.known)
                expected = error.expected + ("" if error.key in entry else f" for {error.key}")
                self.complain(entry_place, expected, error.got, hint, key=bool(error.known))
            dtypes = entry.get("dtype", ())
            dtypes = dtypes if isinstance(dtypes, tuple) else (dtypes,)
            self.check_tolerances(dtypes, (*place, index, "dtype"))

    def check_values(self, target: Target, place: Place) -> None:
        """Complain about `values` (fillings) with a reserved name, unknown input or dimension."""
        inputs = target.signature.inputs
        for name, fill_by_tensor in target.values.items():
            if name in VALUE_KINDS:
                expected = f"a name of its own ({', '.join(VALUE_KINDS)} are there always)"
                self.complain((*place, name), expected, repr(name), key=True)
            for tensor, fill in fill_by_tensor.items():
                fill_place = (*place, name, tensor)
                dimension = fill.nan_along
                self.check_name(fill_place, tensor, inputs, key=True)
                if tensor in inputs and dimension and dimension not in inputs[tensor].split():
                    expected = f"a dimension of {tensor} ({inputs[tensor]})"
                    self.complain((*fill_place, "nan_along"), expected, repr(dimension))

    def check_variant(self, place: Place, variant: manifest.Variant, folder: Path) -> None:
        """Check a variant: types, condition `takes`, `launch`, files, unknown `{placeholders}`."""
        target = self.target
        if place[-1] == BASELINE:
            why = "the target's own baseline has this name"
            self.complain(place, "another name", BASELINE, why, key=True)
        if "dtypes" in variant.model_fields_set:
            for index, dtype in enumerate(variant.dtypes):
                self.check_tolerances([dtype], (*place, "dtypes", index))
        elif not set(variant.dtypes) & set(target.tolerance):
            expected = f"`dtypes`: the default, {' or '.join(variant.dtypes)}, has no tolerance"
            self.complain(place, expected, "none", key=True)
        if variant.takes is not None:
            takes_place = (*place, "takes")
            readable = self.formula_names | {"dtype", "layout"}
            mistakes = [*check_expression(self.document, takes_place, variant.takes, readable)]
            self.complaints += mistakes
            with contextlib.suppress(WorkloadError):  # `check_workloads` complains about it.
                workloads = expand_sets(target, target.workloads, variant.dtypes[0])
                for workload in () if mistakes else workloads:
                    try:
                        explain_unsupported(variant, workload)
                    except ExpressionError as error:
                        got = f"{error.got} on {workload.name}"
                        self.complain(takes_place, error.expected, got, "such as D % 8 == 0")
                        break
        if target.modules is not None and isinstance(variant, CAbiVariant | CommandVariant):
            expected = "a variant in Python: with `modules` functions are classes"
            self.complain((*place, "kind"), expected, variant.kind)
        if isinstance(variant, CommandVariant):
            signature = target.signature
            names = [*signature.dimensions, *signature.attributes]
            names += [*signature.inputs, *signature.outputs, "dtype"]
            for index, word in enumerate(variant.run):  # Calls need a value for each, as `--n={N}`.
                placeholder = re.fullmatch(r"(?:--?[\w-]+=)?\{(\w+)\}", word)
                if placeholder and placeholder[1] not in names:
                    expected = f"one of {{{'}, {'.join(names)}}}"
                    hint = did_you_mean(placeholder[1], names)
                    self.complain((*place, "run", index), expected, repr(word), hint)
            return
        readable = self.formula_names | (set() if variant.device == "cuda" else {"cores", "lanes"})
        for field, text in variant.launch or ():
            if isinstance(text, str):
                launch_place = (*place, "launch", field)
                self.complaints += check_expression(self.document, launch_place, text, readable)
        if isinstance(variant, CAbiVariant):
            file_by_place = dict[Place, str]()
            file_by_place |= {("sources", n): file for n, file in enumerate(variant.sources)}
            for n, snippet in enumerate(variant.must_not_compile):
                file_by_place["must_not_compile", n, "source"] = snippet.source
            for n, instance in enumerate(variant.instances):
                file_by_place["instances", n, "file"] = instance.file
                for field in ("symbol", "line"):
                    used, over = PLACEHOLDER.findall(getattr(instance, field)), instance.over
                    if set(used) != set(over):
                        wanted, got = (f"{{{'}, {'.join(names)}}}" for names in (over, used))
                        expected = f"{wanted} in it, as in `over`"
                        self.complain((*place, "instances", n, field), expected, got)
            for inner_place, file in file_by_place.items():
                if not (folder / file).is_file():
                    self.complain((*place, *inner_place), "a file", f"{file}, which is not there")

    def check_component(self, place: Place, component: manifest.Component) -> None:
        """Check a component: its variants are compiled; workloads and values fit its signature."""
        for variant in component.variants:
            self.check_compiled((*place, "of"), variant)
        if (component.signature is None) == (component.output is None):
            got = "both" if component.output else "neither"
            self.complain(place, "either `signature` or `output`", got)
            return
        if component.signature is not None:
            self.check_signature((*place, "signature"), component.signature)
        component_target = self.target.component_target(component)
        self.check_workloads(component_target, component.workloads, (*place, "workloads"))
        self.check_values(component_target, (*place, "values"))

    def check_tuning(self, name: str, tuning: manifest.Tuning) -> None:
        """Check a tuning: variant, `{tuned}` among its flags, device, workloads, values, macro."""
        place, target = ("tuning", name), self.target
        if self.check_compiled((*place, "variant"), tuning.variant):
            variant = self.compiled[tuning.variant]
            if TUNED not in variant.build.flags:
                flag = f"{TUNED} among the flags of {tuning.variant}"
                self.complain(
                    (*place, "variant"), flag, "none", "its macros reach the compiler there"
                )
            device = "cpu" if variant.device == "cpu" else next(iter(target.devices), "sm_89")
            if tuning.best_on(device) is None:
                expected = f"values for a device that {tuning.variant} runs on, such as {device}"
                self.complain((*place, "best"), expected, ", ".join(tuning.best) or "none")
        self.check_workloads(target, tuning.workloads, (*place, "workloads"))
        for device, best_values in tuning.best.items():
            if best_values.keys() != tuning.values.keys():
                expected = f"values for {', '.join(tuning.values)}"
                got = ", ".join(best_values) or "none"
                self.complain((*place, "best", device), expected, got)
                continue
            for field, value in best_values.items():
                allowed = [literal_text(candidate) for candidate in tuning.values[field]]
                if (got := literal_text(value)) not in allowed:
                    expected = f"one of {', '.join(allowed)}"
                    self.complain((*place, "best", device, field), expected, got)
        same_macro = [user for user in target.tuning if target.tuning[user].macro == tuning.macro]
        if same_macro[0] != name:  # Only the later ones are to blame.
            got = f"{tuning.macro}, which is that of {same_macro[0]}"
            self.complain((*place, "macro"), "a macro of its own", got)
