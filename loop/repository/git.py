"""How git is run: with settings and a name of loop's own, never the user's hooks, never their index."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from loop.errors import LoopError

QUIET = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "commit.gpgsign=false",
    "advice.detachedHead=false",
    "submodule.recurse=false",
)
"""Settings under which git runs here, whatever the user's are."""
ENVIRONMENT = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "loop"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "loop@localhost"),
    "GIT_OPTIONAL_LOCKS": "0",
}
"""Who commits here; and the user's index is not even refreshed."""

ELSEWHERE = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
)
"""Variables that point git at one repository, whatever folder it is asked about. Git sets them for aliases and
hooks: with them a command meant for a worktree of ours would work on the user's checkout."""


def forget_the_callers_repository() -> None:
    """Let git look for the repository of the folder it is asked about, in this process and all it starts."""
    for name in ELSEWHERE:
        os.environ.pop(name, None)


def look(folder: Path, *arguments: str) -> str:
    """What git prints of the user's checkout, by a copy of its index: `git diff` would refresh the index."""
    place = folder / git(folder, "rev-parse", "--git-path", "index").strip()
    with tempfile.TemporaryDirectory() as copies:
        copy = Path(copies) / "index"
        if place.is_file():
            shutil.copy2(place, copy)
        return git(folder, *arguments, index=copy)


def git(folder: Path, *arguments: str, index: Path | None = None, asked: Path | None = None) -> str:
    """What git prints. Raises LoopError with its own words.

    `index`: in the place of the checkout's. `asked`: a file that git reads as its input.
    """
    forget_the_callers_repository()
    try:
        import git as library
    except ImportError as error:  # GitPython raises it when there is no git program.
        raise LoopError("there is no git program", hint="install git (`apt-get install git`)") from error
    settings = [word for setting in QUIET for word in ("-c", setting)]
    command = ["git", *settings, *arguments]
    try:
        env = ENVIRONMENT | ({} if index is None else {"GIT_INDEX_FILE": str(index)})
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(asked.open("rb")) if asked else None
            terms: dict[str, Any] = {"env": env, "istream": source, "strip_newline_in_stdout": False}
            return str(library.Git(folder).execute(command, **terms))
    except (library.GitError, OSError, ValueError) as error:  # ValueError: NUL, or half of a pair, in an argument.
        said = str(getattr(error, "stderr", "") or error).strip()
        raise LoopError(f"git {arguments[0]} in {folder}: {said}", exit_code=1) from error
