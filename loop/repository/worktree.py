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
from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.repository.git import NONE, author, git, read_bytes
from loop.repository.reading import AS_IT_STOOD, lines_changed, root_of

LINK = "160000"
"""Mode of a submodule in a tree."""


class MissingSubmodule(WorkFailed):
    """A commit needs a submodule's commit that is not in the user's checkout of it."""


def fill_modules(checkout: Path, root: Path) -> None:
    """Check out the submodules of worktree `root` at the commits in its HEAD, without the network.

    Sources are the user's checkout, or git's own copy in `.git/modules`. Submodules that were never
    fetched stay empty. Raises MissingSubmodule if no source has the commit.
    """
    links, rows = wanted_submodules(root, "HEAD"), ""
    if not links:
        return
    with contextlib.suppress(LoopError):  # `.gitmodules` may be missing.
        rows = git(root, "config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    pairs = (row.split("\n", 1) for row in rows.split("\0") if "\n" in row)
    names = {place: key.removeprefix("submodule.").removesuffix(".path") for key, place in pairs}
    own = Path(git(checkout, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    for place, commit in links.items():
        kept = own / "modules" / names.get(place, place)
        marked = ((checkout / place, ".git"), (kept, "HEAD"))
        into, sources = root / place, [source for source, mark in marked if (source / mark).exists()]
        if not sources:
            continue
        source = next((source for source in sources if _holds(source, into, commit)), None)
        if source is None:
            message = f"its submodule {place} is at {commit[:12]}, which is not in {sources[0]}"
            raise MissingSubmodule(message, hint=f"git -C {sources[0]} fetch origin {commit}")
        git(into, "clean", "--quiet", "--force", "-d")
        fill_modules(source, into)


def _holds(source: Path, into: Path, commit: str) -> bool:
    """Check out a submodule's commit in `into`, from repository `source`. False if it lacks the commit."""
    for _ in range(2):
        try:
            if not (into / ".git").exists():
                git(into.parent, "clone", "--quiet", "--shared", "--no-checkout", str(source), str(into))
            git(into, "checkout", "--quiet", "--detach", "--force", commit)
        except LoopError:
            shutil.rmtree(into, ignore_errors=True)  # Another repository: clone again.
            into.mkdir(parents=True)
        else:
            return True
    return False


def wanted_submodules(root: Path, commit: str) -> dict[str, str]:
    """Path of each submodule to the submodule commit that a commit of the repository records."""
    rows = git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    links = [row.split("\t", 1) for row in rows if row.startswith(LINK)]
    return {place: facts.split()[2] for facts, place in links}


PLAIN = ("--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
"""Diff options for a patch that `git apply` accepts, independent of the user's settings."""
COUNTED = ("--", ".", ":(exclude,glob)**/__pycache__/**", ":(exclude,glob)**/sessions/**")
"""Paths that count as edits: all files that git does not ignore, without `__pycache__` and `sessions`."""
MADE_WITH = "Made-with"
"""The trailer of every commit that loop makes."""
IGNORED = shutil.ignore_patterns(".git", "sessions", "__pycache__")
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

    def changed(self) -> dict[str, int]:
        """Path (from the target's folder) of each file that differs from `head`, to its changed lines.

        Changed lines are lines added plus removed. Includes new files; excludes ignored files.
        """
        self._notice_new_files()
        text = git(self.root, "diff", "--numstat", "--no-renames", "-z", "HEAD", *COUNTED)
        return {os.path.relpath(self.root / name, self.target): n for name, n in lines_changed(text).items()}

    def patch(self, base: str = "HEAD") -> bytes:
        """The patch from commit `base` to the current files. `git apply` accepts it at the top folder."""
        self._notice_new_files()
        return read_bytes(self.root, "diff", *PLAIN, base, *COUNTED)

    def write_patch(self, path: Path, base: str = "HEAD") -> None:
        """Write the patch from commit `base` to a file. Raises LoopError when that fails."""
        write_atomic(path, self.patch(base))  # git's --output may write half a patch without an error.

    def _notice_new_files(self) -> None:
        git(self.root, "add", "--all", "--intent-to-add", *COUNTED)

    def commit(self, message: str, session: str = "") -> str:
        """Commit all files in the user's name and return the new commit's hash.

        A trailer names `loop` and the session. Raises MachineFailure if git cannot write.
        """
        self._is_ours()
        git(self.root, "add", "--all", *COUNTED)
        trailer = f"{MADE_WITH}: loop {__version__}{f' session {session}' if session else ''}"
        words = ("--quiet", "--allow-empty", "--no-verify", "-m", message, "-m", trailer)
        _write(self.root, "commit", *words, variables=author(self.root))
        return self.head

    def branch(self, name: str) -> str:
        """Point a branch at `head` and return its name. If `name` exists with commits that `head` lacks,
        the branch is called `name-2`, `name-3` and so on. Raises WorkFailed after 99."""
        for branch in (name, *(f"{name}-{number}" for number in range(2, 100))):
            try:
                stands = git(self.root, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").strip()
            except LoopError:
                stands = ""
            if not stands or git(self.root, "rev-list", "--count", stands, "^HEAD").strip() == "0":
                git(self.root, "branch", "--force", branch, "HEAD")
                return branch
        raise WorkFailed(f"there are too many branches {name}-...", hint="git branch --list 'loop/*'")

    def known(self) -> set[str]:
        """Tracked and new files (not ignored ones), as paths from the target's folder."""
        return self._named(git(self.root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"))

    def committed(self) -> set[str]:
        """Files in the commit `head`, as paths from the target's folder."""
        return self._named(git(self.root, "ls-tree", "-r", "-z", "--name-only", "HEAD"))

    def _named(self, listed: str) -> set[str]:
        names = filter(None, listed.split("\0"))
        return {os.path.relpath(self.root / name, self.target) for name in names}

    def _is_ours(self) -> None:
        """Raises LoopError if git would change a folder other than this worktree."""
        top = root_of(self.root)
        if top is None or top.resolve() != self.root.resolve():
            raise LoopError(f"{self.root} is no worktree of loop's: git works on {top} there", exit_code=3)

    def check_out(self, commit: str) -> None:
        """Check out a commit with its submodules. Ignored files, such as build objects, stay.

        Raises MissingSubmodule if the user's checkout lacks a submodule's commit.
        """
        self._is_ours()
        for place in wanted_submodules(self.root, "HEAD").keys() - wanted_submodules(self.root, commit).keys():
            shutil.rmtree(self.root / place, ignore_errors=True)
        git(self.root, "checkout", "--quiet", "--detach", "--force", commit)
        git(self.root, "clean", "--quiet", "--force", "-d")
        if self.repository is not None:
            fill_modules(self.repository, self.root)

    def lacks(self) -> str:
        """A message that names empty submodules and the command that fills them; empty if there is none."""
        links = wanted_submodules(self.root, "HEAD") if self.repository is not None else {}
        places = [place for place in links if not (self.root / place / ".git").exists()]
        if not places:
            return ""
        fill = f"git -C {self.repository} submodule update --init --recursive"
        which = f"submodules {', '.join(places)} are" if len(places) > 1 else f"submodule {places[0]} is"
        return f"{which} empty in its worktree: `{fill}`"

    def apply(self, patch: Path) -> None:
        """Apply a patch to the current files with a 3-way merge. Raises WorkFailed on a conflict."""
        self._is_ours()
        git(self.root, "apply", "--3way", "--whitespace=nowarn", str(patch.absolute()))

    def revert(self, commit: str = "HEAD") -> None:
        """Reset all files to a commit and remove new ones. Default: discard the edits since `head`."""
        self._is_ours()
        git(self.root, "reset", "--quiet", "--hard", commit)
        git(self.root, "clean", "--quiet", "--force", "-d")


def make(target: Path, root: Path) -> Worktree:
    """Make a worktree at `root` with the current state of the user's checkout, committed or not.

    The worktree's `head` is a commit of that state. Raises LoopError when git fails, and UsageError
    when the checkout has unresolved merge conflicts.
    """
    repository = top_of(target)
    if repository is None:
        try:
            shutil.copytree(target, root / target.name, ignore=IGNORED)
        except OSError as error:
            raise _no_room(root, error) from error
        git(root, "init", "--quiet")
        tree = Worktree(root, root / target.name, None)
        tree.commit(AS_IT_STOOD)
        return tree
    unmerged = git(repository, "diff", "--name-only", "--diff-filter=U").splitlines()
    if unmerged:
        raise UsageError(
            f"{repository / unmerged[0]} is in conflict", hint="finish the merge, or `git merge --abort`"
        )
    tree = _add(repository, target, root, "HEAD")
    if _bring_over(repository, target, tree):
        tree.commit(AS_IT_STOOD)
    return tree


def make_at(target: Path, root: Path, commit: str) -> Worktree:
    """Make a worktree at `root` with the files of a commit, without uncommitted changes.

    Raises UsageError if the target is not under git.
    """
    repository = top_of(target)
    if repository is None:
        raise UsageError(f"{target} is not under git", hint="git init, and commit what works")
    return _add(repository, target, root, commit)


def copy_of(tree: Worktree, root: Path) -> Worktree:
    """Copy a worktree's files into a new repository at `root`, fully separate from the user's."""
    shutil.rmtree(root, ignore_errors=True)
    try:
        shutil.copytree(tree.root, root, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    except (OSError, shutil.Error) as error:
        raise WorkFailed(f"{root}: cannot be made: {error}", "look after the disk, then resume") from error
    git(root, "init", "--quiet")
    copy = Worktree(root, root / tree.target.relative_to(tree.root), None)
    copy.commit("The incumbent")
    return copy


def _add(repository: Path, target: Path, root: Path, commit: str) -> Worktree:
    """Make a worktree of the user's repository. Raises WorkFailed if git cannot register it.

    A separate `git reset` checks files out, so that `includeIf` settings for that folder apply.
    """
    _forget_gone(repository, root)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        git(repository, "worktree", "add", "--quiet", "--detach", "--force", "--no-checkout", str(root), commit)
        git(root, "reset", "--quiet", "--hard")
    except LoopError as error:
        hint = f"git has to note it in the repository; if that is read-only: git clone {repository} COPY"
        raise WorkFailed(error.message, hint) from error
    except OSError as error:
        raise _no_room(root, error) from error
    return Worktree(root, root / target.resolve().relative_to(repository), repository)


def _no_room(root: Path, error: OSError) -> LoopError:
    hint = "set LOOP_STATE to a folder that can be written"
    return WorkFailed(f"{root}: no worktree can be made there: {error.strerror or error}", hint)


def _write(root: Path, *arguments: str, variables: Mapping[str, str] = NONE) -> None:
    """Run a git command that writes in a worktree of `loop`. Raises MachineFailure if it fails.

    Neither hooks nor users interfere there, so only the disk can be the cause. Git's own message is vague.
    """
    try:
        git(root, *arguments, variables=variables)
    except WorkFailed as error:
        raise MachineFailure(error.message, f"look after the disk of {root}") from error


def _forget_gone(repository: Path, root: Path) -> None:
    """Unregister worktrees in the folder of `root` that no longer exist; a kill leaves such entries.

    `git worktree prune` would also unregister the user's own worktrees on an unmounted disk.
    """
    folder = root.parent
    for line in git(repository, "worktree", "list", "--porcelain").splitlines():
        path = Path(line.removeprefix("worktree "))
        beside = line.startswith("worktree ") and path.parent.resolve() == folder.resolve()
        if beside and not path.exists():
            with contextlib.suppress(LoopError):
                git(repository, "worktree", "remove", "--force", "--force", str(path))


def find_worktree(target: Path, root: Path) -> Worktree | None:
    """The existing worktree of a target at `root`; None if there is none or git does not know it."""
    if not (root / ".git").exists():
        return None
    try:
        git(root, "rev-parse", "HEAD")
        own = Path(git(root, "rev-parse", "--absolute-git-dir").strip())
    except LoopError:
        return None
    for lock in own.glob("*.lock"):  # A killed git leaves its lock, which blocks later commands.
        lock.unlink(missing_ok=True)
    repository = top_of(target)
    inside = Path(target.name) if repository is None else target.resolve().relative_to(repository)
    return Worktree(root, root / inside, repository)


def clear_place(target: Path, root: Path) -> None:
    """Remove an incomplete worktree at `root`, if one exists."""
    if root.exists():
        remove(Worktree(root, root, top_of(target)))


def remove(worktree: Worktree) -> None:
    """Delete the folder and unregister the worktree. Commits and branches stay."""
    shutil.rmtree(worktree.root, ignore_errors=True)
    if worktree.repository is not None:
        _forget_gone(worktree.repository, worktree.root)


def top_of(target: Path) -> Path | None:
    """Root of the repository whose HEAD has files of the target's folder; None if there is none."""
    top = root_of(target)
    if top is not None:
        inside = os.path.relpath(target.resolve(), top.resolve())
        with contextlib.suppress(LoopError):
            listed = git(top, "ls-tree", "HEAD", "--", f"{inside}/" if inside != "." else ".")
            return top.resolve() if listed else None
    return None


def _bring_over(repository: Path, target: Path, tree: Worktree) -> bool:
    """Copy the checkout's uncommitted changes into a new worktree. False if there were none."""
    with tempfile.TemporaryDirectory() as folder:
        patch = Path(folder) / "patch"
        git(repository, "diff", *PLAIN, f"--output={patch}", "HEAD")
        edited = patch.stat().st_size > 0
        if edited:
            git(tree.root, "apply", "--check", "--whitespace=nowarn", str(patch))
            _write(tree.root, "apply", "--whitespace=nowarn", str(patch))
    untracked = git(repository, "ls-files", "--others", "--exclude-standard", "-z", "--", str(target.resolve()))
    for name in filter(None, untracked.split("\0")):
        source, place = repository / name, tree.root / name
        kept = not {"sessions", "__pycache__"} & {*Path(name).parts}
        if kept and source.is_file() and not source.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)
            edited = True
    return edited


OWNER = "loop-session"
"""Name of a note that stores the worktree's session folder. Git deletes it together with the worktree."""


@dataclass(frozen=True)
class KeptWorktree:
    """One folder in `worktrees` of the state folder."""

    root: Path
    tree: Worktree | None
    """None if git does not know it: the repository is gone, or the worktree is incomplete."""
    owner: Path | None
    """The session folder that uses the worktree; None without a note."""

    def edits(self) -> dict[str, int] | None:
        """Files with uncommitted edits to their changed lines; None if git cannot tell."""
        with contextlib.suppress(LoopError):
            return self.tree.changed() if self.tree else None
        return None

    def remove(self) -> None:
        """Delete the folder and unregister the worktree. Commits and branches stay."""
        remove(self.tree or Worktree(self.root, self.root, None))


def note_owner(tree: Worktree, session: Path) -> None:
    """Store which session a worktree belongs to. On a write error it has no owner and is never removed."""
    with contextlib.suppress(OSError, LoopError):
        sums.write_sealed(_note_of(tree.root), {"format": 1, "session": str(session.absolute())})


def is_noted(tree: Worktree) -> bool:
    """Whether the worktree is complete. `loop` writes the owner's note last."""
    return _owner(tree.root) is not None


def every_worktree(folder: Path) -> Iterator[KeptWorktree]:
    """All worktree folders in `folder`, by name. Symbolic links are skipped."""
    for root in sorted(folder.iterdir()) if folder.is_dir() else ():
        if root.is_symlink() or not root.is_dir():
            continue
        tree = owner = None
        with contextlib.suppress(LoopError):
            if (root / ".git").exists():
                owner = _owner(root)
                common = Path(git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
                repository = common.parent if common.name == ".git" else common
                tree = Worktree(root, root, None if (root / ".git").is_dir() else repository)
        yield KeptWorktree(root, tree, owner)


def _note_of(root: Path) -> Path:
    """Path of the owner's note, in git's private folder of this worktree."""
    return Path(git(root, "rev-parse", "--absolute-git-dir").strip()) / OWNER


def _owner(root: Path) -> Path | None:
    """The session folder in the note; None if it is missing or damaged. Such a worktree is kept."""
    note = _note_of(root)
    try:
        return Path(json.loads(sums.without_checksum(note, sums.read_regular(note)))["session"])
    except OSError:
        return None
    except LoopError as error:
        remark_once(error.message)
        return None
