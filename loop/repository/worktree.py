"""Reads the user's git repository; and worktrees, folders in which sessions edit a target.

git runs with fixed settings, without the user's hooks and without writing the user's index. A
worktree is one of git's, or a copy. The user's checkout, index, stash and branches stay unchanged.
"""

import contextlib
import datetime
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop import __version__
from loop.base import errors
from loop.base.documents import file_error, sums
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed, remark_once
from loop.model.bisect import Candidate
from loop.model.record import Revision

FIXED_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "commit.gpgsign=false"),
    *("tag.gpgsign=false", "log.showSignature=false", "merge.verifySignatures=false"),
    *("protocol.ext.allow=never", "submodule.recurse=false", "advice.detachedHead=false"),
    *("gc.auto=0", "maintenance.auto=false"),
    *("i18n.logOutputEncoding=UTF-8", "i18n.commitEncoding=UTF-8"),
)
"""Settings that override the user's in every git command."""
ENVIRONMENT = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "loop"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "loop@localhost"),
    **dict.fromkeys(("LANGUAGE", "LC_ALL"), "C"),
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Default author, English messages, no locks and no prompts."""
OFFLINE = {"GIT_ALLOW_PROTOCOL": "file", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Forbids network access and lazy fetches."""
REPOSITORY_VARIABLES = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_GRAFT_FILE"),
    *("GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_INTERNAL_SUPER_PREFIX"),
)
"""Variables that bind git to one repository, whatever the folder. Git sets them for hooks and
aliases; `loop` removes them, or a command for its worktree would change the user's checkout."""
PLAIN_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color")
"""A diff that runs no program of the user's, and is not coloured by the user's settings."""


def git(folder: Path, *arguments: str, **options: Any) -> str:
    """Run git in `folder` and return its output as text. Options and errors: see `git_bytes`."""
    return git_bytes(folder, *arguments, **options).decode(errors="surrogateescape")


def git_bytes(folder: Path, *words: str, stdin: str = "", env: Mapping[str, str] = {}) -> bytes:
    """Run git in `folder` and return its output. Raises WorkFailed with git's message. `stdin`:
    text for its input. `env`: variables for it. Unsets REPOSITORY_VARIABLES in this process."""
    for name in REPOSITORY_VARIABLES:
        os.environ.pop(name, None)
    try:
        from git import Git, GitError
    except ImportError as error:  # GitPython raises it when there is no git program.
        raise WorkFailed("there is no git program", "install it (`apt-get install git`)") from error
    command = ["git", *(word for setting in FIXED_SETTINGS for word in ("-c", setting)), *words]
    options: dict[str, Any] = {"stdout_as_string": False, "strip_newline_in_stdout": False}
    options["env"] = ENVIRONMENT | dict(env)
    with tempfile.TemporaryFile() as source:
        try:
            # A file's name may be no UTF-8 text.
            source.write(stdin.encode(errors="surrogateescape"))
            source.seek(0)
            return bytes(Git(folder).execute(command, istream=source, **options))
        except (GitError, OSError, ValueError) as error:  # ValueError: NUL, or half of a pair.
            stderr = str(getattr(error, "stderr", "")).strip()
            git_text = stderr.removeprefix("stderr: '").removesuffix("'")
            hint = "if an object is damaged, `git fsck` names it: take it from a clone, then repeat"
            message = f"git {words[0]} in {folder}: {git_text or error}"
            raise WorkFailed(message, hint if git_text else None) from error


def author_variables(folder: Path) -> dict[str, str]:
    """The user's name and address from git, as variables of a commit; with a remark if unknown."""
    variables = dict[str, str]()
    for kind, setting in (("NAME", "user.name"), ("EMAIL", "user.email")):
        stated = os.environ.get(f"GIT_AUTHOR_{kind}")
        value = stated or git(folder, "config", "--get", "--default=", setting).strip()
        if not value:
            remedy = "(git config --global user.name NAME, and user.email ADDRESS)"
            remark_once(f"git does not know your name, so loop commits under its own {remedy}")
            return {}
        variables |= {f"GIT_AUTHOR_{kind}": value, f"GIT_COMMITTER_{kind}": value}
    return variables


