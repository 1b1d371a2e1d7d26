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


def answer(**options: Any) -> dict[str, Any]:
    """What `--json` prints."""
    out = io.StringIO()
    assert 0 == clean.clean(cache=True, screen=Screen(out, io.StringIO()), as_json=True, **options)
    return json.loads(out.getvalue())  # type: ignore[no-any-return]


def test_old_builds_go_with_what_is_known_of_them(folder: Path) -> None:
    """Sizes are told by what it is; without --yes all stay; younger ones always do."""
    everything = answer()
    others = ("index of sessions", "targets made of tasks in other formats")
    assert {"compiled kernels": 4000, **dict.fromkeys(others, 0)} == everything["parts"]
    assert (str(folder), False) == (everything["folder"], everything["removed"])
    old = answer(older_than=30.0)
    assert (False, 1) == (old["removed"], old["entries"])
    assert (folder / "builds" / "old").is_dir()
    assert answer(older_than=30.0, yes=True)["removed"]
    assert ["new", "questions"] == sorted(os.listdir(folder / "builds"))
    assert ["new.json"] == os.listdir(folder / "builds" / "questions" / "q")
