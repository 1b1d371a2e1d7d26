"""Looking at somebody's repository runs nothing that its configuration names, before it is trusted."""

import os
import subprocess
from pathlib import Path

import pytest

from loop.repository import changes, revision
from loop.repository import git as door
from loop.repository.git import NAMES_PROGRAM, git, look
from loop.repository.history import difference
from tests.repository.test_reading import git as as_user
from tests.repository.test_reading import make_repository

KEYS = (
    *(f"filter.own.{name}" for name in ("clean", "smudge", "process")),
    *("diff.external", "diff.own.command", "diff.own.textconv", "merge.own.driver"),
    *(
        "core.sshCommand",
        "core.askPass",
        "core.gitProxy",
        "core.pager",
        "core.editor",
        "core.alternateRefsCommand",
    ),
    *("core.fsmonitor", "sequence.editor", "pager.log", "pager.diff", "pager.status", "gpg.program"),
    *("gpg.ssh.program", "gpg.x509.program", "credential.helper", "credential.https://x.y.helper"),
    *("interactive.diffFilter", "trailer.own.command", "trailer.own.cmd", "tar.own.command"),
    *("remote.origin.uploadpack", "remote.origin.receivepack", "uploadpack.packObjectsHook"),
    *("difftool.own.cmd", "mergetool.own.cmd", "browser.own.cmd", "man.own.cmd", "diff.Own.Two.textconv"),
)
"""Keys of git-config(1) whose value is a program."""
SIGNED = """-----BEGIN PGP SIGNATURE-----

iQ==
-----END PGP SIGNATURE-----
"""


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when nothing is trusted yet."""
    monkeypatch.setattr(door._Door, "open", False)
    door.without_programs.cache_clear()


def hostile(folder: Path, ran: Path) -> Path:
    """A repository that names a program for everything, with files that each kind concerns."""
    made = make_repository(folder)
    attributes = "* filter=own diff=own merge=own\n*.txt diff=Own.Two\n"
    (made / ".gitattributes").write_text(attributes)
    (made / "a.txt").write_text("one\n")
    as_user(made, "add", ".")
    as_user(made, "commit", "-q", "-m", "second")
    signed(made)
    program = ran.parent / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\ncat\n')
    program.chmod(0o755)
    for key in KEYS:
        as_user(made, "config", key, str(program))
    as_user(made, "config", "filter.own.required", "true")
    for key in ("log.showSignature", "commit.gpgSign", "merge.verifySignatures", "tag.gpgSign"):
        as_user(made, "config", key, "true")
    as_user(made, "config", "remote.origin.url", f"ext::sh -c {program}% x")
    as_user(made, "config", "remote.origin.promisor", "true")
    as_user(made, "config", "core.hooksPath", str(made / "hooks"))
    (made / "hooks").mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (made / "hooks" / hook).symlink_to(program)
    (made / "kernel.cpp").write_text("changed\n")
    os.utime(made / "a.txt", (1e9, 1e9))
    return made


def signed(folder: Path) -> None:
    """Put a commit with a signature on top: showing it asks a program whether it holds."""
    text = as_user(folder, "cat-file", "commit", "HEAD")
    head, _, message = text.partition("\n\n")
    signature = SIGNED.replace("\n", "\n ").rstrip(" ")
    path = folder.parent / "commit"
    path.write_text(f"{head}\ngpgsig {signature}\n{message}\n")
    as_user(folder, "reset", "-q", as_user(folder, "hash-object", "-t", "commit", "-w", str(path)))


def test_no_program_of_a_hostile_repository_runs(tmp_path: Path) -> None:
    """Whatever loop asks of it before it is trusted."""
    ran = tmp_path / "ran"
    folder = hostile(tmp_path / "r", ran)
    before = ran.read_text() if ran.exists() else ""
    head = git(folder, "rev-parse", "HEAD").strip()
    found = revision(folder)
    assert (head, True) == (found.commit, found.dirty)
    assert "kernel.cpp" in changes(folder, f"{head}~1")
    difference(folder, f"{head}~1", head)
    for words in (["log", "-p"], ["log", "-1"], ["status"], ["show", "HEAD"], ["diff", "HEAD"]):
        patch = words[0] in ("diff", "show") or "-p" in words
        look(folder, *words, *(["--no-ext-diff", "--no-textconv"] if patch else []))
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"), head)
    git(tmp_path / "tree", "checkout", "-q", "--detach", "--force", f"{head}~1")
    assert before == (ran.read_text() if ran.exists() else "")


def test_the_same_repository_runs_programs_without_the_door(tmp_path: Path) -> None:
    """What the test above looks for is there to be seen."""
    ran = tmp_path / "ran"
    folder = hostile(tmp_path / "r", ran)
    before = ran.read_text() if ran.exists() else ""
    subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert ran.read_text() != before


def test_a_trusted_repository_has_its_filters(tmp_path: Path) -> None:
    """Large files would be pointers otherwise."""
    ran = tmp_path / "ran"
    folder = make_repository(tmp_path / "r")
    (folder / ".gitattributes").write_text("*.bin filter=own\n")
    (folder / "a.bin").write_text("one\n")
    as_user(folder, "add", ".")
    as_user(folder, "commit", "-q", "-m", "second")
    as_user(folder, "config", "filter.own.smudge", f"sh -c 'echo ran >> {ran}; cat'")
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "closed"), "HEAD")
    assert not ran.exists()
    door.allow_programs()
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "open"), "HEAD")
    assert "ran\n" == ran.read_text()


@pytest.mark.parametrize(
    "key", ["user.name", "core.bare", "remote.origin.url", "filter.own.required", "diff.renames"]
)
def test_other_keys_stay(key: str) -> None:
    """What names no program is the user's own affair."""
    assert NAMES_PROGRAM.fullmatch(key) is None
