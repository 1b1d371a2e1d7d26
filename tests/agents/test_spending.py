"""What a session spent on AI, through the command: stated amounts, agents' results, nothing known."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.agents import proposing
from loop.model.campaign import Proposal
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


def test_an_agent_s_own_result_goes_before_somebody_s_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results add up; a stated amount counts where no result has a cost."""
    folder = SessionFolder(tmp_path)
    proposing.save_stated_cost(folder, proposing.check_stated_usd(0.75))
    use = AiUse(source="result", agents=("codex",), usd=None, unpriced=("gpt",))
    proposals = [Proposal(number=1, ended="edited", use=use)]
    monkeypatch.setattr(proposing, "read_proposals", lambda folder: proposals)
    use, _ = proposing.read_session_use(folder)
    assert use is not None
    assert ("stated", 0.75, ()) == (use.source, use.usd, use.unpriced)
    for usd in (0.25, 0.125):
        use = AiUse(source="result", agents=("claude-code",), usd=usd)
        proposals.append(Proposal(number=2, ended="edited", use=use))
    use, _ = proposing.read_session_use(folder)
    assert use is not None
    assert ("result", 0.375, ("codex", "claude-code")) == (use.source, use.usd, use.agents)
