"""Campaigns that change Python variants: each side of a comparison runs its own copy of the module."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loop.base.places import cache_folder
from loop.library.definitions import read_file
from loop.model.target import Target
from loop.optimize.briefing import contract
from loop.optimize.candidate import find_takeover_command
from loop.optimize.session_changes import may_change, may_edit_variant
from loop.repository import worktree
from loop.steps.context import Context
from tests.noise import timed
from tests.optimize.test_campaign import optimize
from tests.optimize.test_session import SIZES, Project, commit_plan
from tests.projects import FUNCTIONS, LOOP, TARGET, loop
from tests.repository.test_reading import git

SLOW = """
import torch


def scale(x, *, factor):
    from rows import one_row

    return torch.stack([one_row(row, factor) for row in x])
"""
ROWS = """
def one_row(row, factor):
    return row * factor
"""
FAST = "from mine_whole import scale\n"
WHOLE = """
def scale(x, *, factor):
    return x * factor
"""
WRONG = WHOLE.replace("x * factor", "x * (factor + 0.01)")
CACHED = """
last = {}


def scale(x, *, factor):
    if x.shape not in last:
        last[x.shape] = x * factor
    return last[x.shape]
"""
VARIANTS = "  ours: {kind: python, device: any, module: mine, function: scale}\n"
PROPOSER = """
import pathlib, subprocess, sys
brief, folder, answer = map(pathlib.Path, sys.argv[1:])
number, mine = int(brief.name[:4]), folder / "mine.py"
if number == 1:  # What Python cannot read comes back with its words.
    mine.write_text("def scale(:" if "does not compile" not in brief.read_text() else {fast!r})
    (folder / "mine_whole.py").write_text({whole!r})
    for name in ("functions.py", "target.yaml", "torch.py"):
        (folder / name).write_text("def scale(x, *, factor): return x")
elif number == 2:
    mine.write_text(mine.read_text() + "# nothing but a comment")
    done = subprocess.run([*{loop!r}, "kernels", "check", "ours", "--json"], cwd=folder, capture_output=True)
    pathlib.Path({printed!r}).write_bytes(done.stdout)
elif number < 5:
    mine.write_text({{3: {wrong!r}, 4: {cached!r}}}[number])
else:
    answer.write_text('{{"done": true}}')
"""


def in_python(folder: Path) -> Path:
    """A target whose variant works row by row, in two files."""
    folder.mkdir(parents=True)
    head = TARGET.partition("  ours: ")[0].replace(*SIZES)
    files = {"target.yaml": head + VARIANTS, "functions.py": FUNCTIONS, "mine.py": SLOW, "rows.py": ROWS}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@timed
@pytest.mark.slow
def test_a_campaign_changes_a_python_variant(tmp_path: Path) -> None:
    """A faster edit is kept; a comment, a wrong result, a cached answer and edits of the judge are not."""
    project = Project(in_python(tmp_path / "project"), tmp_path / "sessions")
    commit_plan(project.folder)
    assert 0 == loop("trust", str(project.folder)).returncode
    printed, script = tmp_path / "check.json", tmp_path / "propose.py"
    texts = {"fast": FAST, "whole": WHOLE, "wrong": WRONG, "cached": CACHED}
    script.write_text(PROPOSER.format(loop=LOOP, printed=str(printed), **texts))
    words = ("--threads", "1", "--json")
    code, out, err = optimize(project, f"{sys.executable} {script} {{brief}} {{workdir}} {{answer}}", *words)
    assert 0 == code, err
    changes = json.loads(out)["changes"]
    first, *_, last = changes["proposals"]
    assert ["mine.py", "mine_whole.py"] == first["files"]
    assert ["functions.py", "target.yaml", "torch.py"] == first["left_out"]
    assert ("edited", "done") == (first["ended"], last["ended"])
    assert ["kept", "reverted", "reverted", "reverted"] == [change["outcome"] for change in changes["judged"]], err
    comment, *wrong_reasons = (change["reason"] for change in changes["judged"][1:])
    assert "the edit changes nothing that runs" in comment
    assert all("ours is incorrect" in reason for reason in wrong_reasons)
    (step,) = json.loads(printed.read_text())["steps"]
    assert "the incumbent" == step["output"]["speeds"][0]["against"]
    assert ["mine.py", "rows.py"] == project.brief(1)["files"]
    assert ["mine.py", "rows.py", "mine_whole.py"] == project.brief(2)["files"]
    assert SLOW == (project.folder / "mine.py").read_text()
    assert FAST.strip() == git(project.folder, "show", f"loop/{project.session.name}:mine.py")
    assert [] == list(cache_folder().rglob("__pycache__")), "a copy is known by what it holds"
    assert "the start's speed" in (project.session / "report.md").read_text()


ANSWER = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        {work}
"""
TASK = (
    ANSWER.replace("ModelNew", "Model").format(work="return x * self.scale")
    + """

def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return [2.0]
"""
)
SLOW_ANSWER = ANSWER.format(work="return torch.stack([row * self.scale for row in x])")
FAST_ANSWER = ANSWER.format(work="return x * self.scale")
ANSWERS = """
import pathlib, sys
brief, folder = map(pathlib.Path, sys.argv[1:])
(folder / "task.py").write_text("a task of my own")
(folder / "answers" / "mine.py").write_text({fast!r})
"""


