"""What a shell completes: names of the target and of definitions, quickly, and nothing that hurts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.cli import app
from tests.conftest import ROOT
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


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run session nightlyy --target here/mine", "no plan 'nightlyy'"),
        ("kernels verify our --target here/mine", "no variant 'our'"),
        ("kernels verify --workloads quik --target here/mine", "no workload set 'quik'"),
        ("status --target here/mime", "no such file or folder"),
    ],
)
def test_a_mistyped_name_is_refused_before_anything_large_is_imported(words: str, said: str) -> None:
    """That takes more than a second; what could be there is said."""
    call = "import sys; from loop.cli import main\ntry: main()\nfinally: print('loop.steps' in sys.modules)"
    called = [sys.executable, "-c", call, *words.split()]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(called, env=env, capture_output=True, text=True, check=False)
    assert said in ended.stderr
    assert (2, "False") == (ended.returncode, ended.stdout.split()[-1])
