"""Worktrees: folders in which sessions edit a target. Each is a git worktree of the user's repository or a copy.

The user's checkout, index, stash and branches stay unchanged. Hooks do not run.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loop import __version__
from loop.base.documents import file_error, sums
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.repository.reading import (
    UNCOMMITTED_MESSAGE,
    author_variables,
    git,
    git_bytes,
    object_hashes,
    parse_numstat,
    root_of,
)

SUBMODULE_MODE = "160000"  # Mode of a submodule in a tree.


class MissingSubmodule(WorkFailed):
    """A commit needs a submodule's commit that is not in the user's checkout of it."""


def fill_submodules(checkout: Path, root: Path) -> None:
    """Check out the submodules of worktree `root` at the commits in its HEAD, without the network.
    Sources are the user's checkout, or git's own copy in `.git/modules/PATH`. Other submodules stay
    empty. Raises MissingSubmodule if no source has the commit."""
    commit_by_path = object_hashes(root, "HEAD", SUBMODULE_MODE)
    if not commit_by_path:
        return
    git_folder = _common_git_folder(checkout)
    for path, commit in commit_by_path.items():
        submodule, in_checkout, git_copy = root / path, checkout / path, git_folder / "modules" / path
        sources = [in_checkout] if (in_checkout / ".git").exists() else []
        sources += [git_copy] if (git_copy / "HEAD").exists() else []
        if not sources:
            continue
        source = next((source for source in sources if _check_out_submodule(source, submodule, commit)), None)
        if source is None:
            message = f"its submodule {path} is at {commit[:12]}, which is not in {sources[0]}"
            raise MissingSubmodule(message, hint=f"git -C {sources[0]} fetch origin {commit}")
        git(submodule, "clean", "--quiet", "--force", "-d")
        fill_submodules(source, submodule)


def _check_out_submodule(source: Path, submodule: Path, commit: str) -> bool:
    """Check out a submodule's commit from repository `source`. False if `source` lacks it."""
    for _ in range(2):
        try:
            if not (submodule / ".git").exists():
                git(submodule.parent, "clone", "--quiet", "--shared", "--no-checkout", str(source), str(submodule))
            git(submodule, "checkout", "--quiet", "--detach", "--force", commit)
            return True
        except LoopError:
            shutil.rmtree(submodule, ignore_errors=True)  # Another repository: clone again.
            submodule.mkdir(parents=True)
    return False