MAX_CHANGED = 20
UNCOMMITTED_MESSAGE = "The checkout as it stood, with its uncommitted changes"
"""Message of the commit that holds the checkout's uncommitted changes when a session begins."""
NO_SESSIONS = ":(top,exclude,glob)**/sessions/[0-9][0-9][0-9][0-9]-*/**"
"""Pathspec without the folders of sessions, which `loop` writes: they are no change of a target."""


def root_of(folder: Path) -> Path | None:
    """Root of the checkout that contains `folder`; None outside git."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").strip())
    except LoopError:
        return None


def read_revision(folder: Path) -> Revision:
    """Commit, branch and the first `MAX_CHANGED` uncommitted files of the checkout with `folder`:
    edits of tracked files, and new files below `folder` (`add_new_files` adds others). No commit
    outside git and where git fails; no commit and `dirty` before the first commit."""
    top = root_of(folder)
    if top is None:
        return Revision(commit=None)
    try:
        commit, branch = git(folder, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD").split()
    except LoopError:
        return Revision(commit=None, dirty=True)
    try:
        rows = git(top, "status", "--porcelain", "-uno", "--", NO_SESSIONS)
        rows += git(folder, "status", "--porcelain", "-unormal", "--", ".", NO_SESSIONS)
    except LoopError:
        return Revision(commit=None)
    changed = tuple(dict.fromkeys(row[3:] for row in rows.splitlines()))
    name = None if branch == "HEAD" else branch.removeprefix("refs/heads/")
    return Revision(commit=commit, branch=name, dirty=bool(changed), changed=changed[:MAX_CHANGED])


def add_new_files(revision: Revision, folder: Path, files_read: Iterable[Path]) -> Revision:
    """The revision with those of `files_read` (by builds) that are new files of the checkout with
    `folder`, or of a submodule there, and not ignored. The same outside git and where git fails."""
    top, names_by_folder = root_of(folder), dict[Path, list[str]]()
    if top is None or revision.commit is None:
        return revision
    top = top.resolve()
    for path in (path.resolve() for path in files_read if path.is_file()):
        if path.is_relative_to(top):
            names_by_folder.setdefault(path.parent, []).append(path.name)
    new_files, options = list[str](), ("-o", "--exclude-standard", "-z", "--")
    for parent, names in names_by_folder.items():
        try:
            rows = git(parent, "--literal-pathspecs", "ls-files", *options, *names)
        except LoopError:
            return revision
        new_files += [os.path.relpath(parent / name, top) for name in rows.split("\0") if name]
    unnamed = [os.fsencode(name) for name in new_files if not name.startswith(revision.changed)]
    added = [plain_line(name.decode(errors="replace")) for name in unnamed]
    changed = (*revision.changed, *added)[:MAX_CHANGED]
    return revision.model_copy(update={"dirty": revision.dirty or bool(added), "changed": changed})


def export_commit(folder: Path, commit: str, into: Path) -> Path:
    """Write the files of `folder` at a commit below `into`, and return that. Raises WorkFailed."""
    try:
        top = (root_of(folder) or folder).resolve()
        path_in_repository = folder.resolve().relative_to(top).as_posix()
        tree = f"{commit}:{'' if path_in_repository == '.' else path_in_repository}"
        with tempfile.TemporaryDirectory() as scratch:
            env = {"GIT_INDEX_FILE": f"{scratch}/index"}
            git(top, "read-tree", tree, env=env)
            git(top, "checkout-index", "--all", f"--prefix={into.absolute()}/", env=env)
    except (LoopError, OSError, ValueError) as error:
        raise WorkFailed(f"{commit[:12]} cannot be read: {error}") from error
    return into


def changed_lines(folder: Path, commit: str) -> dict[str, int]:
    """Files below `folder` that differ from a commit, to lines added plus removed. Includes
    uncommitted edits; untracked files have 0 lines. Empty outside git or for an unknown commit."""
    path_arguments, top = ("--", str(folder.absolute()), NO_SESSIONS), root_of(folder)
    if top is None:
        return {}
    try:
        options = (*PLAIN_DIFF, "--numstat", "--no-renames", "-z")
        lines_by_file = parse_numstat(git(top, *options, commit, *path_arguments))
        untracked = git(top, "ls-files", "--others", "--exclude-standard", "-z", *path_arguments)
    except LoopError:
        return {}
    return lines_by_file | dict.fromkeys(filter(None, untracked.split("\0")), 0)


def is_revertible(folder: Path, commit: str) -> bool:
    """Whether `git revert` could undo a commit without a conflict."""
    top = root_of(folder) or folder
    try:
        change = git(top, *PLAIN_DIFF, "--no-renames", f"{commit}^", commit)
        git_bytes(top, "apply", "--check", "--index", "--reverse", "-", stdin=change)
    except LoopError:
        return False
    return True


def parse_numstat(numstat: str) -> dict[str, int]:
    """Parse `git diff --numstat -z`: file to lines added plus removed; 0 for binary files."""
    lines_by_file = {}
    for row in filter(None, numstat.split("\0")):
        added, removed, name = row.split("\t", 2)
        lines_by_file[name] = int(added) + int(removed) if added.isdigit() else 0
    return lines_by_file


LOG_FORMAT = "%H%x00%T%x00%P%x00%aN%x00%aI%x00%s"
"""Format of a log: hash, tree, parents, author (mailmap), date, subject, with NUL bytes between."""
SHORT_HASH = 12  # Length of a hash in messages.
SHALLOW_HINT = "this clone is shallow, older commits are not in it: git fetch --unshallow"


def resolve_revision(folder: Path, revision: str) -> str:
    """The commit hash of a revision such as `HEAD~2`. Raises UsageError if there is none."""
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return git(folder, *arguments).strip()
    except LoopError as error:
        is_shallow = git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"
        hint = SHALLOW_HINT if is_shallow else "git log --oneline names some"
        raise UsageError(f"{revision} is no commit of {folder}", hint=hint) from error


def first_parent_commits(folder: Path, good: str, bad: str) -> list[Candidate]:
    """Commits after `good` up to `bad`, oldest first, by first parents (a merged branch is one
    commit). Raises UsageError if they are equal, swapped or unrelated, or the clone too shallow."""
    good_commit, bad_commit = resolve_revision(folder, good), resolve_revision(folder, bad)
    good_short, bad_short = good_commit[:SHORT_HASH], bad_commit[:SHORT_HASH]
    if good_commit == bad_commit:
        raise UsageError(f"good and bad are the same commit, {good_short}", "name two that differ")
    if is_ancestor(folder, bad_commit, good_commit):
        hint = f"--good {bad} --bad {good}, if it was the other way round"
        raise UsageError(f"bad {bad_short} is older than good {good_short}: they are swapped", hint)
    if not is_ancestor(folder, good_commit, bad_commit):
        try:
            base = git(folder, "merge-base", good_commit, bad_commit).strip()[:SHORT_HASH]
            hint = f"both come from {base}: is that one good?"
        except LoopError:
            hint = "they have no common history"
        if git(folder, "rev-parse", "--is-shallow-repository").strip() == "true":
            hint = SHALLOW_HINT
        raise UsageError(f"{good_short} is no ancestor of {bad_short}", hint)
    revisions = f"{good_commit}..{bad_commit}"
    descendants = set(git(folder, "rev-list", "--ancestry-path", revisions).split())
    commits = _read_log(folder, "--first-parent", revisions)
    return [commit for commit in commits if commit.commit in descendants]


def read_commit(folder: Path, revision: str) -> Candidate:
    """The commit of a revision, with its message, author and date. Raises UsageError if unknown."""
    return next(_read_log(folder, "-1", resolve_revision(folder, revision)))


def is_ancestor(folder: Path, older: str, newer: str) -> bool:
    """Whether `older` is an ancestor of `newer`, or the same commit."""
    return git(folder, "rev-list", "--count", "--max-count=1", older, f"^{newer}").strip() == "0"


def object_hashes(folder: Path, commit: str, mode: str = "") -> dict[str, str]:
    """Path to object hash of a commit's files, links, submodules whose mode begins with `mode`."""
    rows = git(folder, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    return {row.partition("\t")[2]: row.split()[2] for row in rows if row.startswith(mode) and row}


def _read_log(folder: Path, *log_arguments: str) -> Iterator[Candidate]:
    """Commits that `git log` lists for the arguments `log_arguments`, oldest first."""
    log = git_bytes(folder, "log", "-z", "--reverse", f"--format={LOG_FORMAT}", *log_arguments)
    words, size = log.decode(errors="replace").split("\0"), LOG_FORMAT.count("%x00") + 1
    for start in range(0, len(words) - 1, size):
        commit, tree, parents, author, date, subject = words[start : start + size]
        when = None
        with contextlib.suppress(ValueError):  # No date, or an invalid year.
            when = datetime.datetime.fromisoformat(date)
        ancestors = tuple(parents.split())
        yield Candidate(
            commit=commit,
            tree=tree,
            parents=ancestors,
            merge=len(ancestors) > 1,
            author=plain_line(author),
            when=when,
            subject=plain_line(subject),
        )


def plain_line(text: str) -> str:
    """Text on one line, without terminal escape sequences."""
    return " ".join(errors.remove_escapes(text).split())


GIT_ENTRIES = (
    *("HEAD", "packed-refs", "index", "shallow", "info", "logs", "lfs", "objects"),
    *("refs", "reftable"),
)
"""Entries of `.git` to send: no hooks, no submodule repositories, no configuration file."""
SENT_SETTINGS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|symlinks|ignorecase|autocrlf|eol|safecrlf)"
    r"|core\.precomposeunicode|extensions\.(objectformat|refstorage)|filter\..*|user\.(name|email)"
)
"""Git settings to send: storage format and user. Others may contain passwords or addresses."""
SESSION_BRANCHES = "refs/heads/loop/*"  # Branches that hold the kept changes of sessions.


