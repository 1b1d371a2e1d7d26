"""Runs git with fixed settings, without the user's hooks and without writing the user's index."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loop.base.errors import WorkFailed, remark_once

FIXED_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "commit.gpgsign=false", "tag.gpgsign=false"),
    *("log.showSignature=false", "merge.verifySignatures=false", "protocol.ext.allow=never", "gc.auto=0"),
    *("maintenance.auto=false", "advice.detachedHead=false", "submodule.recurse=false"),
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
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_GRAFT_FILE"),
    *("GIT_SHALLOW_FILE", "GIT_INTERNAL_SUPER_PREFIX"),
)
"""Variables that bind git to one repository, whatever the folder. Git sets them for aliases and hooks.
`loop` removes them: with them, a command for its worktree would change the user's checkout."""


def git(folder: Path, *arguments: str, **options: Any) -> str:
    """Run git in `folder` and return its output as text. Options and errors: see `git_bytes`."""
    return git_bytes(folder, *arguments, **options).decode(errors="surrogateescape")


def git_bytes(
    folder: Path,
    *arguments: str,
    index: Path | None = None,
    stdin: str = "",
    variables: Mapping[str, str] | None = None,
) -> bytes:
    """Run git in `folder` and return its output. Raises WorkFailed with git's message on failure. `index`: a file
    to use as the index. `stdin`: text for its input. `variables`: added to its environment, which is that of
    this process without REPOSITORY_VARIABLES."""
    environment = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    environment |= ENVIRONMENT | dict(variables or {}) | ({} if index is None else {"GIT_INDEX_FILE": str(index)})
    command = ["git", *(word for setting in FIXED_SETTINGS for word in ("-c", setting)), *arguments]
    try:
        source = stdin.encode(errors="surrogateescape")  # A file's name may be no UTF-8 text.
        done = subprocess.run(command, cwd=folder, env=environment, input=source, capture_output=True)
    except (OSError, ValueError) as error:  # ValueError: NUL, or half of a pair, in an argument.
        if shutil.which("git") is None:
            raise WorkFailed("there is no git program", hint="install git (`apt-get install git`)") from error
        raise WorkFailed(f"git {arguments[0]} in {folder}: {error}") from error
    if done.returncode:
        git_text = done.stderr.decode(errors="replace").strip()
        hint = "if an object is damaged: `git fsck` names it, a new clone has it; then repeat the command"
        message = f"git {arguments[0]} in {folder}: {git_text or f'exit {done.returncode}'}"
        raise WorkFailed(message, hint if git_text else None)
    return done.stdout


def author_variables(folder: Path) -> dict[str, str]:
    """The user's name and address from git, as variables for a commit; empty, with a remark, if git knows none."""
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
    roles = ("AUTHOR", "COMMITTER")
    return {f"GIT_{who}_NAME": name for who in roles} | {f"GIT_{who}_EMAIL": address for who in roles}
