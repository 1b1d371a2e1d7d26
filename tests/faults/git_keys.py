"""Repositories whose git configuration names programs: none runs before the definitions are trusted."""

import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.faults import Case
from tests.faults.world import World, make_world
from tests.repository.test_git import KEYS, signed
from tests.repository.test_reading import git

NAME = "hostile repositories: every key of git that names a program"
MUST = "none runs before trust"
MORE = (
    *(
        "core.hooksPath",
        "commit.gpgSign",
        "log.showSignature",
        "merge.own.recursive",
        "core.editor",
        "web.browser",
    ),
    *("submodule.recurse", "submodule.own.update", "diff.external", "core.fsmonitor", "core.sshCommand"),
    *("remote.origin.vcs", "protocol.ext.allow", "url.ext::sh.insteadOf", "gpg.ssh.defaultKeyCommand"),
    *("alias.status", "alias.log", "alias.rev-parse", "alias.config", "include.path", "includeIf.gitdir:/.path"),
    *("core.attributesFile", "init.templateDir", "sendemail.smtpServer", "gui.own.cmd", "guitool.own.cmd"),
    *("imap.tunnel", "instaweb.httpd", "help.browser", "receive.procReceiveRefs", "core.worktree"),
    *(
        "hook.own.command",
        "maintenance.auto",
        "gc.auto",
        "extensions.worktreeConfig",
        "uploadpack.packObjectsHook",
    ),
    *("lfs.customtransfer.own.path", "filter.lfs.process", "filter.lfs.smudge", "filter.lfs.clean"),
)
"""Others that name a program, or lead to a file that may."""
ELSEWHERE = ("of a submodule", "where an object is missing", "of a worktree alone")
"""Places where git finds programs without a key in the configuration of the repository itself."""
BEFORE_TRUST = (
    ("status",),
    ("plan", "next"),
    ("sessions", "list"),
    ("patterns", "list"),
    ("run", "session", "try"),
    ("run", "session", "try", "--dry-run"),
    ("bisect", "--good", "HEAD~1", "--variant", "ours"),
    ("bisect", "--good", "HEAD~1", "--probe", "exit", "--", "false"),
    ("worktrees",),
    ("report",),
    ("cost", "show"),
)
"""Commands that somebody runs in a repository that was just cloned; each may be refused."""
EVERY = dict.fromkeys((*KEYS, *MORE))
UNUSABLE = ("core.worktree", "extensions.worktreeConfig")
"""With these git refuses most of what it is asked: beside others they would hide them."""
LIMIT_S = 120


def cases(seed: int) -> Iterator[Case]:
    """Each key by itself with one command, all keys with every command; what the draw changes is the pairing."""
    keys = tuple(EVERY)
    usable = tuple(key for key in keys if key not in UNUSABLE)
    for words in BEFORE_TRUST:
        yield f"all keys: loop {' '.join(words)}", functools.partial(looked_at, keys=usable, commands=(words,))
    for place in ELSEWHERE:
        for words in BEFORE_TRUST:
            name = f"programs {place}: loop {' '.join(words)}"
            yield name, functools.partial(looked_at, keys=(), commands=(words,), elsewhere=place)
    for number, key in enumerate(keys):
        words = BEFORE_TRUST[(seed + number) % len(BEFORE_TRUST)]
        name = f"{key}: loop {' '.join(words)}, loop status"
        yield name, functools.partial(looked_at, keys=(key,), commands=(words, ("status",)))


def looked_at(
    folder: Path, *, keys: tuple[str, ...], commands: tuple[tuple[str, ...], ...], elsewhere: str = ""
) -> str:
    """Configure a repository so, run the commands in it, and see whether a program of its ran."""
    world = make_world(folder)
    (folder / "state" / "trusted.json").unlink()
    ran = hostile(world, keys)
    if elsewhere:
        PLACES[elsewhere](world)
        ran.unlink(missing_ok=True)
    for words in commands:
        running = world.start(*with_target(words, world.target))
        running.end()
        if ran.exists():
            return (
                f"`loop {' '.join(words)}` ran what {', '.join(keys) or elsewhere} names: {ran.read_text()[:200]}"
            )
        said = running.errors.read_text(errors="replace")
        if "Traceback" in said:
            return f"`loop {' '.join(words)}`: a traceback: {said.strip().splitlines()[-1][:200]}"
    return ""