def list_files_to_send(root: Path) -> tuple[str, ...]:
    """Files to send, relative to `root`: those that git does not ignore, submodules included, and
    its history from `.git`. Outside git: all files. Without history if `.git` is no folder. Raises
    UsageError if the repository borrows objects of another one, which is not sent."""
    alternates = root / ".git" / "objects" / "info" / "alternates"
    if alternates.is_file() and alternates.read_text().strip():
        remedy = f"give it objects of its own: git -C {root} repack -a -d && rm {alternates}"
        raise UsageError(f"{root} borrows objects of another repository ({alternates})", remedy)
    files = [name for name in dict.fromkeys(_work_tree_files(root)) if os.path.lexists(root / name)]
    for name in _files_below(root / ".git", root):
        git_entry = name.split("/")[1]
        is_sent = git_entry in GIT_ENTRIES or git_entry.startswith("sharedindex.")
        files += [name] if is_sent and not name.endswith((".lock", ".tmp")) else []
    return tuple(files)


def git_config_to_send(root: Path) -> str:
    """The text of `.git/config` to send, without secrets; empty if `.git` is no folder."""
    if not (root / ".git").is_dir():
        return ""
    listed = git(root, "config", "--local", "--list", "-z").split("\0")
    lines = []
    for name, _, value in (row.partition("\n") for row in listed):
        section, _, subsection_and_key = name.partition(".")
        subsection, _, key = subsection_and_key.rpartition(".")
        texts = [re.sub(r'[\\"]', r"\\\g<0>", text) for text in (subsection, value)]
        if SENT_SETTINGS.fullmatch(name):
            subsection, value = (text.replace("\n", "\\n") for text in texts)
            head = f'{section} "{subsection}"' if subsection else section
            lines.append(f'[{head}]\n\t{key} = "{value}"\n')
    return "".join(lines)


