"""What a session spent on AI, through the command: stated amounts, agents' results, nothing known."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from loop.agents import results
from loop.base.documents import sums
from loop.model.money import AiUse
from loop.store.sessions import SessionFolder
from tests.projects import add_commands, loop, make_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A trusted project whose plan `try` is two commands."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["true", "true"])
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def bill(folder: Path, *words: str) -> dict[str, Any]:
    """The bill of a session."""
    done = loop("run", "session", "try", "--target", str(folder), *words)
    assert 0 == done.returncode, done.stderr
    (session,) = (folder.parent / "sessions").iterdir()
    found: dict[str, Any] = json.loads((session / "record.json").read_text())["bill"]
    return found


@pytest.mark.slow
def test_ai_that_nobody_told_of_is_unknown(project: Path) -> None:
    """It is no zero, and the reason names the option that states it."""
    found = bill(project)
    assert [] == [one for one in found["charges"] if one["resource"] == "ai"]
    (reason,) = [one["reason"] for one in found["unmeasured"] if one["resource"] == "ai"]
    assert "--ai-usd" in reason
    assert "- AI: not measured (" in loop("report", "last", "--target", str(project)).stdout
    shown = json.loads(loop("cost", "show", "--json", "--target", str(project)).stdout)
    assert None is shown["totals"]["ai_usd"]


@pytest.mark.slow
def test_what_somebody_states_is_called_so(project: Path) -> None:
    """It is charged with the basis `stated`."""
    found = bill(project, "--ai-usd", "0.75")
    assert [(0.75, "stated")] == [
        (one["usd"], one["basis"]) for one in found["charges"] if one["resource"] == "ai"
    ]


def test_an_agent_s_own_result_goes_before_somebody_s_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results add up; a stated amount counts where no result has a cost."""
    folder = SessionFolder(tmp_path)
    results.add(folder, results.stated(0.75))
    uses = [AiUse(source="result", agents=("codex",), usd=None, unpriced=("gpt",))]
    monkeypatch.setattr(results, "proposed", lambda folder: uses)
    use, _ = results.used(folder)
    assert use is not None
    assert ("stated", 0.75, ()) == (use.source, use.usd, use.unpriced)
    uses += [AiUse(source="result", agents=("claude-code",), usd=usd) for usd in (0.25, 0.125)]
    use, _ = results.used(folder)
    assert use is not None
    assert ("result", 0.375, ("codex", "claude-code")) == (use.source, use.usd, use.agents)


@pytest.mark.slow
@pytest.mark.parametrize("amount", ["-1", "nan"])
def test_what_cannot_be_an_amount_is_refused_before_anything_runs(project: Path, amount: str) -> None:
    """Exit 2, and no session."""
    done = loop("run", "session", "try", "--target", str(project), "--ai-usd", amount)
    assert (2, True) == (done.returncode, "expected dollars" in done.stderr), done.stderr
    assert not (project.parent / "sessions").exists()


@pytest.mark.slow
def test_a_clock_that_was_set_is_not_charged(project: Path, tmp_path: Path) -> None:
    """Three hours appear between two lines of a journal: the steps' own clock is charged."""
    bill(project)
    (session,) = (tmp_path / "sessions").iterdir()
    lines = [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["event"] != "closed"]
    for line in kept:
        del line["sum"]
    for line in kept[3:]:
        later = datetime.datetime.fromisoformat(line["at"]) + datetime.timedelta(hours=3)
        line["at"] = later.isoformat()
    text, before = "", ""
    for line in kept:
        sealed = sums.sealed(json.dumps(line), before)
        text, before = f"{text}{sealed}\n", sums.parted(sealed.encode(), before)[1]
    (session / "journal.jsonl").write_text(text)
    (session / "record.json").unlink()
    done = loop("run", "session", "--resume", "last", "--target", str(project))
    assert 0 == done.returncode, done.stderr
    record = json.loads((session / "record.json").read_text())
    steps = sum(line["seconds"] for line in kept if line["event"] == "finished")
    assert pytest.approx(steps) == record["seconds"]
