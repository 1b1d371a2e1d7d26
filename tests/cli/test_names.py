"""What a shell completes: names of the target and of definitions, quickly, and nothing that hurts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.cli import app
from tests.projects import make_project


def complete(words: str) -> list[str]:
    """What bash offers for the last word of a command line."""
    env = {"_LOOP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return CliRunner().invoke(app, env=env, prog_name="loop").output.split()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a project, a broken one, and one of neither kind."""
    made = make_project(tmp_path / "here" / "mine")
    (made / "plans").mkdir()
    (made / "plans" / "nightly.yaml").write_text("")
    (made / "sessions" / "2026-01-01-000001-quick").mkdir(parents=True)
    (made / "sessions" / "2026-01-01-000001-quick" / "session.json").write_text("{}")
    (tmp_path / "here" / "broken").mkdir()
    (tmp_path / "here" / "broken" / "target.yaml").write_text("variants: [")
    (tmp_path / "here" / "other").mkdir()
    monkeypatch.delenv("LOOP_SESSIONS")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("loop run session --target here/mine --variant ", {"ours"}),
        ("loop kernels verify --target here/mine ", {"ours"}),
        ("loop run session ba", {"baseline"}),
        ("loop run session --target here/mine ni", {"nightly"}),
        ("loop run pattern baseline-f", {"baseline-first"}),
        ("loop report --target here/mine ", {"last", "2026-01-01-000001-quick"}),
        ("loop doctor --target here/", {"here/mine", "here/broken", "here/other/"}),
        ("loop kernels verify --target here/broken ", set()),
        ("loop kernels verify --target nowhere ", set()),
        ("loop cost keep", {"keep-or-stop"}),
    ],
)
def test_names_that_fit_are_offered(words: str, offered: set[str]) -> None:
    """Variants, plans, patterns, sessions, targets and commands; nothing of a manifest that cannot be read."""
    assert offered == set(complete(words))
