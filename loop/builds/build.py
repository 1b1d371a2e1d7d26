"""From sources to a shared library that carries the hash of all that it was built from.

Preprocessor, assembler, linker and loader list the files that they read (`reads`). The build id is a hash of those
contents, of the recipe and of the processor that -march=native stands for. A cached build is used while all these
files are unchanged (`known_builds`).
"""

import os
import re
import shutil
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from loop.base.documents import content_hash, hash_files
from loop.base.processes import Tick, environment, run
from loop.builds import known_builds, python_builds, reads
from loop.builds.compiler_errors import BuildFailed, failure, how_to_install
from loop.builds.known_builds import LIBRARY, LOG, KnownBuild
from loop.builds.reads import ENGLISH, SEEN, dependencies
from loop.library.response_files import named_by
from loop.machine.machine import compiler_version, processor_identity
from loop.model.measurement import Build
from loop.model.target import BuildRecipe, CAbiVariant, PythonVariant
from loop.workers.bench import Bench

SCAN_LIMIT_S = 60.0
TRIES = 3
"""Attempts at a build whose files change while it runs."""
FRAMEWORK = re.compile(r"(?:^|/)(?:torch|ATen|c10|pybind11|tensorflow)/")
PLACES = frozenset({"HOME", "TMPDIR", "PATH", "PYTHONPATH", "LC_ALL"})
"""Variables that are no part of an id: they say where programs are, and what those read is listed."""
Buildable = CAbiVariant | PythonVariant
"""What has a build: a library, or a copy of its files (`python_builds`)."""


def buildable(bench: Bench, names: Iterable[str]) -> dict[str, Buildable]:
    """The named variants that are built from files of the target's folder, for the GPU at hand."""
    chosen: dict[str, Buildable] = {}
    for name in names:
        variant = bench.target.variants[name]
        if isinstance(variant, CAbiVariant):
            chosen |= bench.compiled([name])
        elif isinstance(variant, PythonVariant) and python_builds.files_of([variant.module], bench.folder):
            chosen[name] = variant
    return chosen


@dataclass(frozen=True)
class Sources:
    """What a variant would be built from, as its preprocessor lists it."""

    identity: str
    """Hash of these files, the recipe and the compiler's version. A build id covers more."""
    framework_headers: tuple[str, ...]
    units: int
    files: tuple[str, ...] = ()
    """Files of the variant's folder among them, by their path from there."""
    read: tuple[str, ...] = ()
    """All of them, as the compiler names them."""


def scan(variant: Buildable, folder: Path, include: Path) -> Generator[Tick, None, Sources]:
    """Ask the compiler what it would read. Raises BuildFailed when a source or header is missing."""
    if isinstance(variant, PythonVariant):
        mine = python_builds.files_of([variant.module], folder)
        return Sources(hash_files((folder / file for file in mine), folder), (), 0, mine, mine)
    compiler = variant.build.compiler
    version = compiler_version(compiler)
    if version is None and shutil.which(compiler) is not None:
        raise BuildFailed(f"{compiler} is there and does not run", f"see what `{compiler} --version` says", "")
    if version is None:
        missing = f"{compiler}: no such compiler on the PATH"
        raise BuildFailed(missing, how_to_install(compiler), "", no_compiler=True)
    for source in variant.sources:
        if not (folder / source).is_file():
            raise BuildFailed(f"{source}: no such source file", f"it is named in {folder / 'target.yaml'}", "")
    command = [*_base(variant, include), "-M", *variant.sources]
    completed = yield from run(command, cwd=folder, limit_s=SCAN_LIMIT_S, env=ENGLISH, note="reading the sources")
    if not completed.ok:
        raise failure(completed, "read")
    files = sorted(set(dependencies(completed.output)))
    contents: list[tuple[str, str]] = []
    own: set[str] = set()
    for file in files:
        path = folder / file
        name = os.path.relpath(path, folder)
        own |= set() if name.startswith("..") else {name}
        contents.append((name if path.is_relative_to(folder) else path.name, content_hash(path.read_bytes())))
    words = [text for pair in sorted(contents) for text in pair]
    identity = content_hash("\0".join([*words, *_recipe(variant, folder), version]))[:32]
    headers = tuple(file for file in files if FRAMEWORK.search(file))
    return Sources(identity, headers, len(variant.sources), tuple(sorted(own)), tuple(files))


def _recipe(variant: CAbiVariant, folder: Path) -> list[str]:
    """Compiler, flags, sources, and the processor where flags say `native`."""
    flags = variant.build.flags
    words = [*flags, *named_by(flags, folder).values()]
    native = processor_identity() if any("native" in text for text in words) else ""
    return [variant.build.compiler, *flags, *variant.sources, native]