def _work_tree_files(root: Path) -> Iterator[str]:
    """Files that git does not ignore, nested repositories included; all files outside git."""
    try:
        listed = git_bytes(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except LoopError:
        yield from _files_below(root, root)
        return
    for name in (os.fsdecode(name).rstrip("/") for name in listed.split(b"\0") if name):
        if (root / name / ".git").exists() and not (root / name).is_symlink():
            yield from (f"{name}/{inner}" for inner in _work_tree_files(root / name))
        else:
            yield name


def fetch_session_branches(root: Path, bundle: Path) -> tuple[str, ...]:
    """Fetch the session branches from a git bundle; return the names of new and changed ones. The
    user's branches stay unchanged. Raises WorkFailed for a damaged bundle or a diverged branch."""
    listing = ("for-each-ref", "--format=%(refname:short) %(objectname)", SESSION_BRANCHES[:-2])
    old_lines = set(git(root, *listing).splitlines())
    options = ("-q", "--no-tags", "--no-write-fetch-head", "--", str(bundle))
    verify = {"GIT_CONFIG_KEY_0": "transfer.fsckObjects", "GIT_CONFIG_VALUE_0": "true"}
    env = {**OFFLINE, "GIT_CONFIG_COUNT": "1", **verify}  # Other commands read old histories.
    git(root, "fetch", *options, f"{SESSION_BRANCHES}:{SESSION_BRANCHES}", env=env)
    new_lines = [line for line in git(root, *listing).splitlines() if line not in old_lines]
    return tuple(line.rpartition(" ")[0] for line in new_lines)


def _files_below(folder: Path, root: Path) -> Iterator[str]:
    """All files and empty folders below `folder`, as paths relative to `root`."""
    for subfolder, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.relpath(os.path.join(subfolder, name), root) for name in sorted(files))
        if not files and not folders:
            yield os.path.relpath(subfolder, root)  # Git needs some of its folders even if empty.


