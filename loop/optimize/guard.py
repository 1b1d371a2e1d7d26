"""What a candidate is judged by, held against what it was: the worktree, and the builds to beat.

A proposer and a kernel run as the user does. What neither may change is hashed before and after both.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.errors import WorkFailed
from loop.base.places import Project
from loop.builds.build import find_id
from loop.library import targets
from loop.optimize.session_changes import SessionChanges
from loop.repository.worktree import Worktree
from loop.steps.context import Context

TREE, BUILDS = "the worktree", "the builds to beat"


def hashes(context: Context, tree: Worktree) -> dict[str, str]:
    """Group to the hash of its files and their names."""
    past, cache = SessionChanges(context.finished), context.bench.cache
    ids = sorted({*past.start.items(), *past.incumbents.items()})
    found_builds = [find_id(name, build_id, cache) for name, build_id in ids]
    builds = [path for build in found_builds if build for path in sorted(Path(build.library).parent.rglob("*"))]
    project = Project(tree.target, tree.root / "sessions", bundled=False)
    names = {*(tree.target / name for name in tree.committed()), *targets.ground_files(project)}
    return {TREE: content_hash(_parts(sorted(names))), BUILDS: content_hash(_parts(builds))}


def changed(context: Context, tree: Worktree, before: Mapping[str, str]) -> list[str]:
    """The groups that are not what they were; none where nobody noted that."""
    now = hashes(context, tree) if before else {}
    return [name for name, digest in before.items() if now.get(name) != digest]


def put_back(context: Context, tree: Worktree, head: str, before: Mapping[str, str]) -> bool:
    """Whether a proposer changed the worktree, which is clean and at `head` again.

    Raises WorkFailed for what git does not know: a build to beat, or a file that it ignores.
    """
    altered = tree.head != head or bool(tree.changed())
    if altered:
        tree.reset(head)
    if moved := changed(context, tree, before):
        why = f"{' and '.join(moved)} changed while a candidate was made"
        raise WorkFailed(why, hint="run the session anew; a proposer writes where it may not")
    return altered


def _parts(paths: Iterable[Path]) -> Iterator[str | bytes]:
    """Names and contents; a link stands for nothing, for it leads to what somebody else may change."""
    for path in paths:
        yield str(path)
        yield path.read_bytes() if path.is_file() and not path.is_symlink() else b""
