"""Which commits are the same kernel: those that hold the same of all that its builds have read.

A commit that nobody has built is compared on what the builds of others read. As soon as it is built, what it reads
itself counts too.
"""

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.places import MANIFEST
from loop.bisect.builds import Builder
from loop.bisect.candidates import Line
from loop.model.bisect import UNCOMMITTED
from loop.repository import history
from loop.repository.git import read_bytes

Held = dict[str, str]
"""Path from the repository's top to the object that a commit has there."""


def kernels(line: Line, builder: Builder) -> tuple[str, ...]:
    """Of the good end and each candidate the name of its kernel.

    Until something was built, and of a commit that does not build, that is the folder's tree.
    """
    if not builder.read or builder.untold:
        return tuple(one.tree for one in line.ends)
    held, found = Held(), list[str]()
    manifest = _path(line, MANIFEST)
    counts = {manifest, *_with_folders(_path(line, name) for name in builder.read)}
    for one, changed in zip(line.ends, _changes(line), strict=True):
        held |= {path: changed[path] for path in changed.keys() & counts}
        blob = held.get(manifest, "")
        recipe = builder.recipe_of(functools.partial(_text, line, one.commit, blob), blob) if blob else ""
        rest = sorted((path, what) for path, what in held.items() if what and path != manifest)
        name = content_hash([recipe, *(text for row in rest for text in row)])
        found.append(one.tree if builder.fails(one) else name)
    return tuple(found)


def _path(line: Line, name: str) -> str:
    """From the top, of a file that is named from the target's folder."""
    return os.path.normpath(os.path.join(line.inside, name))


def _with_folders(paths: Iterable[str]) -> set[str]:
    """Paths and all folders that they lie in: one of these may be a submodule, or a link."""
    found: set[str] = set()
    for path in paths:
        while path not in found and path not in ("", "/"):
            found.add(path)
            path = os.path.dirname(path)
    return found


def sources(line: Line, builder: Builder) -> list[str]:
    """Files of the target's folder that its kernel is built from, as the good end has them."""
    there = _committed(line.top, (line.good.commit,))[0]
    return sorted(name for name in builder.read if _path(line, name) in there)


def _text(line: Line, commit: str, blob: str) -> bytes:
    """The manifest at a commit."""
    if commit == UNCOMMITTED and (line.folder / MANIFEST).is_file():
        return (line.folder / MANIFEST).read_bytes()
    return read_bytes(line.top, "cat-file", "blob", blob)


def _changes(line: Line) -> Iterable[Mapping[str, str]]:
    """What the good end holds, and what each candidate has in its place."""
    committed = tuple(one.commit for one in line.ends if one.commit != UNCOMMITTED)
    changes = _committed(line.top, committed)
    return changes if len(committed) == len(line.ends) else (*changes, dict(line.edited))


@functools.lru_cache(8)
def _committed(top: Path, commits: tuple[str, ...]) -> tuple[Mapping[str, str], ...]:
    return history.held(top, commits[0]), *history.changes(top, commits)