def with_target(words: tuple[str, ...], target: Path) -> list[str]:
    """The command on this target: before the words that a probe runs."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--target", str(target), *words[end:]]


def in_a_submodule(world: World) -> None:
    """A submodule whose own configuration names a filter for a file that looks edited."""
    inner = world.target / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    (inner / "a").write_text("a\n")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "first")
    (world.target / ".gitmodules").write_text(
        '[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n'
    )
    git(world.target, "add", ".gitmodules", "inner")
    git(world.target, "commit", "-q", "-m", "inner")
    configure(
        inner,
        {"filter.evil.clean": str(world.folder / "program"), "core.fsmonitor": str(world.folder / "program")},
    )
    (inner / "a").write_text("b\n")
    os.utime(inner / "a", (1e9, 1e9))


def in_a_fetch(world: World) -> None:
    """A repository that lacks the object that HEAD names, and says by which program it is fetched."""
    program = world.folder / "fetching"
    program.write_text(f"#!/bin/sh\necho fetching >> {world.folder / 'ran'}\nexit 1\n")
    program.chmod(0o755)
    configure(
        world.target,
        {
            "remote.origin.url": f"ext::{program} x",
            "remote.origin.promisor": "true",
            "remote.origin.partialclonefilter": "blob:none",
            "extensions.partialClone": "origin",
            "core.repositoryFormatVersion": "1",
            "protocol.ext.allow": "always",
        },
    )
    head = git(world.target, "rev-parse", "HEAD")
    (world.target / ".git" / "objects" / head[:2] / head[2:]).unlink()


def in_a_worktree(world: World) -> None:
    """A configuration that names a filter only where git works in a worktree."""
    included = world.folder / "in-worktrees"
    included.write_text(f'[filter "own"]\n\tsmudge = {world.folder / "program"}\n')
    configure(world.target, {"includeIf.gitdir:**/worktrees/**.path": str(included)})


PLACES = dict(zip(ELSEWHERE, (in_a_submodule, in_a_fetch, in_a_worktree), strict=True))


def hostile(world: World, keys: tuple[str, ...]) -> Path:
    """Put the project into a repository that names a program for these keys; the file that shows that it ran."""
    target, ran, program = world.target, world.folder / "ran", world.folder / "program"
    git(target, "init", "-q", "-b", "main")
    (target / ".gitattributes").write_text("* filter=own diff=own merge=own\n*.c filter=lfs diff=Own.Two\n")
    git(target, "add", ".")
    git(target, "commit", "-q", "-m", "first")
    (target / "other.c").write_text((target / "other.c").read_text() + "// again\n")
    git(target, "commit", "-q", "-a", "-m", "second")
    signed(target)
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\ncat\n')
    program.chmod(0o755)
    hooks = world.folder / "hooks"
    hooks.mkdir()
    for hook in (
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-commit",
        "fsmonitor-watchman",
    ):
        (hooks / hook).symlink_to(program)
    configure(target, {key: value_of(key, program, world.folder) for key in keys})
    (target / "scale.c").write_text((target / "scale.c").read_text() + "// changed\n")
    for touched in ("other.c", ".gitattributes"):  # one file under each filter: git compares what looks edited
        os.utime(target / touched, (1e9, 1e9))
    ran.unlink(missing_ok=True)
    return ran


def value_of(key: str, program: Path, folder: Path) -> str:
    """What makes a key dangerous."""
    included = folder / "included"
    included.write_text(f"[diff]\n\texternal = {program}\n[core]\n\tfsmonitor = {program}\n")
    booleans = ("commit.gpgSign", "log.showSignature", "submodule.recurse", "extensions.worktreeConfig")
    special = {
        "core.hooksPath": str(folder / "hooks"),
        "include.path": str(included),
        "includeIf.gitdir:/.path": str(included),
        "protocol.ext.allow": "always",
        "core.worktree": "..",
        "core.attributesFile": str(included),
        "gc.auto": "1",
        "maintenance.auto": "true",
        "remote.origin.vcs": "ext",
        "submodule.own.update": f"!{program}",
        **dict.fromkeys(booleans, "true"),
    }
    alias = f"!{program}" if key.startswith("alias.") else str(program)
    return special.get(key, alias)


def configure(target: Path, values: dict[str, str]) -> None:
    """Write them into the repository's own configuration, as a clone with a hostile one would have them."""
    for key, value in values.items():
        words = ["git", "config", "--file", str(target / ".git" / "config"), key, value]
        subprocess.run(words, check=True, timeout=LIMIT_S, capture_output=True)
