"""What is sent of a checkout to another machine, and the branches that come back."""

from pathlib import Path

import pytest

from loop.repository.carried import fetch_session_branches, git_config_to_send, list_files_to_send
from tests.repository.test_reading import git, put_under_git


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a commit, an edit, a new file, one that git ignores, and one that was removed."""
    folder = tmp_path / "checkout"
    (folder / "in").mkdir(parents=True)
    for name in ("in/a b.c", "gone.c"):
        (folder / name).write_text("1")
    (folder / ".gitignore").write_text("*.o\n")
    put_under_git(folder)
    for name in ("new.c", "built.o"):
        (folder / name).write_text("2")
    (folder / "gone.c").unlink()
    return folder


def test_the_work_tree_goes_with_its_history(checkout: Path) -> None:
    """As it is now, without what git ignores."""
    names = set(list_files_to_send(checkout))
    assert {".gitignore", "in/a b.c", "new.c"} == {name for name in names if not name.startswith(".git/")}
    assert {".git/HEAD", ".git/index"} <= names


def test_nothing_secret_and_no_program_goes_with_it(checkout: Path) -> None:
    """Hooks, remotes, headers and helpers stay; how files are kept goes."""
    git(checkout, "config", "remote.origin.url", "https://me:token@example.com/a")
    git(checkout, "config", "http.https://example.com/.extraheader", "Authorization: token")
    git(checkout, "config", "credential.helper", "store --file token")
    git(checkout, "config", "core.autocrlf", "input")
    git(checkout, "config", 'filter.a "b.clean', 'tr "a" \\b')
    (checkout / ".git" / "hooks" / "pre-commit").write_text("token")
    (checkout / ".git" / "config.worktree").write_text("token")
    names, text = list_files_to_send(checkout), git_config_to_send(checkout)
    assert not [name for name in names if name.startswith((".git/config", ".git/hooks"))]
    assert "token" not in text
    (checkout / ".git" / "config").write_text(text)
    assert ("input", 'tr "a" \\b') == (
        git(checkout, "config", "core.autocrlf"),
        git(checkout, "config", 'filter.a "b.clean'),
    )


def test_files_of_submodules_go_too(checkout: Path, tmp_path: Path) -> None:
    """As files, without a history of their own; so do those of a repository that git was not told of."""
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(checkout), "below")
    git(checkout, "init", "-q", "other")
    (checkout / "other" / "mine.c").write_text("1")
    names = list_files_to_send(checkout)
    assert {"below/in/a b.c", "other/mine.c"} <= {*names}
    assert not [
        name for name in names if ".git/modules" in name or name.startswith(("below/.git/", "other/.git/"))
    ]


def bundle(checkout: Path, branch: str) -> Path:
    """What another machine made of the checkout: a commit on a branch."""
    other = checkout.parent / "other"
    git(checkout.parent, "clone", "-q", str(checkout), "other")
    git(other, "switch", "-qc", branch)
    (other / "new.c").write_text(branch)
    git(other, "add", ".")
    git(other, "commit", "-qm", "kept")
    git(other, "bundle", "create", "--quiet", "../made", branch)
    return checkout.parent / "made"


def test_branches_of_sessions_come_back(checkout: Path) -> None:
    """And nothing else: the checkout, its own branches and its index stay as they are."""
    before = git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "main")
    assert ("loop/session",) == fetch_session_branches(checkout, bundle(checkout, "loop/session"))
    assert "loop/session" == git(checkout, "show", "loop/session:new.c")
    assert before == (git(checkout, "status", "--porcelain"), git(checkout, "rev-parse", "main"))


def test_a_branch_of_the_users_is_never_taken(checkout: Path) -> None:
    """Whatever another machine puts into its bundle."""
    before = git(checkout, "for-each-ref")
    assert () == fetch_session_branches(checkout, bundle(checkout, "mine"))
    assert before == git(checkout, "for-each-ref")