def seen_environment() -> dict[str, str]:
    """The variables of our environment that change what a compiler makes."""
    return {name: value for name, value in {**environment(), **ENGLISH}.items() if name in SEEN}


def question(variant: CAbiVariant, folder: Path, include: Path) -> str:
    """Hash of recipe and environment. One question has several builds, one for each content of the files."""
    visible = sorted((name, value) for name, value in seen_environment().items() if name != "TMPDIR")
    return content_hash(
        [*_recipe(variant, folder), str(include), *(f"{name}={value}" for name, value in visible)]
    )[:32]


def find(name: str, variant: CAbiVariant, folder: Path, *, cache: Path, include: Path) -> Build | None:
    """The cached build of the files as they are now, if it is undamaged."""
    known = known_builds.find(question(variant, folder, include), folder, cache)
    stored = known_builds.stored(known, cache) if known else None
    return _build(name, variant, known, *stored, cached=True) if known and stored else None


def find_id(variant_name: str, build_id: str, cache: Path) -> Build | None:
    """The cached build with that id, if it still loads the same libraries. Its sources may have changed."""
    if (copied := python_builds.find_id(variant_name, build_id, cache)) is not None:
        return copied
    places = (cache / build_id, *sorted(cache.glob(f"{build_id}-*")))
    place, record = next(((p, r) for p in places if (r := known_builds.whole(p))), (cache, None))
    if record is None or not reads.hold(reads.read_back(record["loads"]), Path("/")):
        return None
    return Build(
        variant=variant_name,
        build_id=build_id,
        library=str(place / LIBRARY),
        seconds=record["seconds"],
        cached=True,
        units=1,
        compiler=record["compiler"],
    )


def files_read(variant: Buildable, folder: Path, *, cache: Path, include: Path) -> tuple[str, ...] | None:
    """Files that the current build read, and paths where another file would be found first, from the folder.

    None where there is no such build.
    """
    if isinstance(variant, PythonVariant):
        return python_builds.files_of([variant.module], folder)
    known = known_builds.find(question(variant, folder, include), folder, cache)
    return None if known is None else tuple(known.facts)


def bytes_read(variant: Buildable, folder: Path) -> int:
    """About how many bytes a compiler reads: sources, and files that they include by quoted names."""
    if isinstance(variant, PythonVariant):
        return 0
    pending, sizes = [folder / source for source in variant.sources], dict[Path, int]()
    while pending:
        path = pending.pop().resolve()
        if path not in sizes and path.is_file():
            text = path.read_text(errors="replace")
            sizes[path] = len(text)
            pending += [
                path.parent / name for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE)
            ]
    return sum(sizes.values())


def ground(
    name: str,
    variant: CAbiVariant,
    folder: Path,
    but: Iterable[str],
    *,
    cache: Path,
    include: Path,
    limit_s: float,
) -> Generator[Tick, None, str]:
    """Hash of what a build read, without the flags in `but`: equal for all values of these flags.

    Raises BuildFailed as `build` does.
    """
    yield from build(name, variant, folder, cache=cache, include=include, limit_s=limit_s)
    known = known_builds.find(question(variant, folder, include), folder, cache)
    if known is None:
        raise BuildFailed("its files change while it is compiled", "stop what writes them", "")
    flags = tuple(flag for flag in variant.build.flags if flag not in set(but))
    recipe = variant.build.model_copy(update={"flags": flags})
    return _build_id(variant.model_copy(update={"build": recipe}), folder, include, known)


def _build_id(variant: CAbiVariant, folder: Path, include: Path, known: KnownBuild) -> str:
    """Hash of contents, names, recipe and environment; where the folder lies does not matter."""
    parts = [
        *_recipe(variant, folder),
        *reads.identity(known.facts, include),
        *reads.identity(known.loads, include),
    ]
    parts += [f"{name}={value}" for name, value in sorted(seen_environment().items()) if name not in PLACES]
    return content_hash(parts)[:32]


