"""The cache of builds: one folder for each build, and for each question the builds that answer it.

A question is a recipe in an environment. `<build id>/` holds a library with its record.
`questions/<question>/<build id>.json` holds what that library was built from. It is used while all of that is
unchanged.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from loop.base.documents import content_hash, sums, to_json
from loop.base.errors import LoopError, WorkFailed
from loop.base.locks import own_folder
from loop.base.owners import stranger
from loop.base.remarks import remark
from loop.builds import reads
from loop.builds.reads import Facts

LIBRARY, RECORD, LOG, QUESTIONS = "kernel.so", "build.json", "log.txt", "questions"
FORMAT = 2
MOST = 256
"""Builds kept for a question: the oldest go first."""


class Record(TypedDict):
    """What `build.json` holds."""

    format: int
    build_id: str
    sha256: str
    seconds: float
    compiler: str
    command: list[str]
    loads: dict[str, list[object]]


@dataclass(frozen=True)
class KnownBuild:
    """One library, and all that it was built from."""

    build_id: str
    library: str
    """Hash of its bytes."""
    facts: Facts
    """What compiler, assembler and linker read, and where a rival would be; relative to the variant's folder."""
    loads: Facts
    """What the loader looks for; relative to the folder in which loop runs."""
    framework_headers: tuple[str, ...]

    def holds(self, folder: Path) -> bool:
        """Whether all that it was built from is as it was."""
        return reads.hold(self.facts, folder) and reads.hold(self.loads, Path.cwd())


def find(question: str, folder: Path, cache: Path) -> KnownBuild | None:
    """The build of the files in `folder` as they are, whether or not its library is still there."""
    return next((known for known in _stored(cache / QUESTIONS / question) if known.holds(folder)), None)


def _stored(place: Path) -> Iterator[KnownBuild]:
    """The builds stored for a question, the latest first, without damaged ones."""
    for path in _by_age(place):
        try:
            yield _read(path)
        except OSError:  # Removed meanwhile, or another user's.
            continue
        except (ValueError, KeyError, TypeError, IndexError, LoopError):
            remark(f"{path} is damaged: the build is made again")


def _by_age(place: Path) -> list[Path]:
    try:
        return sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []


def _read(path: Path) -> KnownBuild:
    if why := stranger(path):
        remark(f"{path} is not used: {why}")
        raise PermissionError(why)
    fields = json.loads(sums.opened(path, sums.read_regular(path)))
    return KnownBuild(
        path.stem,
        fields["library"],
        reads.read_back(fields["facts"]),
        reads.read_back(fields["loads"]),
        tuple(fields["framework_headers"]),
    )


def keep(question: str, known: KnownBuild, cache: Path) -> None:
    """Remember a build."""
    place = cache / QUESTIONS / question
    fields = {
        "library": known.library,
        "framework_headers": known.framework_headers,
        "facts": reads.listed(known.facts),
        "loads": reads.listed(known.loads),
    }
    try:
        place.mkdir(parents=True, exist_ok=True)
        sums.write_sealed(place / f"{known.build_id}.json", fields)
        for old in _by_age(place)[MOST:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(cache, error) from error


def whole(folder: Path) -> Record | None:
    """The record of a finished build, if it belongs there and the library matches its hash."""
    if why := stranger(folder / LIBRARY) or stranger(folder / RECORD):
        remark(f"{folder} is not used: {why}")
        return None
    try:
        record: Record = json.loads(sums.opened(folder, (folder / RECORD).read_bytes()))
        actual = (record["build_id"], record["sha256"], record["format"])
        expected = (folder.name.partition("-")[0], content_hash((folder / LIBRARY).read_bytes()), FORMAT)
        complete = Record.__annotations__.keys() <= record.keys()
    except (OSError, ValueError, KeyError, TypeError, LoopError):
        return None
    return record if actual == expected and complete else None


def places(build_id: str, sha256: str, cache: Path) -> tuple[Path, Path]:
    """Where a library may lie: the first of its id, and another one.

    Compilers write the folder's name into a library, so two clones of the same sources have two.
    """
    return cache / build_id, cache / f"{build_id}-{sha256[:16]}"


def stored(known: KnownBuild, cache: Path) -> tuple[Path, Record] | None:
    """The folder and the record of a known build's library, if it is undamaged."""
    records = ((place, whole(place)) for place in places(known.build_id, known.library, cache))
    return next(((p, record) for p, record in records if record and record["sha256"] == known.library), None)


@contextmanager
def new_folder(cache: Path) -> Iterator[Path]:
    """A folder of the cache to build in. The next build removes what a killed one left.

    Raises LoopError where the cache cannot be written.
    """
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(own_folder(cache, ".making-"))
        except OSError as error:
            raise _unusable(cache, error) from error
        yield folder


def _unusable(cache: Path, error: OSError) -> LoopError:
    return WorkFailed(
        f"{cache}: cannot write the build cache: {error.strerror}",
        hint="set LOOP_CACHE to a folder that can be written",
    )


def finished(
    folder: Path, known: KnownBuild, stand_in: str, command: list[str], seconds: float, compiler: str
) -> tuple[KnownBuild, Record]:
    """Replace the stand-in in the library by its build id, and write its record."""
    data = (folder / LIBRARY).read_bytes().replace(stand_in.encode(), known.build_id.encode())
    (folder / LIBRARY).write_bytes(data)
    record: Record = {
        "format": FORMAT,
        "build_id": known.build_id,
        "sha256": content_hash(data),
        "seconds": round(seconds, 3),
        "compiler": compiler,
        "command": [word.replace(stand_in, known.build_id) for word in command],
        "loads": reads.listed({os.path.join(Path.cwd(), name): fact for name, fact in known.loads.items()}),
    }
    (folder / RECORD).write_text(sums.sealed(to_json(record)))
    return replace(known, library=record["sha256"]), record


def move_into_place(folder: Path, known: KnownBuild, cache: Path) -> Path:
    """Rename into the cache, beside another library of the same id; returns the final folder.

    If another session was quicker with the same bytes, its folder stays.
    """
    there = stored(known, cache)
    if there:
        return there[0]
    first, other = places(known.build_id, known.library, cache)
    place = other if whole(first) else first
    with own_folder(cache, ".old-") as doomed:
        try:
            if place.exists():
                place.rename(doomed / "old")
            folder.rename(place)
        except OSError:
            there = stored(known, cache)
            if not there:
                raise
            return there[0]
    return place
