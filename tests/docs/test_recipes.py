"""The recipes of CONTRIBUTING.md work in a copy of the repository."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs import shell

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def copied(folder: Path) -> Path:
    """The files of the repository, those that are not committed too."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/bench/recorded"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def changed(text: str, hunk: str) -> str:
    """A text with one hunk applied; its lines have to be there once."""
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert 1 == text.count(before), f"{text.count(before)} places for:\n{hunk}"
    return text.replace(before, after)


def follow(page: str, folder: Path, **variables: str) -> list[str]:
    """Do what a page says, block by block; return the differences with line and output."""
    wrong, blocks = list[str](), shell.blocks(page)
    for place, block in enumerate(blocks):
        path = folder / block.rest
        if block.language == "diff":
            for hunk in block.body.split("@@\n"):
                path.write_text(changed(path.read_text(), hunk))
        elif block.language == "sh":
            expected = blocks[place + 1]
            code, printed = shell.bash(block.body, folder, variables)
            if code or not shell.agrees(printed, expected.body):
                wrong.append(f"CONTRIBUTING.md:{block.line}: exit {code}\n{printed}")
        elif block.rest:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body)
    return wrong


@pytest.mark.slow
def test_every_recipe_works(tmp_path: Path) -> None:
    """Files are written and changed by the page; its commands print the page's output; the layers hold."""
    folder = copied(tmp_path / "loop")
    variables = {"PYTHONPATH": str(folder), "LOOP_SESSIONS": str(tmp_path / "sessions")}
    differences = follow(TEXT, folder, **variables)
    assert not differences, "\n".join(differences)
    code, printed = shell.bash("python -m pytest -q -p no:cacheprovider tests/test_layers.py", folder, variables)
    assert 0 == code, printed
