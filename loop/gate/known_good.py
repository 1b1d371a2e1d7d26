"""The known good of a variant: what changed since, and its build, found in the cache or made again."""

from collections.abc import Generator

from loop.base.errors import LoopError
from loop.base.locks import own_folder
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.compiler_errors import BuildFailed
from loop.gate.kernel import builds
from loop.gate.model import ChangesOutput
from loop.library.definitions import read_file
from loop.model.measurement import Build
from loop.model.target import CAbiVariant, Target
from loop.repository import changes as files_changed
from loop.repository import export
from loop.steps.context import Context, NoArguments, Result, Working

SHOWN = 20


def changes(context: Context, arguments: NoArguments) -> Working[ChangesOutput]:
    """Compiled variants whose build is not the known good's, and the files that differ from its revision."""
    built, failures = yield from builds(context)
    if failures:
        return Result(ChangesOutput(ok=False, message=failures[0].message, hint=failures[0].hint))
    known = context.past.known_good
    unknown = [build.variant for build in built if build.variant not in known]
    changed = tuple(
        build.variant
        for build in built
        if build.variant in known and known[build.variant].build_id != build.build_id
    )
    commit = next((known[name].commit for name in changed if known[name].commit), None)
    files = (files_changed(context.task.folder, commit) if commit else None) or {}
    message = "nothing to compare with: no known good yet" if unknown else "nothing changed since the known good"
    if changed:
        where = f": {sum(files.values())} lines in {len(files)} files" if files else ""
        message = f"{', '.join(changed)} changed since the known good{where}"
    return Result(
        ChangesOutput(
            ok=True,
            message=message,
            identity=" ".join(f"{build.variant}={build.build_id}" for build in built),
            changed=changed,
            count=len(changed),
            files=tuple(sorted(files))[:SHOWN],
            lines=sum(files.values()),
            not_exercised=tuple(f"what changed in {name}: it has no known good yet" for name in unknown),
        )
    )


class KnownGoodGone(Exception):
    """There is no known good to measure; the message says why."""


def known_good_build(context: Context, name: str, now: Build) -> Generator[Tick, None, Build]:
    """The build of a variant's known good: from the cache, or built again from its commit in a temporary folder.

    Raises KnownGoodGone when there is none other than `now`.
    """
    known, bench = context.past.known_good.get(name), context.bench
    if known is None:
        raise KnownGoodGone("no earlier session on this device passed")
    if known.build_id == now.build_id:
        raise KnownGoodGone(f"it is the known good itself, built from the sources of {known.session}")
    if kept := build.find_id(name, known.build_id, bench.cache):
        return kept
    if known.commit is None:
        raise KnownGoodGone(f"the build of {known.session} has left the cache, and its sources were not committed")
    commit, limit_s = known.commit[:12], context.kill_after_s
    try:
        with own_folder(bench.cache, ".known-good-") as folder:
            place = export(context.task.folder, known.commit, folder)
            variant = read_file(place / "target.yaml", Target).value.variants.get(name)
            if not isinstance(variant, CAbiVariant):
                raise KnownGoodGone(f"{commit} has no compiled variant {name}")
            again = yield from build.build(
                name, variant, place, cache=bench.cache, include=bench.include, limit_s=limit_s
            )
    except (BuildFailed, LoopError) as failed:
        raise KnownGoodGone(f"{commit} of {known.session} no longer builds: {failed}") from failed
    if again.build_id != known.build_id:
        raise KnownGoodGone(
            f"{commit} builds to something else than {known.session} measured: "
            "the compiler changed, or files were not committed"
        )
    return again
