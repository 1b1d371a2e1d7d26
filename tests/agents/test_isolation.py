"""A known program sees its brief, its folder and loop, and no secret; a command of the user's own sees all."""

import subprocess
from pathlib import Path

import pytest

from loop.agents import proposing
from loop.agents.proposing import Preset, find_preset
from loop.base.places import PACKAGE


def seen(preset: Preset, place: Path, script: str) -> subprocess.CompletedProcess[str]:
    """What a shell sees that runs as this proposer does."""
    for name in ("root", "locks", "notes"):
        (place / name).mkdir()
    (place / "notes" / "brief.md").write_text("the brief")
    (place / "secret").write_text("a secret")
    words = proposing.isolation_command(*(place / name for name in ("root", "locks", "notes")), preset)
    return subprocess.run([*words, "sh", "-c", script], capture_output=True, text=True, cwd=place, check=False)


@pytest.mark.skipif(not proposing.can_isolate(), reason="needs bwrap")
def test_a_known_program_sees_what_it_needs_and_no_secret(tmp_path: Path) -> None:
    """It can read the brief and loop, and write to its folder and the locks."""
    script = f"cat {tmp_path}/notes/brief.md {tmp_path}/secret; ls {PACKAGE}/cli"
    found = seen(find_preset("claude"), tmp_path, f"{script}; touch root/a locks/b; echo x > notes/brief.md")
    assert "the brief" in found.stdout
    assert "__init__.py" in found.stdout
    assert "a secret" not in found.stdout
    assert ["a", "b"] == [path.name for name in ("root", "locks") for path in (tmp_path / name).iterdir()]
    assert "the brief" == (tmp_path / "notes" / "brief.md").read_text()


def test_a_command_of_the_users_own_is_not_isolated(tmp_path: Path) -> None:
    """Where its files are, nobody knows; the report says that it was not."""
    assert "a secret" == seen(find_preset("sh propose.sh"), tmp_path, f"cat {tmp_path}/secret").stdout