def build(
    name: str, variant: Buildable, folder: Path, *, cache: Path, include: Path, limit_s: float
) -> Generator[Tick, None, Build]:
    """Build a variant, or find it in the cache.

    Raises BuildFailed with the first error's file and line when it does not compile.
    """
    if isinstance(variant, PythonVariant):
        return python_builds.build(name, variant, folder, cache)
    inquiry = question(variant, folder, include)
    known = known_builds.find(inquiry, folder, cache)
    stored = known_builds.stored(known, cache) if known else None
    if known and stored:
        return _build(name, variant, known, *stored, cached=True)
    damaged = known and (cache / known.build_id).exists() and not known_builds.whole(cache / known.build_id)
    note = "the cached build was damaged: not what was recorded; built again" if damaged else ""
    sources = yield from scan(variant, folder, include)
    for _ in range(TRIES):
        try:
            known, place, record = yield from _compile(variant, folder, sources, cache, include, limit_s)
        except reads.Changed as changed:
            last = str(changed)
            continue
        known_builds.keep(inquiry, known, cache)
        ready = _build(name, variant, known, place, record, cached=False)
        return ready.model_copy(update={"note": note or ready.note})
    raise BuildFailed(f"{last} changes while it is compiled", "stop what writes it, then run this again", "")


def _build(
    name: str, variant: CAbiVariant, known: KnownBuild, place: Path, record: known_builds.Record, *, cached: bool
) -> Build:
    return Build(
        variant=name,
        build_id=known.build_id,
        library=str(place / LIBRARY),
        seconds=record["seconds"],
        cached=cached,
        units=len(variant.sources),
        framework_headers=known.framework_headers,
        compiler=record["compiler"],
    )


def _compile(
    variant: CAbiVariant, folder: Path, sources: Sources, cache: Path, include: Path, limit_s: float
) -> Generator[Tick, None, tuple[KnownBuild, Path, known_builds.Record]]:
    """Compile once, with a stand-in of the id, which is only known afterwards. Raises reads.Changed.

    The stand-in depends on contents alone, so the linker's own hash is the same in two clones.
    """
    stand_in, compiler = sources.identity, variant.build.compiler
    before = {file: reads.fact_of(str(folder / file)).content for file in sources.read}
    with known_builds.new_folder(cache) as place:
        scratch = place / "scratch"
        scratch.mkdir()
        shared = ["-shared", "-Xcompiler", "-fPIC"] if Path(compiler).name == "nvcc" else ["-shared", "-fPIC"]
        command = [*_base(variant, include), *shared, f'-DLOOP_BUILD_ID="{stand_in}"']
        command += [*variant.sources, *linked(variant.build), "-o", str(place / LIBRARY)]
        begun, lists = time.monotonic(), reads.lists(variant, scratch)
        while True:
            words = [*command, *(word for flags in lists.values() for word in flags)]
            env, note = {**ENGLISH, "TMPDIR": str(scratch)}, f"compiling {variant.sources[0]}"
            completed = yield from run(words, cwd=folder, limit_s=limit_s, env=env, note=note)
            refused = [option for option in lists if option in completed.errors]
            if completed.ok or not refused:
                break
            lists = {option: flags for option, flags in lists.items() if option not in refused}
        if not completed.ok:
            raise failure(completed, "compile")
        if not (place / LIBRARY).is_file():
            raise BuildFailed(
                f"{compiler} ended well and wrote no library", "see what it does with `-o`", completed.errors
            )
        seconds = time.monotonic() - begun
        known = yield from _known_build(variant, folder, include, sources, place)
        for file, content in before.items():
            if known.facts[reads.named(file, folder, place) or ""].content != content:
                raise reads.Changed(file)
        (place / LOG).write_text(completed.errors)
        shutil.rmtree(scratch)
        version = compiler_version(compiler) or ""
        known, record = known_builds.finished(place, known, stand_in, command, seconds, version)
        return known, known_builds.move_into_place(place, known, cache), record


def _known_build(
    variant: CAbiVariant, folder: Path, include: Path, sources: Sources, place: Path
) -> Generator[Tick, None, KnownBuild]:
    """What the library in `place` was built from, and its id."""
    loading = yield from reads.loaded(place / LIBRARY)
    rivals = reads.rivals(variant, sources.read, include, loading)
    named = reads.named_by_flags(variant, folder)
    paths = [
        *sources.read,
        *reads.read_lists(place / "scratch"),
        *named,
        *reads.compilers(variant.build.compiler),
        *rivals,
    ]
    facts = reads.facts_of(paths, folder, place)
    loads = reads.facts_of(loading, Path.cwd(), place)
    known = KnownBuild("", "", facts, loads, sources.framework_headers)
    return replace(known, build_id=_build_id(variant, folder, include, known))


def linked(recipe: BuildRecipe) -> list[str]:
    """Libraries among the flags: they have to follow the sources on the command line."""
    return [flag for flag in recipe.flags if flag.startswith("-l") or flag.endswith((".a", ".so"))]


def _base(variant: CAbiVariant, include: Path) -> list[str]:
    return [variant.build.compiler, *variant.build.flags, f"-I{include}"]
