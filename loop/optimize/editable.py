"""Which files of a variant may be edited: those it is made of, without what judges and what others read."""

from collections.abc import Generator, Iterable
from pathlib import Path

from loop.base.errors import WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.build import Buildable
from loop.builds.compiler_errors import BuildFailed
from loop.builds.python_builds import files_of
from loop.formats.target import ANSWERS
from loop.library.made_of import made_of
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.steps.context import Context


def changeable(target: Target, folder: Path, name: str) -> bool:
    """Whether there is a file that may be edited: of a variant in Python one that does not judge it, too."""
    variant = target.variants[name]
    if isinstance(variant, PythonVariant):
        return bool(own(files_of([variant.module], folder), target, folder))
    return isinstance(variant, CAbiVariant)


def own(files: Iterable[str], target: Target, folder: Path) -> list[str]:
    """Those of a variant's files that do not judge it; of a task of another format what its answers hold."""
    sources = {*files} - judging(target, folder)
    return sorted(file for file in sources if made_of(folder) is None or Path(file).parts[0] == ANSWERS)


def judging(target: Target, folder: Path) -> set[str]:
    """The files of a target that say what is right, and what it is compared with."""
    modules = [name.partition(":")[0] for name in target.functions if ":" in name]
    return {MANIFEST, *files_of(modules, folder)}


def readers(context: Context, name: str) -> Generator[Tick, None, dict[str, tuple[str, ...]]]:
    """The target's files that a variant is built from, each with the others that this session does not judge."""
    bench = context.bench
    files = yield from _read(context, build.buildable(bench, [name])[name])
    others: dict[str, tuple[str, ...]] = dict.fromkeys(own(files, bench.target, bench.folder), ())
    for other, variant in bench.target.variants.items():
        if isinstance(variant, Buildable) and other not in context.task.variants:
            for file in (yield from _read_by_any(context, other, variant)):
                if file in others:
                    others[file] += (other,)
    return others


def _read(context: Context, variant: Buildable) -> Generator[Tick, None, tuple[str, ...]]:
    try:
        reads = yield from build.scan(variant, context.task.folder, context.bench.include)
    except BuildFailed as failed:
        raise WorkFailed(failed.message, failed.hint) from failed
    return reads.files


def _read_by_any(context: Context, name: str, variant: Buildable) -> Generator[Tick, None, tuple[str, ...]]:
    """What another variant is built from, by whichever compiler is there; its sources where none is."""
    target, bench = context.bench.target, context.bench
    if isinstance(variant, PythonVariant):
        return files_of([variant.module], context.task.folder)
    recipes = [target.compiled(name, bench.architecture)]
    recipes += [target.emulation(name)] if variant.emulation else []
    for recipe in recipes:
        try:
            return (yield from build.scan(recipe, context.task.folder, bench.include)).files
        except BuildFailed:
            continue
    return variant.sources