SUBMODULE_MODE = "160000"  # Mode of a submodule in a tree.


class MissingSubmodule(WorkFailed):
    """A commit needs a submodule's commit that is not in the user's checkout of it."""


def fill_submodules(checkout: Path, root: Path) -> None:
    """Check out the submodules of worktree `root` at its HEAD's commits, offline, from the user's
    checkout or git's copy in `.git/modules/PATH`; others stay empty. Raises MissingSubmodule."""
    commit_by_path = object_hashes(root, "HEAD", SUBMODULE_MODE)
    if not commit_by_path:
        return
    modules = _common_git_folder(checkout) / "modules"
    for path, commit in commit_by_path.items():
        submodule = root / path
        proofs = (checkout / path / ".git", modules / path / "HEAD")
        sources = [proof.parent for proof in proofs if proof.exists()]
        usable = (source for source in sources if _check_out_submodule(source, submodule, commit))
        source = next(usable, None)
        if source is not None:
            git(submodule, "clean", "--quiet", "--force", "-d")
            fill_submodules(source, submodule)
        elif sources:
            message = f"its submodule {path} is at {commit[:12]}, which is not in {sources[0]}"
            raise MissingSubmodule(message, hint=f"git -C {sources[0]} fetch origin {commit}")


def _check_out_submodule(source: Path, submodule: Path, commit: str) -> bool:
    """Check out a submodule's commit from repository `source`. False if `source` lacks it."""
    for _ in range(2):
        try:
            if not (submodule / ".git").exists():
                options = ("--quiet", "--shared", "--no-checkout")
                git(submodule.parent, "clone", *options, str(source), str(submodule))
            git(submodule, "checkout", "--quiet", "--detach", "--force", commit)
            return True
        except LoopError:
            shutil.rmtree(submodule, ignore_errors=True)  # Another repository: clone again.
            submodule.mkdir(parents=True)
    return False


PATCH = (*PLAIN_DIFF, "--binary", "--src-prefix=a/", "--dst-prefix=b/")
"""A diff that `git apply` accepts, whatever the user's settings."""
EDIT_PATHS = ("--", ".", ":(exclude,glob)**/__pycache__/**", ":(exclude,glob)**/sessions/**")
"""Paths that count as edits: what git does not ignore, without `__pycache__` and `sessions`."""
OWNER_NOTE = "loop-session"  # File in git's private folder of a worktree: the session that uses it.
TRAILER = "Made-with"  # The trailer of every commit that loop makes.
STATE_HINT = "set LOOP_STATE to a folder that can be written"
NOT_COPIED = shutil.ignore_patterns(".git", "sessions", "__pycache__")  # Of targets outside git.


