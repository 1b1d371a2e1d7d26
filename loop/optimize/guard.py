"""What a candidate is judged by, held against what it was: the worktree, the builds to beat, loop's own programs.

A proposer and a kernel run as the user does. What neither may change is hashed before and after both.
"""

import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import loop
from loop.base.documents import content_hash, write_atomic
from loop.base.errors import WorkFailed
from loop.base.places import Project, include_folder
from loop.builds.build import find_id
from loop.library import targets
from loop.optimize.session_changes import SessionChanges
from loop.repository.worktree import Worktree
from loop.steps.context import Context

PROGRAMS, TREE, BUILDS = "loop's own programs", "the worktree", "the builds to beat"
Contents = Mapping[Path, bytes | None]


def watched(context: Context, tree: Worktree) -> dict[str, list[Path]]:
    """The files of each group that a candidate may not change while it is made and judged."""
    past, cache = SessionChanges(context.finished), context.bench.cache
    ids = sorted({*past.start.items(), *past.incumbents.items()})
    found_builds = [find_id(name, build_id, cache) for name, build_id in ids]
    builds = [path for build in found_builds if build for path in sorted(Path(build.library).parent.rglob("*"))]
    project = Project(tree.target, tree.root / "sessions", bundled=False)
    names = {*(tree.target / name for name in tree.committed()), *targets.ground_files(project)}
    names |= {*tree.target.rglob("__pycache__/*")}  # Python would run that in the place of a source.
    folders = (Path(loop.__file__).parent, include_folder())
    programs = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".h")]
    return {PROGRAMS: programs, TREE: sorted(names), BUILDS: builds}


def hashes(context: Context, tree: Worktree) -> dict[str, str]:
    """Group to the hash of its files and their names."""

    def parts(name: str, paths: Sequence[Path]) -> Iterator[str | bytes]:
        for path in paths:
            yield str(path)
            yield _content(path, stamped=name == PROGRAMS) or b""

    return {name: content_hash(parts(name, paths)) for name, paths in watched(context, tree).items()}


def changed(context: Context, tree: Worktree, before: Mapping[str, str]) -> list[str]:
    """The groups that are not what they were; none where nobody noted that."""
    now = hashes(context, tree) if before else {}
    return [name for name, digest in before.items() if now.get(name) != digest]


@dataclass(frozen=True)
class TreeGuard:
    """What there was before proposers began, and can be put back."""

    context: Context
    tree: Worktree
    head: str
    before: Mapping[str, Contents]
    held: str
    """Hash of what loop's own programs hold."""
    loaded: frozenset[str]
    """Which of them run here."""
    builds: frozenset[str]
    """Names of all builds in the cache: one that comes later and that we did not make is not believed."""

    @classmethod
    def of(cls, context: Context, tree: Worktree) -> "TreeGuard":
        """As it is now."""
        before = {
            name: {path: _content(path, stamped=name == PROGRAMS) for path in paths}
            for name, paths in watched(context, tree).items()
        }
        builds = frozenset(folder.name for folder in context.bench.cache.glob("*"))
        return cls(context, tree, tree.head, before, _held(before[PROGRAMS]), _loaded(), builds)

    def put_back(self) -> list[str]:
        """The files that were changed, which are what they were afterwards.

        A file of `loop` itself that holds what it held, and was linked to or touched, is only named. Raises
        WorkFailed where it holds something else, or may have while `loop` loaded more of itself: what runs then is
        not what is there.
        """
        programs = self.before[PROGRAMS]
        touched = [path for path, content in programs.items() if _content(path, stamped=True) != content]
        if touched and (_held(programs) != self.held or _loaded() != self.loaded):
            why = f"{touched[0]} was changed while a candidate was made"
            raise WorkFailed(why, hint="install loop again, then resume: loop run session --resume last")
        altered = self._restored({**self.before[TREE], **self.before[BUILDS]})
        moved = self.tree.head != self.head
        if moved or altered:
            self.tree.reset(self.head)
        names = (path.name for path in (*altered, *touched))
        return [*names, *(["a commit in the worktree"] if moved else [])]

    def _restored(self, before: Contents) -> list[Path]:
        """Files that were changed or added, which are what they were now."""
        roots = (self.tree.root, self.context.bench.cache)
        altered = [path for path, content in before.items() if _content(path) != content or _strays(path, roots)]
        for path in altered:
            _put_back(path, before[path], roots)
        every = watched(self.context, self.tree)  # The manifest, which it reads, is what it was.
        added = [path for name in (TREE, BUILDS) for path in every[name] if path not in before]
        for path in added:
            _put_back(path, None, roots)
        return altered + added


def _content(path: Path, *, stamped: bool = False) -> bytes | None:
    """None for what is no regular file: a link leads to what somebody else may change.

    `stamped`: in its place which file it is and when it changed, which nobody but root can set back.
    """
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return None
        return repr((status.st_ino, status.st_size, status.st_ctime_ns)).encode() if stamped else path.read_bytes()
    except OSError:
        return None


def _held(programs: Iterable[Path]) -> str:
    """Hash of what these files hold."""
    return content_hash(_content(path) or b"" for path in programs)


def _loaded() -> frozenset[str]:
    """The modules of `loop` that run here."""
    return frozenset(name for name in sys.modules if name.partition(".")[0] == loop.__name__)


def _strays(path: Path, roots: Sequence[Path]) -> list[Path]:
    """Links among the folders above a file, below the folder that is ours: what is behind them is not."""
    return [
        above for root in roots if path.is_relative_to(root)
        for above in path.parents if above.is_relative_to(root) and above != root and above.is_symlink()
    ]  # fmt: skip


def _put_back(path: Path, content: bytes | None, roots: Sequence[Path]) -> None:
    for link in reversed(_strays(path, roots)):
        link.unlink(missing_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or content is None:
        path.unlink(missing_ok=True)
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def said(names: Sequence[str]) -> str:
    """Files that a proposer changed, in a line."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}; they are what they were"
