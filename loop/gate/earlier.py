"""The known good as a build: from the cache, or built again from its revision."""

from collections.abc import Generator

from loop.base.errors import LoopError
from loop.base.locks import own_folder
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.compiler_errors import BuildFailed
from loop.library.definitions import read_file
from loop.model.measurement import Build
from loop.model.record import KnownGood
from loop.model.target import CAbiVariant, Target
from loop.repository import export
from loop.steps.context import Context


class KnownGoodGone(Exception):
    """There is no known good to measure; the message says why."""


def known_good_build(context: Context, name: str, now: Build) -> Generator[Tick, None, Build]:
    """The build of a variant's known good. Raises KnownGoodGone when there is none other than `now`."""
    known = context.past.known_good.get(name)
    if known is None:
        raise KnownGoodGone("no earlier session on this device passed with these workloads")
    if known.build_id == now.build_id:
        raise KnownGoodGone(f"it is the known good itself, built from the sources of {known.session}")
    found = build.find_id(name, known.build_id, context.bench.cache)
    if found is None:
        found = yield from _again(context, name, known)
    return found


def _again(context: Context, name: str, known: KnownGood) -> Generator[Tick, None, Build]:
    """Build it from its revision, by its own recipe, in a folder of ours."""
    if known.commit is None:
        raise KnownGoodGone(f"the build of {known.session} has left the cache, and its sources were not committed")
    try:
        with own_folder(context.bench.cache, ".known-good-") as folder:
            place = export(context.task.folder, known.commit, folder)
            variant = read_file(place / "target.yaml", Target).value.variants.get(name)
            if not isinstance(variant, CAbiVariant):
                raise KnownGoodGone(f"{known.commit[:12]} has no compiled variant {name}")
            made = yield from build.build(
                name, variant, place, cache=context.bench.cache, include=context.bench.include,
                limit_s=context.kill_after_s,
            )  # fmt: skip
    except (BuildFailed, LoopError) as failed:
        raise KnownGoodGone(f"{known.commit[:12]} of {known.session} no longer builds: {failed}") from failed
    if made.build_id != known.build_id:
        raise KnownGoodGone(
            f"{known.commit[:12]} builds to something else than {known.session} measured: "
            "the compiler changed, or files were not committed"
        )
    return made
