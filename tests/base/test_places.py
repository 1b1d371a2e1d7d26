"""Folders that environment variables name: absolute and resolved, however they are written."""

import os
from pathlib import Path

import pytest

from loop.base.places import cache_folder, find_project, make_folder_variables_absolute, state_folder


@pytest.mark.parametrize("written", ["x/../real", "link", "link/../real"])
def test_a_folder_has_a_single_spelling(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths below it are compared as text; children, which get the variable, run in other folders."""
    for name in ("x", "real"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    for variable in ("LOOP_CACHE", "LOOP_STATE", "LOOP_SESSIONS"):
        monkeypatch.setenv(variable, written)
    make_folder_variables_absolute()
    monkeypatch.chdir("/")
    assert str(tmp_path / written) == os.environ["LOOP_STATE"]
    assert {tmp_path / "real"} == {cache_folder(), state_folder(), find_project(None, Path("/")).sessions}