@timed
@pytest.mark.slow
def test_a_campaign_changes_the_answer_to_a_task_of_another_format(tmp_path: Path) -> None:
    """Only the answer's file may change; it stays unchanged until its owner takes over the kept edit."""
    task, answer, script = tmp_path / "task.py", tmp_path / "mine.py", tmp_path / "propose.py"
    for path, text in ((task, TASK), (answer, SLOW_ANSWER), (script, ANSWERS.format(fast=FAST_ANSWER))):
        path.write_text(text)
    assert 0 == loop("trust", str(task), str(answer)).returncode
    words = ("--variant", str(answer), "--max-candidates", "1", "--threads", "1")
    result = loop("optimize", str(task), "--proposer", f"{sys.executable} {script} {{brief}} {{workdir}}", *words)
    assert 0 == result.returncode, result.stderr
    (noted,) = (tmp_path / "sessions").glob("*/changes/candidates/0001.json")
    proposal = json.loads(noted.read_text())
    assert (["answers/mine.py"], ["task.py"]) == (proposal["files"], proposal["left_out"])
    assert (TASK, SLOW_ANSWER) == (task.read_text(), answer.read_text())
    line = next(text for text in result.stderr.splitlines() if "take it over: " in text)
    subprocess.run(shlex.split(line.partition("take it over: ")[2]), check=True, capture_output=True)
    assert FAST_ANSWER == answer.read_text()


def target_in(folder: Path, variants: str) -> Target:
    (folder / "target.yaml").write_text(TARGET.partition("  ours: ")[0] + variants)
    return read_file(folder / "target.yaml", Target).value


def test_what_judges_a_variant_may_not_change(tmp_path: Path) -> None:
    """The manifest, its functions and their imports belong to no variant."""
    (tmp_path / "functions.py").write_text("import shared\n" + FUNCTIONS)
    for name in ("shared", "mine"):
        (tmp_path / f"{name}.py").write_text(ROWS)
    modules = ("functions", "shared", "mine", "torch.nn")
    line = "  {}: {{kind: python, device: any, module: {}, function: scale}}\n"
    target = target_in(tmp_path, "".join(line.format(name.replace(".", "_"), name) for name in modules))
    assert ["mine"] == [name for name in target.variants if may_edit_variant(target, tmp_path, name)]


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("rms.py", True),
        ("rms_tiles.py", True),
        ("tiles.py", False),
        ("torch.py", False),
        ("parts/rms_tiles.py", False),
        ("rms_old.py", False),
        ("tile.cuh", True),
    ],
)
def test_a_new_python_file_is_called_after_the_variants(name: str, may: bool) -> None:
    """A new file with another name could be imported in place of a package of that name."""
    assert may == may_change(name, ("rms.py", "kernel.cuh"), ("rms_old.py",))


def test_a_brief_says_how_a_variant_is_called(tmp_path: Path) -> None:
    """A brief on Python names no compiler."""
    target = target_in(tmp_path, VARIANTS)
    context = cast(Context, SimpleNamespace(bench=SimpleNamespace(target=target, device="cpu")))
    terms = contract(context, target.variants["ours"])
    assert ("mine:scale, a function that returns its outputs", False) == (terms["Entry"], "Compiler" in terms)
    assert ("x [N M]", "[N M]", "factor") == (terms["Inputs"], terms["Output"], terms["Attributes"])


def test_what_was_not_committed_is_not_merged(tmp_path: Path) -> None:
    """A branch that begins with it would be refused, or commit it: the patch is applied at the top."""
    folder, patch = tmp_path / "user" / "target", tmp_path / "kept.patch"
    folder.mkdir(parents=True)
    git(tmp_path / "user", "init", "-q")
    for number, text in enumerate(("one\n", "mine\n"), 1):
        (folder / "a.py").write_text(text)
        if number == 1:
            git(tmp_path / "user", "add", ".")
            git(tmp_path / "user", "commit", "-qm", "first")
    tree = worktree.make_from_checkout(folder, tmp_path / "tree")
    base = tree.head
    (tree.target / "a.py").write_text("faster\n")
    tree.commit("kept")
    patch.write_bytes(tree.patch(base))
    branch = tree.point_branch("loop/s")
    subprocess.run(find_takeover_command(folder, branch, patch, "ours"), check=True)
    assert "faster\n" == (folder / "a.py").read_text()
