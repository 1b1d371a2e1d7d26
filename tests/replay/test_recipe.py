"""The script of a session: what it checks, what it runs, and that a replay of it holds."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base.places import Project
from loop.library import targets
from loop.model.record import Revision, SessionHead
from loop.replay.recipe import NAME, recipe, said, word, write
from tests.makers import make_finished, make_session_head, make_verify
from tests.projects import KERNEL, loop, make_project
from tests.repository.test_reading import put_under_git

PATTERN = """
format: 1
name: only-verify
number: 100
title: Build and verify
problem: A session that is done soon.
use_when: [testing]
estimate: {minutes: 0.1}
steps:
  - {id: build, title: Compile, action: kernel.build, budget_s: 20}
  - {id: verify, title: Against float64, action: kernel.verify, budget_s: 20}
"""
PLAN = """
format: 1
name: only
title: Build and verify
patterns: [only-verify]
workloads: [small]
budget: {minutes: 1}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a name that a shell would take apart."""
    folder = make_project(tmp_path / "it's mine; $HOME")
    (folder / "patterns").mkdir()
    (folder / "patterns" / "only-verify.yaml").write_text(PATTERN)
    (folder / "plans").mkdir()
    (folder / "plans" / "only.yaml").write_text(PLAN)
    return Project(folder, tmp_path / "sessions", bundled=False)


def head_of(project: Project, **fields: object) -> SessionHead:
    """The head of a session that judged what the project holds."""
    base = {"ground": targets.ground(project), "revision": Revision(commit=None), "variants": ("ours",)}
    return make_session_head(target_folder=str(project.target), **{**base, **fields})


def script(project: Project, tmp_path: Path, **fields: object) -> str:
    """The recipe of a session that verified."""
    finished = [make_finished("verify", output=make_verify(variant="ours"))]
    return recipe(project, head_of(project, **fields), finished, tmp_path / "cache")


def test_the_script_has_the_hash_of_each_file(project: Project, tmp_path: Path) -> None:
    """As `sha256sum` writes them."""
    digest = hashlib.sha256((project.target / "scale.c").read_bytes()).hexdigest()
    assert f"\n{digest}  scale.c\n" in script(project, tmp_path)


def test_the_script_asks_for_the_session_s_own_seed_and_workloads(project: Project, tmp_path: Path) -> None:
    """By the command that a person would type."""
    (line,) = re.findall("^ask .*", script(project, tmp_path), re.MULTILINE)
    assert line.startswith("ask verify kernels verify ours --workloads ")
    assert '--target "$target" --device cpu --seed 7' in line


def test_no_folder_of_this_machine_and_no_variable_is_in_the_script(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be given to anybody."""
    monkeypatch.setenv("API_TOKEN", "hunter2")
    text = script(project, tmp_path)
    assert "hunter2" not in text
    assert str(tmp_path) not in text
    assert "bench" not in text.split("Machine")[1].splitlines()[0]  # The machine's name.


def test_folders_become_variables_wherever_a_word_has_them() -> None:
    """Everything else is quoted; a longer name that begins alike is another folder."""
    places = {"/home/me/it's": "target", "/home/me": "checkout"}
    assert '-I"$target"' == word("-I/home/me/it's", places)
    assert '-I"$checkout"/a/b' == word("-I/home/me/a/b", places)
    assert "/home/meadow" == word("/home/meadow", places)
    assert "'-DX=\"a b\"'" == word('-DX="a b"', places)
    assert "''" == word("", places)


def test_a_comment_stays_on_its_line() -> None:
    """A name with a line end could run something."""
    assert "a?rm -rf" == said("a\nrm -rf")


def test_uncommitted_edits_are_named(project: Project, tmp_path: Path) -> None:
    """Their hashes are checked; no commit has them."""
    commit = put_under_git(project.target)
    assert "# Edits      none" in script(project, tmp_path, revision=Revision(commit=commit))
    (project.target / "scale.c").write_text(KERNEL + "\n")
    text = script(project, tmp_path, revision=Revision(commit=commit, dirty=True, changed=("scale.c",)))
    assert "# Edits      these were judged as no commit has them" in text
    assert "#            scale.c\n" in text


def test_files_that_changed_meanwhile_cannot_be_checked(project: Project, tmp_path: Path) -> None:
    """What was judged is not there any more: the script says so and compares nothing."""
    text = script(project, tmp_path, ground="another")
    assert "\ncannot_tell 'the files that were judged are not known" in text
    assert "  scale.c\n" not in text


def test_only_sets_that_the_target_has_are_asked_for(project: Project, tmp_path: Path) -> None:
    """As the session checked only those."""
    head = head_of(project)
    plan = head.plan.plan.model_copy(update={"workloads": ("small",), "checks": ("edges", "small")})
    planned = head.plan.model_copy(update={"plan": plan})
    (line,) = re.findall("^ask .*", script(project, tmp_path, plan=planned), re.MULTILINE)
    assert "ask verify kernels verify ours --workloads small --target" in line