PATCH_OPTIONS = ("--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
"""Diff options for a patch that `git apply` accepts, independent of the user's settings."""
EDIT_PATHS = ("--", ".", ":(exclude,glob)**/__pycache__/**", ":(exclude,glob)**/sessions/**")
"""Paths that count as edits: all files that git does not ignore, without `__pycache__` and `sessions`."""
OWNER_NOTE = "loop-session"
"""A file in git's private folder of a worktree: the session that uses it. Git deletes both together."""
TRAILER = "Made-with"  # The trailer of every commit that loop makes.
STATE_HINT = "set LOOP_STATE to a folder that can be written"
NOT_COPIED = shutil.ignore_patterns(".git", "sessions", "__pycache__")
"""Files that a copy of a target outside git omits."""


@dataclass(frozen=True)
class Worktree:
    """A folder in which a session edits a target."""

    root: Path
    target: Path
    repository: Path | None
    """The user's repository; None where the target is not under git, and this is a copy."""

    @property
    def head(self) -> str:
        """Hash of the current commit. Edits are differences from it."""
        return git(self.root, "rev-parse", "HEAD").strip()

    def changed_lines(self) -> dict[str, int]:
        """Path (from the target's folder) of each file that differs from `head`, to lines added
        plus removed. Includes new files; excludes ignored files."""
        git(self.root, "add", "--all", "--intent-to-add", *EDIT_PATHS)  # So that `diff` shows new files.
        text = git(self.root, "diff", "--numstat", "--no-renames", "-z", "HEAD", *EDIT_PATHS)
        return {os.path.relpath(self.root / name, self.target): n for name, n in parse_numstat(text).items()}

    def patch(self, base: str = "HEAD") -> bytes:
        """The patch from commit `base` to the current files, for `git apply` at the top folder."""
        git(self.root, "add", "--all", "--intent-to-add", *EDIT_PATHS)
        return git_bytes(self.root, "diff", *PATCH_OPTIONS, base, *EDIT_PATHS)

    def commit(self, message: str, session: str = "") -> str:
        """Commit all files and return the new commit's hash. A trailer names `loop` and the session. The author is
        the user; in a copy, which nobody else reads, `loop`. Raises MachineFailure if git cannot write."""
        self._require_own_worktree()
        git(self.root, "add", "--all", *EDIT_PATHS)
        trailer = f"{TRAILER}: loop {__version__}{f' session {session}' if session else ''}"
        options = ("--quiet", "--allow-empty", "--no-verify", "-m", message, "-m", trailer)
        author = author_variables(self.root) if self.repository else {}
        _write_with_git(self.root, "commit", *options, variables=author)
        return self.head

    def point_branch(self, name: str) -> str:
        """Point a branch at `head` and return its name. If `name` exists with commits that `head`
        lacks, the branch is called `name-2`, `name-3` and so on. Raises WorkFailed after 99."""
        for branch in (name, *(f"{name}-{number}" for number in range(2, 100))):
            try:
                branch_tip = git(self.root, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").strip()
            except LoopError:
                branch_tip = ""
            if not branch_tip or git(self.root, "rev-list", "--count", branch_tip, "^HEAD").strip() == "0":
                git(self.root, "branch", "--force", branch, "HEAD")
                return branch
        raise WorkFailed(f"there are too many branches {name}-...", hint="git branch --list 'loop/*'")

    def committed_files(self) -> set[str]:
        """Files in the commit `head`, as paths from the target's folder."""
        names = git(self.root, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
        return {os.path.relpath(self.root / name, self.target) for name in names if name}

    def _require_own_worktree(self) -> None:
        """Raises LoopError if git would change a folder other than this worktree."""
        top = root_of(self.root)
        if top is None or top.resolve() != self.root.resolve():
            raise LoopError(f"{self.root} is no worktree of loop's: git works on {top} there", exit_code=3)

    def check_out(self, commit: str) -> None:
        """Check out a commit with its submodules. Ignored files, such as build objects, stay.
        Raises MissingSubmodule if the user's checkout lacks a submodule's commit."""
        self._require_own_worktree()
        present = object_hashes(self.root, "HEAD", SUBMODULE_MODE)
        for path in present.keys() - object_hashes(self.root, commit, SUBMODULE_MODE).keys():
            shutil.rmtree(self.root / path, ignore_errors=True)
        git(self.root, "checkout", "--quiet", "--detach", "--force", commit)
        git(self.root, "clean", "--quiet", "--force", "-d")
        if self.repository is not None:
            fill_submodules(self.repository, self.root)

    def describe_ignored_sources(self) -> str:
        """A sentence on sources in the user's folder of the target that git ignores; empty if there is none."""
        options = ("--others", "--ignored", "--exclude-standard", "-z")
        folder = self.repository and self.repository / self.target.relative_to(self.root)
        names = git(folder, "ls-files", *options).split("\0") if folder is not None and folder.is_dir() else []
        sources = ", ".join(name for name in names if name.endswith((".h", ".hpp", ".inc", ".cuh", ".py")))
        return f"no commit has {sources}, which git ignores" if sources else ""

    def describe_empty_submodules(self) -> str:
        """A sentence that names empty submodules and the command that fills them; empty if none is."""
        submodules = object_hashes(self.root, "HEAD", SUBMODULE_MODE) if self.repository is not None else {}
        empty = [path for path in submodules if not (self.root / path / ".git").exists()]
        names = ", ".join(empty)
        subject = f"submodules {names} are" if len(empty) > 1 else f"submodule {names} is"
        command = f"git -C {self.repository} submodule update --init --recursive"
        return f"{subject} empty in its worktree: `{command}`" if empty else ""

    def apply(self, patch: Path) -> None:
        """Apply a patch to the files with a 3-way merge. Raises WorkFailed on a conflict."""
        self._require_own_worktree()
        git(self.root, "apply", "--3way", "--whitespace=nowarn", str(patch.absolute()))

    def note_owner(self, session: Path) -> None:
        """Note which session uses the complete worktree, if that works: `loop clean` leaves one without alone."""
        with contextlib.suppress(OSError, LoopError):
            sums.write_sealed(self._owner_note(), {"format": 1, "session": str(session.absolute())})

    @property
    def owner(self) -> Path | None:
        """The session folder that uses the worktree; None if its note is missing or damaged."""
        with contextlib.suppress(OSError, LoopError):
            note = self._owner_note()
            content = sums.read_regular(note)
            try:
                return Path(json.loads(sums.without_checksum(note, content))["session"])
            except LoopError as error:
                remark_once(error.message)
        return None

    def _owner_note(self) -> Path:
        """The file that names the session, in git's private folder of the worktree."""
        return Path(git(self.root, "rev-parse", "--absolute-git-dir").strip()) / OWNER_NOTE

    def uncommitted_edits(self) -> dict[str, int] | None:
        """As `changed_lines`; None if git cannot tell, as in an incomplete worktree."""
        with contextlib.suppress(LoopError):
            self._require_own_worktree()
            return self.changed_lines()
        return None

    def remove(self) -> None:
        """Delete the folder and unregister the worktree. Commits and branches stay."""
        shutil.rmtree(self.root, ignore_errors=True)
        if self.repository is not None:
            _unregister_missing_in(self.repository, self.root.parent)

    def revert(self, commit: str = "HEAD") -> None:
        """Reset all files to a commit and remove new ones. Default: discard edits since `head`."""
        self._require_own_worktree()
        git(self.root, "reset", "--quiet", "--hard", commit)
        git(self.root, "clean", "--quiet", "--force", "-d")


def make_from_checkout(target: Path, root: Path) -> Worktree:
    """Make a worktree at `root` with the current state of the user's checkout, committed or not.
    The worktree's `head` is a commit of that state. Raises LoopError when git fails, and UsageError
    when the checkout has unresolved merge conflicts."""
    repository = repository_of(target)
    if repository is None:
        try:
            shutil.copytree(target, root / target.name, ignore=NOT_COPIED)
        except OSError as error:
            raise file_error(root, "made", error, STATE_HINT) from error
        git(root, "init", "--quiet")
        tree = Worktree(root, root / target.name, None)
        tree.commit(UNCOMMITTED_MESSAGE)
        return tree
    unmerged = git(repository, "diff", "--name-only", "--diff-filter=U").splitlines()
    if unmerged:
        raise UsageError(f"{repository / unmerged[0]} is in conflict", "finish the merge, or `git merge --abort`")
    tree = make_at_commit(target, root, "HEAD")
    with tempfile.TemporaryDirectory() as folder:
        patch = Path(folder) / "patch"
        git(repository, "diff", *PATCH_OPTIONS, f"--output={patch}", "HEAD")
        has_changes = patch.stat().st_size > 0
        if has_changes:
            # What `--check` finds is the patch's fault; an error after it is the disk's.
            git(tree.root, "apply", "--check", "--whitespace=nowarn", str(patch))
            _write_with_git(tree.root, "apply", "--whitespace=nowarn", str(patch))
    # New files of the target follow.
    untracked = git(repository, "ls-files", "--others", "--exclude-standard", "-z", "--", str(target.resolve()))
    for name in filter(None, untracked.split("\0")):
        source, destination = repository / name, tree.root / name
        is_kept = not {"sessions", "__pycache__"} & {*Path(name).parts}
        if is_kept and source.is_file() and not source.is_symlink():
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, destination)
            has_changes = True
    if has_changes:
        tree.commit(UNCOMMITTED_MESSAGE)
    return tree


def copy_worktree(tree: Worktree, root: Path) -> Worktree:
    """Copy a worktree's files into a repository of one commit at `root`, which it replaces. Raises WorkFailed."""
    shutil.rmtree(root, ignore_errors=True)
    try:
        shutil.copytree(tree.root, root, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    except (OSError, shutil.Error) as error:
        raise WorkFailed(f"{root}: cannot be made: {error}", "look after the disk, then resume") from error
    git(root, "init", "--quiet")
    copy = Worktree(root, root / tree.target.relative_to(tree.root), None)
    copy.commit("The incumbent")
    return copy


def make_at_commit(target: Path, root: Path, commit: str) -> Worktree:
    """Make a worktree at `root` with the files of a commit. Raises UsageError if the target is not under git, and
    WorkFailed if git cannot register it. A separate `git reset` checks files out, so that `includeIf` settings
    for that folder apply."""
    repository = require_repository(target)
    _unregister_missing_in(repository, root.parent)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        git(repository, "worktree", "add", "--quiet", "--detach", "--force", "--no-checkout", str(root), commit)
        git(root, "reset", "--quiet", "--hard")
    except LoopError as error:
        hint = f"git has to note it in the repository; if that is read-only: git clone {repository} COPY"
        if (root / ".git").exists():
            Worktree(root, root, repository).remove()
            hint = "git cannot check out its files: a partial clone needs its remote, a filter its program"
        raise WorkFailed(error.message, hint) from error
    except OSError as error:
        raise file_error(root, "made", error, STATE_HINT) from error
    return Worktree(root, root / target.resolve().relative_to(repository), repository)


def _write_with_git(root: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
    """Run a git command that writes in a worktree of `loop`. Raises MachineFailure if it fails.
    Neither hooks nor users interfere there, so only the disk can be the cause."""
    try:
        git(root, *arguments, variables=variables)
    except WorkFailed as error:
        raise MachineFailure(error.message, f"look after the disk of {root}") from error


def _unregister_missing_in(repository: Path, folder: Path) -> None:
    """Unregister worktrees directly in `folder` that no longer exist; a kill leaves such entries.
    `git worktree prune` would also unregister the user's own worktrees on an unmounted disk."""
    for line in git(repository, "worktree", "list", "--porcelain").splitlines():
        path = Path(line.removeprefix("worktree "))
        is_in_folder = line.startswith("worktree ") and path.parent.resolve() == folder.resolve()
        if is_in_folder and not path.exists():
            with contextlib.suppress(LoopError):
                git(repository, "worktree", "remove", "--force", "--force", str(path))
    # A git that was killed while it noted a worktree leaves half a path, which no git command removes.
    for entry in (_common_git_folder(repository) / "worktrees").glob("*"):
        with contextlib.suppress(OSError):
            noted_path = (entry / "gitdir").read_text().strip()
            whole_path = f"{folder.resolve()}/{entry.name}/.git"
            is_torn = whole_path.startswith(noted_path) and not noted_path.endswith("/.git")
            if is_torn and not Path(whole_path).exists():
                shutil.rmtree(entry)


def _common_git_folder(folder: Path) -> Path:
    """The `.git` folder that all worktrees of a repository share. `folder`: in any of them."""
    return Path(git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())


def find_worktree(target: Path, root: Path) -> Worktree | None:
    """The existing worktree of a target at `root`; None if there is none that git knows. Removes
    the locks that a killed git left."""
    if not (root / ".git").exists():
        return None
    try:
        git_folder = Path(git(root, "rev-parse", "--absolute-git-dir", "HEAD").splitlines()[0])
    except LoopError:
        return None
    for lock in git_folder.glob("*.lock"):  # They would block later commands.
        lock.unlink(missing_ok=True)
    repository = repository_of(target)
    path_in_repository = Path(target.name) if repository is None else target.resolve().relative_to(repository)
    return Worktree(root, root / path_in_repository, repository)


def repository_of(target: Path) -> Path | None:
    """Root of the repository whose HEAD has files of the target's folder; None if there is none."""
    with contextlib.suppress(LoopError):
        if (top := root_of(target)) is not None:
            path = os.path.relpath(target.resolve(), top.resolve())
            return top.resolve() if git(top, "ls-tree", "HEAD", "--", f"{path}/" if path != "." else ".") else None
    return None


def require_repository(target: Path) -> Path:
    """Root of the repository with the target's folder. Raises UsageError if it is not under git."""
    top = repository_of(target)
    if top is None:
        message = f"{target} is not under git, or none of it is committed"
        try:
            git(target, "ls-tree", "HEAD")
        except LoopError as error:  # It may be damaged, or another user's.
            message += f": {error.message}"
        raise UsageError(message, hint="git init, and commit what works; or mend what git says")
    return top


def list_worktrees(folder: Path) -> Iterator[Worktree]:
    """All worktrees in `folder`, by name, also incomplete ones, without symbolic links."""
    for root in sorted(folder.iterdir()) if folder.is_dir() else ():
        if root.is_symlink() or not root.is_dir():
            continue
        repository = None
        with contextlib.suppress(LoopError):
            if (root / ".git").is_file():
                git_folder = _common_git_folder(root)
                repository = git_folder.parent if git_folder.name == ".git" else git_folder
        yield Worktree(root, root, repository)