@dataclass(frozen=True)
class Worktree:
    """A folder in which a session edits a target."""

    root: Path
    target: Path
    repository: Path | None  # The user's repository; None for a copy of a target outside git.

    @property
    def head(self) -> str:
        """Hash of the current commit. Edits are differences from it."""
        return git(self.root, "rev-parse", "HEAD").strip()

    def changed_lines(self) -> dict[str, int]:
        """Path (from the target's folder) of each file that differs from `head`, to lines added
        plus removed, new files included. Raises LoopError in an incomplete worktree."""
        self._require_own_worktree()
        # So that `diff` shows new files.
        git(self.root, "add", "--all", "--intent-to-add", *EDIT_PATHS)
        text = git(self.root, "diff", "--numstat", "--no-renames", "-z", "HEAD", *EDIT_PATHS)
        counts = ((self.root / name, count) for name, count in parse_numstat(text).items())
        return {os.path.relpath(path, self.target): count for path, count in counts}

    def patch(self, base: str = "HEAD") -> bytes:
        """The patch from commit `base` to the current files, for `git apply` at the top folder."""
        git(self.root, "add", "--all", "--intent-to-add", *EDIT_PATHS)
        return git_bytes(self.root, *PATCH, base, *EDIT_PATHS)

    def commit(self, message: str, session: str = "") -> str:
        """Commit all files and return the new hash. A trailer names `loop` and the session. The
        author is the user; in a copy, which nobody else reads, `loop`. Raises MachineFailure."""
        self._require_own_worktree()
        git(self.root, "add", "--all", *EDIT_PATHS)
        trailer = f"{TRAILER}: loop {__version__}{f' session {session}' if session else ''}"
        options = ("--quiet", "--allow-empty", "--no-verify", "-m", message, "-m", trailer)
        author = author_variables(self.root) if self.repository else {}
        _write_with_git(self.root, "commit", *options, env=author)
        return self.head

    def point_branch(self, name: str) -> str:
        """Point a branch at `head` and return its name. If `name` exists with commits that `head`
        lacks, the branch is called `name-2`, `name-3` and so on. Raises WorkFailed after 99."""
        for branch in (name, *(f"{name}-{number}" for number in range(2, 100))):
            if not git(self.root, "for-each-ref", "--no-merged=HEAD", f"refs/heads/{branch}"):
                git(self.root, "branch", "--force", branch, "HEAD")
                return branch
        raise WorkFailed(f"there are too many branches {name}-...", "git branch --list 'loop/*'")

    def committed_files(self) -> set[str]:
        """Files in the commit `head`, as paths from the target's folder."""
        names = git(self.root, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
        return {os.path.relpath(self.root / name, self.target) for name in names if name}

    def _require_own_worktree(self) -> None:
        """Raises LoopError, as for a bug, if git would change a folder other than this worktree."""
        top = root_of(self.root)
        if top is None or top.resolve() != self.root.resolve():
            raise LoopError(f"{self.root} is no worktree of loop's: git uses {top}", exit_code=3)

    def check_out(self, commit: str) -> None:
        """Check out a commit with submodules; ignored files stay. Raises MissingSubmodule."""
        self._require_own_worktree()
        present = object_hashes(self.root, "HEAD", SUBMODULE_MODE)
        for path in present.keys() - object_hashes(self.root, commit, SUBMODULE_MODE).keys():
            shutil.rmtree(self.root / path, ignore_errors=True)
        git(self.root, "checkout", "--quiet", "--detach", "--force", commit)
        git(self.root, "clean", "--quiet", "--force", "-d")
        if self.repository is not None:
            fill_submodules(self.repository, self.root)

    def describe_ignored_sources(self) -> str:
        """A sentence on sources in the user's folder of the target that git ignores, if any."""
        options, suffixes = ("-oiz", "--exclude-standard"), (".h", ".hpp", ".inc", ".cuh", ".py")
        folder = self.repository and self.repository / self.target.relative_to(self.root)
        listed = git(folder, "ls-files", *options) if folder and folder.is_dir() else ""
        sources = ", ".join(name for name in listed.split("\0") if name.endswith(suffixes))
        return f"no commit has {sources}, which git ignores" if sources else ""

    def describe_empty_submodules(self) -> str:
        """A sentence that names empty submodules and the command that fills them; empty if none."""
        submodules = object_hashes(self.root, "HEAD", SUBMODULE_MODE) if self.repository else {}
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
        """Note which session uses the worktree, if that works: `loop clean` skips one without."""
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
    """Make a worktree at `root` with the state of the user's checkout, committed or not; `head` is
    a commit of it. Raises LoopError when git fails, UsageError for unresolved merge conflicts."""
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
    if unmerged := git(repository, "diff", "--name-only", "--diff-filter=U").splitlines():
        hint = "finish the merge, or `git merge --abort`"
        raise UsageError(f"{repository / unmerged[0]} is in conflict", hint)
    tree = make_at_commit(target, root, "HEAD")
    with tempfile.TemporaryDirectory() as folder:
        patch = Path(folder) / "patch"
        git(repository, *PATCH, f"--output={patch}", "HEAD")
        has_changes = patch.stat().st_size > 0
        if has_changes:
            # What `--check` finds is the patch's fault; an error after it is the disk's.
            git(tree.root, "apply", "--check", "--whitespace=nowarn", str(patch))
            _write_with_git(tree.root, "apply", "--whitespace=nowarn", str(patch))
    # New files of the target follow.
    options = ("--others", "--exclude-standard", "-z", "--", str(target.resolve()))
    for name in filter(None, git(repository, "ls-files", *options).split("\0")):
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
    """Copy a worktree's files into a one-commit repository; replaces `root`. Raises WorkFailed."""
    shutil.rmtree(root, ignore_errors=True)
    try:
        shutil.copytree(tree.root, root, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    except (OSError, shutil.Error) as error:
        raise WorkFailed(f"{root} cannot be made: {error}", "mend the disk, then resume") from error
    git(root, "init", "--quiet")
    copy = Worktree(root, root / tree.target.relative_to(tree.root), None)
    copy.commit("The incumbent")
    return copy


def make_at_commit(target: Path, root: Path, commit: str) -> Worktree:
    """Make a worktree at `root` with a commit's files. Raises UsageError outside git, WorkFailed if
    git refuses. A separate `git reset` lets `includeIf` settings for that folder apply."""
    repository = require_repository(target)
    _unregister_missing_in(repository, root.parent)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        options = ("--quiet", "--detach", "--force", "--no-checkout")
        git(repository, "worktree", "add", *options, str(root), commit)
        git(root, "reset", "--quiet", "--hard")
    except LoopError as error:
        hint = f"git notes it in the repository; if that is read-only: git clone {repository} COPY"
        if (root / ".git").exists():
            Worktree(root, root, repository).remove()
            hint = "git cannot check out: a partial clone needs its remote, a filter its program"
        raise WorkFailed(error.message, hint) from error
    except OSError as error:
        raise file_error(root, "made", error, STATE_HINT) from error
    return Worktree(root, root / target.resolve().relative_to(repository), repository)


def _write_with_git(root: Path, *words: str, env: Mapping[str, str] = {}) -> None:
    """Run git to write in a worktree of `loop`. Raises MachineFailure: only the disk can fail."""
    try:
        git(root, *words, env=env)
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
    # A git that was killed while it noted a worktree leaves half a path, which no command removes.
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
    """The existing worktree of a target at `root`, without a killed git's locks; or None."""
    if not (root / ".git").exists():
        return None
    try:
        git_folder = Path(git(root, "rev-parse", "--absolute-git-dir", "HEAD").splitlines()[0])
    except LoopError:
        return None
    for lock in git_folder.glob("*.lock"):  # They would block later commands.
        lock.unlink(missing_ok=True)
    repository = repository_of(target)
    path = target.resolve().relative_to(repository) if repository else target.name
    return Worktree(root, root / path, repository)


def repository_of(target: Path) -> Path | None:
    """Root of the repository whose HEAD has files of the target's folder; None if there is none."""
    top = root_of(target)
    with contextlib.suppress(LoopError):
        if top is not None and git(target, "ls-tree", "HEAD"):  # In a folder: that folder's files.
            return top.resolve()
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
