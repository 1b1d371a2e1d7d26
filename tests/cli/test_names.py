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


def test_names_are_found_without_torch() -> None:
    """In a process of its own: a word is completed while it is typed."""
    start = "import sys; sys.modules['torch'] = None; from loop.cli import app; app(prog_name='loop')"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "_LOOP_COMPLETE": "complete_bash"}
    env |= {"COMP_WORDS": "loop kernels measure c", "COMP_CWORD": "3"}
    done = subprocess.run([sys.executable, "-c", start], env=env, capture_output=True, text=True, check=True)
    assert ["cpu"] == done.stdout.split()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run session nightlyy --target here/mine", "no plan 'nightlyy'"),
        ("run pattern baseline --target here/mine", "no pattern 'baseline'"),
        ("run session --variant our --target here/mine", "no variant 'our'"),
        ("kernels verify our --target here/mine", "no variant 'our'"),
        ("kernels verify --workloads quik --target here/mine", "no workload set 'quik'"),
        ("run session --resume 2027 --target here/mine", "no session 2027"),
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


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words",
    [
        "report 2026-01 --target here/mine",
        "report last --target here/mine",
        "kernels verify ours --workloads N=3 --target here/mine",
        "run session nightly --target here/mine",
        "kernels verify x --target here/broken",
    ],
)
def test_a_name_that_may_be_there_is_left_to_its_command(words: str) -> None:
    """The beginning of an id, sizes in place of a set, what a broken manifest or a past session has."""
    ended = CliRunner().invoke(app, words.split())
    assert "no session" not in str(ended.exception)
    assert "has no variant" not in str(ended.exception)
    assert "no plan" not in str(ended.exception)


@pytest.mark.usefixtures("here")
def test_a_file_that_is_checked_is_no_matter_of_the_bundled_target() -> None:
    """No other target is named beside it."""
    Path("one.yaml").write_text("format: 1\n")
    ended = CliRunner().invoke(app, ["patterns", "check", "one.yaml"])
    assert (2, "") == (ended.exit_code, ended.stderr)
