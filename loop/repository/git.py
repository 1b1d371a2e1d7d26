"""How git is run: with settings and a name of loop's own, never the user's hooks, never their index."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loop.base.errors import WorkFailed, remark_once

QUIET = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "commit.gpgsign=false", "tag.gpgsign=false"),
    *("log.showSignature=false", "merge.verifySignatures=false", "protocol.ext.allow=never", "gc.auto=0"),
    *("maintenance.auto=false", "advice.detachedHead=false", "submodule.recurse=false"),
    *("i18n.logOutputEncoding=UTF-8", "i18n.commitEncoding=UTF-8"),
)
"""Settings under which git runs here, whatever the user's are."""
ENVIRONMENT = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "loop"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "loop@localhost"),
    **dict.fromkeys(("LANGUAGE", "LC_ALL"), "C"),
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Who commits where git does not know the user, and in which language git answers; it asks nobody."""

OFFLINE = {"GIT_ALLOW_PROTOCOL": "file", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""No other machine is asked, by no helper."""

NONE: Mapping[str, str] = MappingProxyType({})

ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_GRAFT_FILE"),
    *("GIT_SHALLOW_FILE", "GIT_INTERNAL_SUPER_PREFIX"),
)
"""Variables that point git at one repository, whatever folder it is asked about. Git sets them for aliases and
hooks: with them a command meant for a worktree of ours would work on the user's checkout."""


def git(
    folder: Path, *arguments: str, index: Path | None = None, stdin: str = "", variables: Mapping[str, str] = NONE
) -> str:
    """What git prints as text; see `read_bytes`."""
    printed = read_bytes(folder, *arguments, index=index, stdin=stdin, variables=variables)
    return printed.decode(errors="surrogateescape")


def read_bytes(
    folder: Path, *arguments: str, index: Path | None = None, stdin: str = "", variables: Mapping[str, str] = NONE
) -> bytes:
    """What git prints. Raises WorkFailed with its own words.

    `index`: in the place of the checkout's. `stdin`: what it reads as its input. `variables`: of its environment.
    """
    for name in ELSEWHERE:  # In this process, and in all that it starts.
        os.environ.pop(name, None)
    try:
        from git import Git, GitError
    except ImportError as error:  # GitPython raises it when there is no git program.
        raise WorkFailed("there is no git program", hint="install git (`apt-get install git`)") from error
    command = ["git", *(word for setting in QUIET for word in ("-c", setting)), *arguments]
    env = ENVIRONMENT | dict(variables) | ({} if index is None else {"GIT_INDEX_FILE": str(index)})
    with tempfile.TemporaryFile() as source:
        try:
            source.write(stdin.encode())
            source.seek(0)
            terms: dict[str, Any] = {"env": env, "istream": source}
            terms |= {"stdout_as_string": False, "strip_newline_in_stdout": False}
            return bytes(Git(folder).execute(command, **terms))
        except (GitError, OSError, ValueError) as error:  # ValueError: NUL, or half of a pair, in an argument.
            message = str(getattr(error, "stderr", "") or error).strip()
            raise WorkFailed(f"git {arguments[0]} in {folder}: {message}") from error


def shown_text(data: bytes) -> str:
    """What git prints for people, such as messages and patches. A line that is no UTF-8 is taken for Latin-1."""
    lines = []
    for line in data.splitlines(keepends=True):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            lines.append(line.decode("latin-1"))
    return "".join(lines)


def author(folder: Path) -> dict[str, str]:
    """The user as git knows them in a folder, as variables for a commit; none, with a remark, where not."""
    name, address = (
        os.environ.get(variable) or git(folder, "config", "--get", "--default=", setting).strip()
        for variable, setting in (("GIT_AUTHOR_NAME", "user.name"), ("GIT_AUTHOR_EMAIL", "user.email"))
    )
    if not name or not address:
        remark_once(
            "git does not know your name, so loop commits under its own"
            " (git config --global user.name NAME, and user.email ADDRESS)"
        )
        return {}
    people = ("AUTHOR", "COMMITTER")
    return {f"GIT_{who}_NAME": name for who in people} | {f"GIT_{who}_EMAIL": address for who in people}
