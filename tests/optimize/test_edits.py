"""The part of a candidate's edit that is accepted: only files that may change."""

import shutil
from pathlib import Path

import pytest

from loop.model.campaign import Proposal
from loop.optimize.model import Brief
from loop.optimize.session_changes import apply_proposal, take_edit
from loop.repository import worktree
from loop.repository.worktree import Worktree
from tests.repository.test_reading import git, put_under_git

BRIEF = Brief(
    number=1, variant="ours", title="", workload="w", profile=None, folder="", files=("scale.c",), rule="",
    timed=("w",), resume="", decline="",
)  # fmt: skip


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Worktree, Worktree]:
    """An incumbent, and a candidate's copy of it."""
    user = tmp_path / "user"
    user.mkdir()
    for name, text in (("scale.c", "one\ntwo\nthree\n"), ("target.yaml", "manifest\n"), ("functions.py", "f\n")):
        (user / name).write_text(text)
    put_under_git(user, "first")
    tree = worktree.make_from_checkout(user, tmp_path / "tree")
    return tree, worktree.copy_worktree(tree, tmp_path / "copy")


def test_what_may_not_change_is_put_back_and_not_taken(trees: tuple[Worktree, Worktree], tmp_path: Path) -> None:
    """The manifest, the reference, other kinds of files; a new header beside the kernel is."""
    tree, copy = trees
    for name, text in (("scale.c", "new\n"), ("scale_more.c", "more\n"), ("target.yaml", "x"), ("notes.txt", "x")):
        (copy.target / name).write_text(text)
    (copy.target / "functions.py").unlink()
    git(copy.root, "commit", "-qam", "a proposer's own commit changes nothing")
    patch = tmp_path / "1.patch"
    assert (("scale.c", "scale_more.c"), ("functions.py", "target.yaml")) == take_edit(BRIEF, tree, copy, patch)
    assert b"+more" in patch.read_bytes()
    assert "manifest\n" == (copy.target / "target.yaml").read_text()


@pytest.mark.parametrize("written", ["other/../{}", "link/{}", "link/../{}"])
def test_an_edit_is_taken_however_its_folder_is_written(
    trees: tuple[Worktree, Worktree], tmp_path: Path, written: str
) -> None:
    """An edit below a state folder such as x/../y or a link is no conflict."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path if written == "link/{}" else tmp_path / "inner")
    roots = [tmp_path / written.format(tree.root.name) for tree in trees]
    tree, copy = (Worktree(root, root, None) for root in roots)
    (copy.target / "scale.c").write_text("new\n")
    assert (("scale.c",), ()) == take_edit(BRIEF, tree, copy, tmp_path / "1.patch")
    assert b"+new" in (tmp_path / "1.patch").read_bytes()


def test_a_link_or_a_deleted_folder_gives_nothing(trees: tuple[Worktree, Worktree], tmp_path: Path) -> None:
    """A link may lead to a secret: in place of a file it is refused, and the file put back."""
    tree, copy = trees
    (copy.target / "linked.c").symlink_to("/etc/passwd")
    (copy.target / "other.c").symlink_to("functions.py")
    (copy.target / "other.c").replace(copy.target / "scale.c")
    assert ((), ("scale.c (now a link, a folder or too large)",)) == take_edit(BRIEF, tree, copy, tmp_path / "1")
    assert "one\ntwo\nthree\n" == (copy.target / "scale.c").read_text()
    assert ((), ()) == take_edit(BRIEF, tree, Worktree(tmp_path, tmp_path / "gone", None), tmp_path / "1.patch")


def test_a_folder_that_became_a_link_leads_nowhere(trees: tuple[Worktree, Worktree], tmp_path: Path) -> None:
    """Files behind the link are neither read, nor overwritten, nor removed."""
    tree, copy = trees
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(copy.target, elsewhere)
    for name in ("functions.py", "scale.c"):
        (elsewhere / name).write_text("mine\n")
    shutil.rmtree(copy.root)
    copy.root.symlink_to(elsewhere)
    assert () == take_edit(BRIEF, tree, copy, tmp_path / "1.patch")[0]
    assert ["mine\n", "mine\n"] == [(elsewhere / name).read_text() for name in ("functions.py", "scale.c")]


def test_an_edit_is_rebased_and_a_conflict_is_no_edit(trees: tuple[Worktree, Worktree], tmp_path: Path) -> None:
    """Changes kept meanwhile stay; an identical edit is not judged twice."""
    tree, copy = trees
    (copy.target / "scale.c").write_text("one\ntwo\nTHREE\n")
    patch = tmp_path / "1.patch"
    take_edit(BRIEF, tree, copy, patch)
    assert {} == tree.changed_lines()
    proposal = Proposal(number=1, ended="edited", patch=str(patch))
    assert "edited" == apply_proposal(tree, proposal, set()).ended
    assert "THREE" in (tree.target / "scale.c").read_text()
    tree.revert()
    (tree.target / "scale.c").write_text("other\n")
    tree.commit("kept meanwhile")
    assert "conflict" == apply_proposal(tree, proposal, set()).ended
    assert ({}, "other\n") == (tree.changed_lines(), (tree.target / "scale.c").read_text())


def test_a_new_file_at_the_top_is_named_where_the_variant_lies_below(tmp_path: Path) -> None:
    """The message names a new `torch.py` beside a package of kernels."""
    user = tmp_path / "user"
    (user / "fast").mkdir(parents=True)
    (user / "fast" / "norm.py").write_text("one\n")
    put_under_git(user, "first")
    tree = worktree.make_from_checkout(user, tmp_path / "tree")
    copy = worktree.copy_worktree(tree, tmp_path / "copy")
    (copy.target / "torch.py").write_text("1 / 0\n")
    brief = BRIEF.model_copy(update={"files": ("fast/norm.py",)})
    assert ((), ("torch.py",)) == take_edit(brief, tree, copy, tmp_path / "1.patch")
