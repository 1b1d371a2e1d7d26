"""`loop clean --cache`: what it holds is told, and goes when that is asked for."""

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from loop.base.screen import Screen
from loop.cli import clean


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a build of today, one of a hundred days ago, and what is known of both."""
    made = tmp_path / "cache"
    monkeypatch.setenv("LOOP_CACHE", str(made))
    then = time.time() - 100 * clean.DAY_S
    for name in ("new", "old"):
        question = made / "builds" / "questions" / "q" / f"{name}.json"
        for path in (made / "builds" / name / "kernel.so", question):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 1000)
    for path in (made / "builds" / "old", made / "builds" / "old" / "kernel.so"):
        os.utime(path, (then, then))
    return made


def told(story: Any, *given: Any) -> dict[str, Any]:
    """What `--json` prints."""
    out = io.StringIO()
    assert 0 == story(*given, Screen(out, io.StringIO()), as_json=True)
    return json.loads(out.getvalue())  # type: ignore[no-any-return]


def test_its_size_is_told(folder: Path) -> None:
    """By what it is."""
    answer = told(clean.clean_cache, 0.0, False)
    others = ("index of sessions", "targets made of tasks in other formats")
    assert {"compiled kernels": 4000, **dict.fromkeys(others, 0)} == answer["parts"]
    assert (str(folder), False) == (answer["folder"], answer["removed"])


def test_old_builds_go_with_what_is_known_of_them(folder: Path) -> None:
    """The others stay; without --yes all do."""
    assert (False, 1) == tuple(told(clean.clean_cache, 30.0, False)[key] for key in ("removed", "entries"))
    assert (folder / "builds" / "old").is_dir()
    assert True is told(clean.clean_cache, 30.0, True)["removed"]
    assert ["new", "questions"] == sorted(os.listdir(folder / "builds"))
    assert ["new.json"] == os.listdir(folder / "builds" / "questions" / "q")
