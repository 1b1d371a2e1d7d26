"""AI in a session's bill: an agent's result, logs that may be read, or somebody's word; else it is unknown."""

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest

from loop.agents.prices import price_list
from tests.projects import add_commands, loop, make_project

needs_prices = pytest.mark.skipif(price_list() is None, reason="no price list: pip install 'kernel-loop[ai]'")
AGENT = """
import datetime, json, pathlib, sys
log = pathlib.Path(sys.argv[1])
log.parent.mkdir(parents=True, exist_ok=True)
usage = {"input_tokens": 1000, "output_tokens": 200}
line = {"type": "assistant", "timestamp": datetime.datetime.now(datetime.UTC).isoformat(), "cwd": sys.argv[2],
        "message": {"id": "m1", "model": sys.argv[3], "usage": usage}}
log.write_text((json.dumps(line) + chr(10)) * 2)
"""
OPUS_USD = (1000 * 5 + 200 * 25) / 1e6


def project_with_agent(tmp_path: Path, model: str = "claude-opus-4-6") -> Path:
    """A trusted project whose only step is an agent's: it leaves a log below the home folder."""
    folder = make_project(tmp_path / "project")
    (folder / "agent.py").write_text(AGENT)
    log = tmp_path / ".claude" / "projects" / "p" / "s.jsonl"
    add_commands(folder, "try", [f"python3 agent.py {log} {folder} {model}"])
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def bill(folder: Path, *words: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The bill of a session, and what was said of it."""
    done = loop("run", "session", "try", "--target", str(folder), *words, **environment)
    assert 0 == done.returncode, done.stderr
    (session,) = (folder.parent / "sessions").iterdir()
    found: dict[str, Any] = json.loads((session / "record.json").read_text())["bill"]
    return found, done.stderr


def ai(found: dict[str, Any]) -> list[tuple[float, str]]:
    """Dollars and basis of what was charged for AI."""
    return [(one["usd"], one["basis"]) for one in found["charges"] if one["resource"] == "ai"]


def why_not(found: dict[str, Any]) -> str:
    """Why AI has no figure; empty where it has one."""
    return next((str(one["reason"]) for one in found["unmeasured"] if one["resource"] == "ai"), "")


def test_without_consent_no_log_is_read(tmp_path: Path) -> None:
    """The log is there; AI is not measured, and how to allow it is said."""
    found, said = bill(project_with_agent(tmp_path))
    assert [] == ai(found)
    assert "--meter-ai" in why_not(found)
    assert ".claude" not in said
    report = loop("report", "last", "--target", str(tmp_path / "project")).stdout
    assert "- AI: not measured (" in report


@needs_prices
def test_with_consent_the_logs_of_the_session_are_charged(tmp_path: Path) -> None:
    """What will be read is said first; each call counts once; its tokens stand in the report."""
    folder = project_with_agent(tmp_path)
    found, said = bill(folder, "--meter-ai")
    assert [(pytest.approx(OPUS_USD), "measured")] == ai(found)
    assert f"loop reads agents' logs ({tmp_path}/.claude/projects, " in said
    assert [("claude-opus-4-6", 1, 1000)] == [
        (one["model"], one["calls"], one["tokens"]["input"]) for one in found["ai"]["models"]
    ]
    report = loop("report", "last", "--target", str(folder)).stdout
    assert re.search(r"\| claude-opus-4-6 +\| +1 \| +1,000 \|", report)


@needs_prices
def test_consent_may_stand_in_the_environment_or_on_the_card(tmp_path: Path) -> None:
    """LOOP_METER_AI=1, or `meter_ai: true` in the project's own rates.yaml."""
    for name in ("environment", "card"):
        (tmp_path / name).mkdir()
        folder = project_with_agent(tmp_path / name)
        card = "format: 1\nwaiting: me\nmeter_ai: true\nrates:\n" \
               "  - {name: me, resource: engineer, usd_per_hour: 1, source: s, as_of: 2026-01-01}\n"  # fmt: skip
        if name == "card":
            (folder / "rates.yaml").write_text(card)
        told = {"LOOP_METER_AI": "1" if name == "environment" else "0"}
        home = {"HOME": str(tmp_path / name), "LOOP_SESSIONS": str(tmp_path / name / "sessions")}
        found, _ = bill(folder, **told, **home)
        assert [(pytest.approx(OPUS_USD), "measured")] == ai(found), name


def test_a_model_without_a_price_is_not_free(tmp_path: Path) -> None:
    """Its tokens are shown, and that their cost is unknown; what was stated does not stand in for it."""
    found, _ = bill(project_with_agent(tmp_path, "wizard-9"), "--meter-ai")
    assert [] == ai(found)
    assert "the cost of 1,200 tokens of wizard-9 is unknown" == why_not(found)
    shown = json.loads(loop("cost", "show", "--json", "--target", str(tmp_path / "project")).stdout)
    assert None is shown["totals"]["ai_usd"]


def test_what_somebody_states_is_called_so(tmp_path: Path) -> None:
    """And counts only where nothing was measured."""
    found, _ = bill(project_with_agent(tmp_path), "--ai-usd", "0.75")
    assert [(0.75, "stated")] == ai(found)


def test_an_agent_s_own_result_goes_before_everything(tmp_path: Path) -> None:
    """Before logs of the same calls, which would be charged twice, and before somebody's word."""
    folder = project_with_agent(tmp_path)
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"type": "result", "total_cost_usd": 0.25, "usage": {"output_tokens": 9}}))
    found, _ = bill(folder, "--meter-ai", "--ai-usd", "0.75", "--ai-result", str(result))
    assert [(0.25, "measured")] == ai(found)
    assert "result" == found["ai"]["source"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ai-usd", "-1"], "--ai-usd -1.0: expected dollars"),
        (["--ai-usd", "nan"], "--ai-usd nan: expected dollars"),
        (["--ai-result", "nowhere.json"], "nowhere.json: cannot be read"),
    ],
)
def test_what_cannot_be_an_amount_is_refused_before_anything_runs(
    tmp_path: Path, words: list[str], said: str
) -> None:
    """Exit 2, and no session."""
    folder = project_with_agent(tmp_path)
    done = loop("run", "session", "try", "--target", str(folder), *words)
    assert (2, True) == (done.returncode, said in done.stderr), done.stderr
    assert not (tmp_path / "sessions").exists()


def test_a_clock_that_was_set_is_not_charged(tmp_path: Path) -> None:
    """Three hours appear between two lines of a journal: the steps' own clock is charged, and that is said."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["true", "true"])
    assert 0 == loop("trust", str(folder)).returncode
    bill(folder)
    (session,) = (tmp_path / "sessions").iterdir()
    lines = [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["event"] != "closed"]
    for line in kept:
        del line["sum"]
    for line in kept[3:]:
        later = datetime.datetime.fromisoformat(line["at"]) + datetime.timedelta(hours=3)
        line["at"] = later.isoformat()
    (session / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    (session / "record.json").unlink()
    done = loop("run", "session", "--resume", "last", "--target", str(folder))
    assert 0 == done.returncode, done.stderr
    assert "note: the clock was set forward, or the machine slept" in done.stderr
    record = json.loads((session / "record.json").read_text())
    steps = sum(line["seconds"] for line in kept if line["event"] == "finished")
    assert pytest.approx(steps) == record["seconds"]
    assert any("the machine slept" in note for note in record["bill"]["notes"])
    assert "the machine slept" in loop("report", "last", "--target", str(folder)).stdout