def test_a_link_out_of_the_checkout_is_named(project: Project, tmp_path: Path) -> None:
    """Git has the link; no commit has what it leads to."""
    (tmp_path / "far.h").write_text("\n")
    (project.target / "far.h").symlink_to(tmp_path / "far.h")
    text = script(project, tmp_path, revision=Revision(commit=put_under_git(project.target)))
    assert "without them this ends with `not the same`:\n#            far.h\n" in text


def test_edits_that_git_cannot_tell_are_not_none(project: Project, tmp_path: Path) -> None:
    """A commit that is gone."""
    put_under_git(project.target)
    assert "# Edits      not known" in script(project, tmp_path, revision=Revision(commit="f" * 40))


def only_asked(tmp_path: Path, asked: str, **programs: str) -> dict[str, str]:
    """An environment in which `loop kernels verify` runs a line, with other programs put before the real ones."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (tmp_path / "scratch").mkdir()
    lines = {"loop": f'case "$2" in header) echo /a/b.h;; verify) {asked};; *) echo same;; esac', **programs}
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "scratch")}


def test_hashes_that_were_not_checked_cannot_be_told(project: Project, tmp_path: Path) -> None:
    """A `sha256sum` that refuses its options has found nothing wrong, and nothing right."""
    env = only_asked(tmp_path, "echo {}", sha256sum="echo no such option >&2; exit 1")
    command = ["sh", "-c", script(project, tmp_path), "recipe", str(project.target)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=20)
    assert (125, "cannot tell: sha256sum did not check the files: no such option\n") == (
        done.returncode,
        done.stdout,
    )


def test_an_interrupted_recipe_leaves_no_folder(project: Project, tmp_path: Path) -> None:
    """Whichever shell runs it."""
    env = only_asked(tmp_path, 'kill -TERM "$PPID"')
    command = ["sh", "-c", script(project, tmp_path), "recipe", str(project.target)]
    done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=20)
    assert 130 == done.returncode
    assert [] == list((tmp_path / "scratch").iterdir())


def test_a_recipe_that_cannot_be_written_ends_no_session(project: Project, tmp_path: Path) -> None:
    """It is said."""
    assert "recipe.sh could not be written" in write(project, head_of(project), tmp_path / "no", [], tmp_path)


def replay(recipe: Path, folder: Path, tmp_path: Path) -> tuple[int, str]:
    """Run a recipe as a person would: its exit code, and its last line."""
    program = tmp_path / "bin" / "loop"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from loop.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    command = ["sh", str(recipe), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)
    return done.returncode, (done.stdout.splitlines() or [done.stderr])[-1]


@pytest.mark.slow
def test_a_clone_replays_the_session(project: Project, tmp_path: Path) -> None:
    """Same; not the same with another flag, a wrong kernel, another commit or another line in the recipe."""
    put_under_git(project.target)
    loop("trust", str(project.target))
    done = loop("run", "session", "only", "--target", str(project.target))
    assert 0 == done.returncode, done.stderr
    (session,) = (tmp_path / "sessions").iterdir()
    assert f"`sh {NAME} CHECKOUT`" in (session / "report.md").read_text()
    clone = tmp_path / "a clone"
    subprocess.run(["git", "clone", "-q", str(project.target), str(clone)], check=True, timeout=20)
    code, line = replay(session / NAME, clone, tmp_path)
    assert 125 == code, "nobody has allowed its definitions yet"
    loop("trust", str(clone))
    assert (0, "same") == replay(session / NAME, clone, tmp_path)

    edited = tmp_path / "edited.sh"
    edited.write_text((session / NAME).read_text().replace("gcc -O1", "gcc -O0"))
    code, line = replay(edited, clone, tmp_path)
    assert (1, "not the same: the recipe's line that compiles ours makes other code than loop does") == (
        code,
        line,
    )

    (clone / "scale.c").write_text(KERNEL.replace("x[i] *", "(i == 7 ? 0 : x[i]) *"))
    code, line = replay(session / NAME, clone, tmp_path)
    assert 1 == code
    assert "scale.c: not what was judged" in line
    assert "ours is wrong on" in line

    (clone / "scale.c").write_text(KERNEL)
    (clone / "target.yaml").write_text((clone / "target.yaml").read_text().replace("-O1", "-O0"))
    subprocess.run(["git", "-C", str(clone), "add", "-A"], check=True, timeout=20)
    commit = put_under_git(clone)
    loop("trust", str(clone))
    code, line = replay(session / NAME, clone, tmp_path)
    assert 1 == code
    assert f"the checkout is at {commit}" in line
    assert "build of ours is" in line
