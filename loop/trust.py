"""Definitions from outside the package run commands and code: only after the user has seen and allowed them.

The hash covers definitions (target, patterns, plans, templates), never kernel sources: editing a kernel
never asks again.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from loop.documents import content_hash, to_json, write_atomic
from loop.errors import LoopError
from loop.locks import waiting
from loop.model.pattern import Pattern
from loop.model.target import CAbiVariant, CommandVariant, PythonVariant, Target, Variant
from loop.places import Project, state_folder

FILE = "trusted.json"
DEFINITIONS = ("patterns", "plans", "templates")


def definition_files(project: Project) -> list[Path]:
    """The files whose content is trusted or not."""
    folders = [folder for name in DEFINITIONS if (folder := project.own(name))]
    return [
        project.manifest,
        *(path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()),
    ]


def definition_hash(project: Project) -> str:
    """Hash of all definitions of a project, with their names."""
    parts = []
    for path in definition_files(project):
        parts += [str(path.relative_to(project.target)), content_hash(path.read_bytes())]
    return content_hash("\0".join(parts))


def is_trusted(project: Project) -> bool:
    """Whether these very definitions were allowed; what ships with loop always is."""
    return project.bundled or _granted().get(str(project.target)) == definition_hash(project)


def grant(project: Project, digest: str) -> None:
    """Remember that the user allowed the definitions of this hash: those that were shown, whatever is there now.

    Raises LoopError when that cannot be written.
    """
    path = state_folder() / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoopError(f"{path.parent}: cannot be made: {error.strerror}", hint="set LOOP_STATE") from error
    with waiting(path.with_suffix(".lock")):  # Another one may be granted at this very moment.
        write_atomic(path, to_json({**_granted(), str(project.target): digest}))


def _granted() -> dict[str, str]:
    try:
        found = json.loads((state_folder() / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def refusal(project: Project) -> LoopError:
    """What to say when nobody can be asked."""
    return LoopError(
        f"{project.manifest}: these definitions run commands and code, and have not been allowed yet",
        hint=f"look at them, then `loop trust {project.target}`",
    )


def what_runs(target: Target, own_patterns: list[Pattern]) -> Iterator[str]:
    """Every command and code that the definitions would run, a line each."""
    for name, variant in target.variants.items():
        yield f"variant {name}: {_variant(variant)}"
        yield from (f"variant {name}: {line}" for line in _also_compiled(variant))
    functions = {"reference": target.reference, "plain": target.plain, "baseline": target.baseline}
    for word, function in functions.items():
        if function is not None:
            yield f"{word}: Python {function.python}"
    yield from (f"property: Python {name}" for name in target.properties)
    for name, part in target.components.items():
        made = [function.python for function in (part.reference, part.plain, part.inputs, part.form) if function]
        yield f"component {name}: calls {part.entry} of {part.of}; Python {', '.join(made)}"
    for pattern in own_patterns:
        for step in pattern.steps:
            command = step.arguments.get("run")
            if command is not None:
                settings = (f"{key}={value} " for key, value in step.arguments.get("environment", {}).items())
                yield f"pattern {pattern.name}, step {step.id}: {''.join(settings)}{command}"


def _also_compiled(variant: Variant) -> Iterator[str]:
    """What is compiled besides the variant itself."""
    if not isinstance(variant, CAbiVariant):
        return
    if variant.emulation is not None:
        recipe = [variant.emulation.compiler, *variant.emulation.flags, *variant.sources]
        yield f"{' '.join(recipe)}, then loads the result: its emulation"
    for one in variant.must_not_compile:
        yield f"{' '.join([variant.build.compiler, *one.flags, one.source])}, which has to fail"


def _variant(variant: Variant) -> str:
    if isinstance(variant, CAbiVariant):
        return (
            " ".join([variant.build.compiler, *variant.build.flags, *variant.sources]) + ", then loads the result"
        )
    if isinstance(variant, PythonVariant):
        return f"imports Python {variant.module}:{variant.function}"
    assert isinstance(variant, CommandVariant)
    return " ".join(variant.run)
