"""The list of patterns in a project whose own pattern cannot be used."""

from pathlib import Path

import pytest

from tests.projects import loop, make_project


@pytest.mark.parametrize("kind", ["folder", "dead link", "deep", "not text"])
def test_a_pattern_that_cannot_be_read_is_named_with_its_place(tmp_path: Path, kind: str) -> None:
    """An error of the user's file, with file, line and column; never a bug of ours."""
    make_project(tmp_path / "mine")
    own = tmp_path / "mine" / "patterns" / "own.yaml"
    own.parent.mkdir(exist_ok=True)
    if kind == "folder":
        own.mkdir()
    elif kind == "dead link":
        own.symlink_to(tmp_path / "nowhere")
    else:
        own.write_bytes(b"name: " + b"[" * 5000 if kind == "deep" else b"\xff\xfe\0")
    listed = loop("patterns", "list", "--target", str(tmp_path / "mine"))
    assert 2 == listed.returncode, listed.stderr
    assert "own.yaml:1:" in listed.stderr
